"""What monitoring takes and gives: references, checks, policies and decisions. Values only."""

from __future__ import annotations

import datetime as dt
import itertools
import math
from typing import Literal

from pydantic import AwareDatetime, BaseModel, Field, model_validator

from artifacts.refs import Digest, Ref, Uri
from serving.contract import FeedbackRef, PackageRef, PredictionsRef
from training.contract import EvaluationRef, FitRef
from training.measures import Task


class DriftPolicy(BaseModel, frozen=True, extra="forbid"):
    """When drift is worth a retrain; the reason for each number is in docs/adr and in decisions.md 1.3 and 1.4."""

    version: int = 2
    reference_days: int = Field(default=90, gt=0)
    reference_rows: int = Field(default=50_000, gt=0)
    minimum_rows: int = Field(default=500, gt=0)
    merge_partitions: int = Field(default=7, gt=0)
    psi_drift: float = Field(
        default=0.2,
        gt=0,
        description="Floor of each feature's threshold (decisions.md 1.3.5): from here on it counts with its whole weight.",
    )
    psi_warn: float = Field(
        default=0.06,
        description="Floor of the level from which a feature warns, and counts in part: about a quarter of a deviation, "
        "four times the PSI of a quiet day of 950 rows (docs/adr/0011).",
    )
    block_quantile: float = Field(
        default=0.99, description="A feature drifts only above this quantile of its own reference blocks' scores."
    )
    null_warn: float = 0.02
    null_drift: float = 0.05
    unseen_warn: float = 0.01
    unseen_drift: float = 0.05
    trigger_share: float = Field(
        default=0.30,
        description="Importance-weighted share of drifted features that argues for a retrain; one that warns counts in part.",
    )
    leave_share: float = 0.15
    leave_checks: int = 2
    urgent_share: float = Field(default=0.60, description="With a confirmed quality drop, one check is enough.")
    hits: int = Field(default=2, gt=0)
    window: int = Field(default=3, gt=0)
    cool_down: dt.timedelta = dt.timedelta(days=1)
    cool_down_trainings: float = Field(default=2, ge=0, description="Or this many p95 of the training time.")
    coalesce: dt.timedelta = Field(default=dt.timedelta(hours=6), description="How near a covering schedule is.")
    budget: int = Field(default=2, description="Drift retrains per budget window.")
    budget_window: dt.timedelta = dt.timedelta(days=7)
    gpu_share: float = Field(default=0.2, ge=0, le=1, description="Of the tenant's weekly GPU-hours.")
    retrain_cost: float | None = Field(
        default=None,
        gt=0,
        description="Cost of one retrain in log loss x days: 0.1 is as much as serving 10 days at a log loss 0.01 higher. "
        "None: no cost data, so neither the cost test nor staleness speaks.",
    )
    feedback_rows: int | None = Field(
        default=None,
        gt=0,
        description="New labels that start a check and are due; None: never. New data as a trigger of its own: decisions.md 1.1.",
    )
    audit_after: dt.timedelta = Field(default=dt.timedelta(days=7), description="Counted from the promotion.")
    audit_last: int = Field(default=6, gt=0, description="Drift retrains over which precision is judged.")
    audit_precision: float = Field(default=0.3, ge=0, le=1, description="Below it the trigger share rises.")
    share_step: float = Field(default=0.05, gt=0, description="By how much it rises each time.")
    share_limit: float = Field(default=0.5, le=1, description="Up to where it rises.")
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
    psi_prediction: float = Field(default=0.2, description="Floor of the threshold for the prediction's PSI.")
    weekday_weeks: int = Field(
        default=4,
        gt=1,
        description="Days of each weekday that a reference needs for a feature to be held against the same weekdays, so that "
        "a weekly wave cancels (docs/adr/0011); with fewer it is held against all days.",
    )
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
    minimum_coverage: float = Field(
        default=0.9,
        gt=0,
        le=1,
        description="Labelled share of a day's requests, below which the day is left out: early flights get labels first.",
    )
    minimum_events: int = Field(default=30, gt=0, description="Rows of each label that a quality figure needs.")
    quality_days: int = Field(
        default=3, gt=1, description="Labelled days that a confirmed drop needs, since days are what is resampled."
    )
    quality_confidence: float = Field(
        default=0.99,
        gt=0.5,
        lt=1,
        description="Of the bound that confirms a drop. Looks are daily: at 0.95 a quiet year confirms several (docs/adr/0005).",
    )
    bootstrap_draws: int = Field(default=2000, gt=0)
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


