"""What monitoring takes and gives: references, checks, policies and decisions. Values only."""

from __future__ import annotations

import datetime as dt
from typing import Literal

from pydantic import AwareDatetime, BaseModel, Field

from artifacts.refs import Digest, Ref, Uri
from feature_repo.contract import DatasetRef
from serving.contract import FeedbackRef, PackageRef, PredictionsRef
from training.contract import EvaluationRef, FitRef


class DriftPolicy(BaseModel, frozen=True, extra="forbid"):
    """When drift is worth a retrain; the reason for each number is in docs/adr and in decisions.md 1.3 and 1.4."""

    version: int = 1
    reference_days: int = Field(default=90, gt=0)
    reference_rows: int = Field(default=50_000, gt=0)
    minimum_rows: int = Field(default=500, gt=0)
    merge_partitions: int = Field(default=7, gt=0)
    psi_drift: float = 0.2
    psi_warn: float = 0.1
    block_quantile: float = Field(
        default=0.99, description="A feature drifts only above this quantile of its own reference blocks' scores."
    )
    null_warn: float = 0.02
    null_drift: float = 0.05
    unseen_warn: float = 0.01
    unseen_drift: float = 0.05
    trigger_share: float = Field(
        default=0.30, description="Importance-weighted share of drifted features that argues for a retrain."
    )
    leave_share: float = 0.15
    leave_checks: int = 2
    urgent_share: float = Field(default=0.60, description="With a confirmed quality drop, one check is enough.")
    hits: int = Field(default=2, gt=0)
    window: int = Field(default=3, gt=0)
    cool_down: dt.timedelta = dt.timedelta(days=1)
    budget: int = Field(default=2, description="Drift retrains per budget window.")
    budget_window: dt.timedelta = dt.timedelta(days=7)
    breaker: int = Field(default=2, description="Consecutive drift retrains without effect that open the breaker.")
    breaker_cut: float = Field(
        default=0.5, description="A drift retrain that cuts the score by less than this share was without effect."
    )
    bins: int = Field(default=10, gt=1, description="Quantile bins of a numeric feature.")
    common_share: float = Field(
        default=0.05,
        description="A window with one single value is broken, unless this share of the reference has that very value.",
    )
    rare_share: float = Field(default=0.005, description="Categories below this share on both sides are pooled.")
    share_floor: float = Field(default=1e-4, gt=0, description="What an empty bin counts as; Evidently's value.")
    psi_prediction: float = Field(default=0.2, description="Floor of the threshold for the prediction's PSI.")
    minimum_blocks: int = Field(
        default=14, gt=1, description="Days that a reference needs, since a quantile of fewer blocks says nothing."
    )
    sample_rows: int = Field(default=50_000, gt=0, description="Rows per window, and per reference day, at most.")
    stale_share: float = Field(
        default=0.05, description="Requests in hours with a stale view, above which the window is an incident."
    )
    stale_after: dt.timedelta = Field(
        default=dt.timedelta(hours=25),
        description="A view is stale in an hour in which no request got a younger row: each is repeated daily.",
    )
    minimum_labels: int = Field(default=500, gt=0, description="Labelled rows that a quality figure needs.")
    minimum_events: int = Field(default=30, gt=0, description="Rows of each label that a quality figure needs.")
    quality_days: int = Field(
        default=3, gt=1, description="Labelled days that a confirmed drop needs, since days are what is resampled."
    )
    bootstrap_draws: int = Field(default=2000, gt=0)
    report_rows: int = Field(default=1000, gt=0, description="Rows per side of Evidently's report.")
    report_columns: int = Field(default=12, gt=0, description="Columns of Evidently's report, the worst ones.")
    failed_checks: int = Field(
        default=3, gt=0, description="Runs in which a check may fail; then it waits until its data or its code change."
    )
    insufficient_alert: int = Field(default=3, gt=0, description="Windows too small in a row that a person hears of.")


class ReferenceSpec(BaseModel, frozen=True, extra="forbid"):
    """Freezes what a live version knows as normal, with the scores of its own blocks."""

    model: str
    package: PackageRef
    final: FitRef
    evaluation: EvaluationRef
    policy: DriftPolicy
    seed: int
    output: Uri


class ReferenceRef(Ref, frozen=True):
    """``reference.parquet`` (a sample, feature columns and ``score``) and ``baseline.json`` (weights, thresholds, block scores)."""

    model: str
    package_digest: Digest
    rows: int
    blocks: int
    first: dt.date
    last: dt.date