BROKEN = frozenset({"missing", "type", "empty", "constant"})  # the feed is at fault, not the world
DRIFTED = frozenset({"drift", "nulls", "unseen"})


class Finding(BaseModel, frozen=True, extra="forbid"):
    """What was seen of one feature."""

    feature: str
    kind: Literal["ok", "warn", "drift", "missing", "type", "empty", "constant", "nulls", "unseen"]
    score: float | None
    threshold: float | None
    weight: float = Field(ge=0, le=1)
    words: str = Field(description="Such as 'origin delay last 3 h: mean 9 -> 31 minutes'.")


class Quality(BaseModel, frozen=True, extra="forbid"):
    """Skill on labelled requests: 1 - log loss / log loss of the window's own base rate.

    For a regression ``log_loss`` is the mean absolute error, ``base_log_loss`` that of its naive answer, in the label's unit.
    """

    task: Task = "classification"
    labelled: int
    coverage: float
    log_loss: float
    base_log_loss: float
    auc: float | None
    skill: float
    skill_at_promotion: float
    difference_upper: float = Field(
        description="Upper bound of skill - skill at promotion at ``quality_confidence``, days resampled; below 0 is a confirmed drop."
    )
    skill_lower: float | None = Field(default=None, description="95 % interval of skill; None with too few days.")
    skill_upper: float | None = None
    auc_lower: float | None = Field(default=None, description="95 % interval of AUC, days resampled.")
    auc_upper: float | None = None
    days: int = Field(default=0, description="Labelled days that the figures come from.")
    first: dt.date | None = Field(default=None, description="The oldest of them.")
    last: dt.date | None = Field(default=None, description="The newest of them.")
    both_resampled: bool = Field(
        default=False, description="Whether the days at promotion were resampled too; else that skill counts as exact."
    )

    @property
    def excess(self) -> float:
        """Log loss above what the skill at promotion would give on this window's base rate, at least 0."""
        return max((self.skill_at_promotion - self.skill) * self.base_log_loss, 0.0)


class Estimate(BaseModel, frozen=True, extra="forbid"):
    """Quality before labels, if the scores are calibrated. An estimate: a changed relation of inputs to labels is invisible to it."""

    rows: int
    positives: float = Field(description="Expected share of positive labels.")
    log_loss: float
    skill: float | None = Field(description="None when all scores are alike.")
    auc: float | None


class CheckRef(Ref, frozen=True):
    """One check: ``check.json`` (every feature), ``summary.html``, ``report.html`` and ``report.json`` (Evidently).

    ``findings`` leaves out what is quiet. The Evidently files are absent when the outcome is "insufficient".
    """

    model: str
    partition: dt.date
    first: dt.date | None = Field(default=None, description="First partition of the window; differs when merged.")
    outcome: Literal["checked", "insufficient", "incident"]
    rows: int
    score: float | None = Field(
        description="Importance-weighted share of drifted features, one that warns counted in part; None unless checked."
    )
    prediction_psi: float | None
    prediction_threshold: float | None
    findings: tuple[Finding, ...]
    quality: Quality | None
    estimate: Estimate | None = Field(default=None, description="Quality before labels: an estimate, no evidence.")
    label: Finding | None = Field(default=None, description="Label drift; None while too few labels are known.")
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
    share_only: bool = Field(
        default=False, description="The hit rests on the score alone, so a raised trigger share may undo it."
    )
    excess: float | None = Field(default=None, description="Measured log loss above that at promotion, from labels.")
    drifted: dict[str, float] = Field(
        default={},
        description="The drifted features and their weights, for who reads the ledger; the score holds them.",
    )
    warned: dict[str, float] = Field(default={}, description="The features beyond their warning level only, likewise.")
    quality_only: bool = Field(default=False, description="The hit rests on labels alone.")
    labels: tuple[dt.date, dt.date] | None = Field(
        default=None,
        description="Oldest and newest labelled day of the quality figure; checks a day apart share most of them.",
    )
    first: dt.date | None = Field(
        default=None, description="First partition of a merged window; None when it is the partition alone."
    )


Cause = Literal["urgent", "drift", "labels", "staleness"]


class RetrainRow(BaseModel, frozen=True, extra="forbid"):
    """What the policy needs to remember of a drift retrain; built from the ledger."""

    decided_at: AwareDatetime
    ended_at: AwareDatetime | None
    promoted: bool | None = Field(description="None while the release has not been decided.")
    score_before: float | None = None
    score_after: float | None = Field(
        default=None, description="Drift score against the new version's reference, once it has been checked."
    )
    trigger_id: Digest | None = Field(default=None, description="Evidence that was answered is not answered twice.")
    cause: Cause = Field(default="drift", description="What the policy had decided it for; the breaker counts drift.")


class AgeLoss(BaseModel, frozen=True, extra="forbid"):
    """Log loss above a fresh model's, by the age in days of the newest training day; from back-tests of stored versions.

    Between the points the line is straight, from 0 at age 0; after the last it stays level. Negative values are noise: 0.
    """

    days: tuple[int, ...] = Field(min_length=1)
    excess: tuple[float, ...]

    @model_validator(mode="after")
    def _curve(self) -> AgeLoss:
        if len(self.days) != len(self.excess):
            raise ValueError(f"days has {len(self.days)} points and excess {len(self.excess)}; give one for each")
        if self.days[0] <= 0 or any(later <= earlier for earlier, later in itertools.pairwise(self.days)):
            raise ValueError(f"days={self.days} must rise from 1 on")
        if not all(math.isfinite(value) for value in self.excess):
            raise ValueError(f"excess={self.excess} holds something that is no number")
        return self


class Scheduled(BaseModel, frozen=True, extra="forbid"):
    """The next scheduled retrain, as far as it is a future event of the data clock (under a replay it is none)."""

    at: AwareDatetime
    partition: dt.date = Field(description="The partition that it will resolve.")


class GpuHours(BaseModel, frozen=True, extra="forbid"):
    """GPU-hours of the tenant's last budget window."""

    drift: float = Field(ge=0, description="Used by drift retrains.")
    weekly: float = Field(ge=0, description="Allowed to the tenant for everything.")
    expected: float = Field(default=0, ge=0, description="Of one more retrain.")


class Alert(BaseModel, frozen=True, extra="forbid"):
    """What somebody outside says against a partition; it counts as a hit of that day, and is debounced like one."""

    partition: dt.date
    words: str


class EffectEvidence(BaseModel, frozen=True, extra="forbid"):
    """What became of one drift retrain, with a replay of the old champion on the days that the new version answered."""

    decided_at: AwareDatetime
    promoted: bool
    score_before: float | None = None
    score_after: float | None = None
    labelled: int = Field(default=0, ge=0, description="Labelled requests, held out for both versions.")
    task: Task = "classification"
    loss_old: float | None = Field(default=None, description="The deciding loss: log loss, or a regression's MAE.")
    loss_new: float | None = None
    gain_lower: float | None = Field(default=None, description="Lower 95 % bound of the gain, days resampled.")


class Effect(BaseModel, frozen=True, extra="forbid"):
    """Whether one drift retrain helped, and why that is said."""

    decided_at: AwareDatetime
    promoted: bool
    drift_improved: bool | None
    quality_improved: bool | None
    gain: float | None = Field(description="Deciding loss of the old champion minus that of the new version.")
    helped: bool
    reasons: tuple[str, ...] = Field(min_length=1)


class Situation(BaseModel, frozen=True, extra="forbid"):
    """All that a decision depends on besides the checks and the policy; built from ledger, records and data clock."""

    model: str
    now: AwareDatetime = Field(description="The data clock.")
    retrains: tuple[RetrainRow, ...] = ()
    retraining: bool = Field(default=False, description="Whether any training of this model is in flight.")
    newest: dt.date | None = Field(
        default=None, description="The newest closed partition; a check of an older one is evidence and never triggers."
    )
    breaker_closed_at: AwareDatetime | None = Field(
        default=None,
        description="When a person closed the breaker, or a version that drift had not asked for went live.",
    )
    failed_gate: tuple[str, ...] = Field(
        default=(), description="What the data gate says against the partition; 'late' counts as failed."
    )
    scheduled: Scheduled | None = None
    trained_through: dt.date | None = Field(default=None, description="Newest training day of the live version.")
    ageing: AgeLoss | None = None
    training_p95: dt.timedelta = dt.timedelta(0)
    label_delay: dt.timedelta = dt.timedelta(0)
    gpu: GpuHours | None = None
    alerts: tuple[Alert, ...] = ()
    new_labels: int = Field(default=0, ge=0, description="Rows labelled since the live version was trained.")
    effects: tuple[Effect, ...] = Field(default=(), description="Audits of past drift retrains.")


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
    cause: Cause | None = Field(default=None, description="What the retrain is for; None without one.")
    trigger_share: float | None = Field(default=None, description="The share that held, as raised by the audits.")