class CheckSpec(BaseModel, frozen=True, extra="forbid"):
    """Compares closed partitions of the prediction log with the live version's reference."""

    model: str
    reference: ReferenceRef
    predictions: tuple[PredictionsRef, ...] = Field(
        min_length=1, description="The partition under check last; earlier ones are merged in when it is too small."
    )
    feedback: tuple[FeedbackRef, ...] = ()
    evaluation: EvaluationRef
    policy: DriftPolicy
    seed: int
    output: Uri


class Finding(BaseModel, frozen=True, extra="forbid"):
    """What was seen of one feature."""

    feature: str
    kind: Literal["ok", "warn", "drift", "missing", "empty", "constant", "nulls", "unseen"]
    score: float | None
    threshold: float | None
    weight: float = Field(ge=0, le=1)
    words: str = Field(description="Such as 'origin delay last 3 h: mean 9 -> 31 minutes'.")


class Quality(BaseModel, frozen=True, extra="forbid"):
    """Skill on labelled requests: 1 - log loss / log loss of the window's own base rate."""

    labelled: int
    coverage: float
    log_loss: float
    base_log_loss: float
    auc: float | None
    skill: float
    skill_at_promotion: float
    difference_upper: float = Field(
        description="Upper 95 % bound of skill - skill at promotion (day-block bootstrap); below 0 is a confirmed drop."
    )


class CheckRef(Ref, frozen=True):
    """One check: ``check.json`` (every feature), ``summary.html``, ``report.html`` and ``report.json`` (Evidently).

    ``findings`` leaves out what is quiet. The Evidently files are absent when the outcome is "insufficient".
    """

    model: str
    partition: dt.date
    first: dt.date | None = Field(default=None, description="First partition of the window; differs when merged.")
    outcome: Literal["checked", "insufficient", "incident"]
    rows: int
    score: float | None = Field(description="Importance-weighted share of drifted features; None unless checked.")
    prediction_psi: float | None
    prediction_threshold: float | None
    findings: tuple[Finding, ...]
    quality: Quality | None
    package_digest: Digest
    reference_digest: Digest
    notes: tuple[str, ...] = Field(default=(), description="What was seen of the window itself, in words.")


class CheckRow(BaseModel, frozen=True, extra="forbid"):
    """What the policy needs to remember of a check; built from the ledger. "failed" is one that could not be run."""

    partition: dt.date
    package_digest: Digest
    outcome: Literal["checked", "insufficient", "incident", "failed"]
    hit: bool
    score: float | None
    reasons: tuple[str, ...]
    quality_dropped: bool = False
    first: dt.date | None = Field(
        default=None, description="First partition of a merged window; None when it is the partition alone."
    )


class RetrainRow(BaseModel, frozen=True, extra="forbid"):
    """What the policy needs to remember of a drift retrain; built from the ledger."""

    decided_at: AwareDatetime
    ended_at: AwareDatetime | None
    promoted: bool | None = Field(description="None while the release has not been decided.")
    score_before: float | None = None
    score_after: float | None = Field(
        default=None, description="Drift score against the new version's reference, once it has been checked."
    )


class Decision(BaseModel, frozen=True, extra="forbid"):
    """What the policy says after a check, always with its reasons."""

    state: Literal[
        "STABLE",
        "WATCH",
        "TRIGGERED",
        "RETRAINING",
        "COOLDOWN",
        "OPEN",
        "DATA_INCIDENT",
        "INSUFFICIENT_DATA",
        "CHECK_FAILED",
    ]
    retrain: bool
    reasons: tuple[str, ...] = Field(min_length=1)
    suppressed_by: str | None = None
    trigger_id: Digest | None = None


# --- served features against the training set ------------------------------------------------------------------


class SkewSpec(BaseModel, frozen=True, extra="forbid"):
    """Compares what was served with what a later training set says of the same requests."""

    model: str
    package: PackageRef
    predictions: tuple[PredictionsRef, ...] = Field(min_length=1)
    dataset: DatasetRef = Field(description="A training set whose ``row_id`` are the request ids.")
    relative: float = Field(default=1e-6, ge=0, description="Relative difference up to which numbers are equal.")
    output: Uri


class SkewRef(Ref, frozen=True):
    """Skew between serving and training: ``skew.json`` with the shares per feature and examples."""

    model: str
    rows: int = Field(description="Requests that both sides know.")
    unmatched: int = Field(description="Requests that the training set lacks.")
    mismatch_share: float = Field(description="Share of compared values that differ.")
    worst_feature: str | None
    worst_share: float
    views: dict[str, float] = Field(description="View -> share of its compared values that differ.")
    auc_served: float | None = Field(description="AUC of the logged scores; None without both labels.")
    auc_offline: float | None = Field(description="AUC of the same package on the training set's features.")
