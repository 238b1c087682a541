"""What one window shows of one feature, against the reference's baseline. Pure; numpy only."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, Field

from monitoring.baseline import Limits, Monitored, Usual
from monitoring.contract import DriftPolicy, Estimate, Finding, Quality
from monitoring.drift import Binned, Bins, Distance, finite, nulls, psi
from monitoring.words import moved_category, moved_mean, moved_nulls, new_categories, title

Outcome = Literal["checked", "insufficient", "incident"]


class Figures(BaseModel, frozen=True, extra="forbid"):
    """Everything measured of one feature, and the finding that follows."""

    finding: Finding
    psi: float | None = None
    psi_threshold: float | None = None
    null_share: float | None = None
    null_share_reference: float | None = None
    null_threshold: float | None = None
    unseen_share: float = 0.0
    unseen_threshold: float | None = None
    mean: float | None = None
    mean_reference: float | None = None
    median: float | None = None
    bins: tuple[int, ...] = Field(default=(), description="Counts of the window; the last is of nulls.")
    bins_reference: tuple[int, ...] = Field(
        default=(), description="Counts of the reference's days of the same weekdays, in the same bins."
    )
    new_categories: tuple[str, ...] = Field(default=(), description="Bins that the reference lacks, before the last.")


class CheckReport(BaseModel, frozen=True, extra="forbid"):
    """What ``check.json`` holds: the figures of every feature, the quiet ones too."""

    model: str
    package_digest: str
    reference_digest: str
    partitions: tuple[str, ...]
    outcome: Outcome
    rows: int
    score: float | None
    features: tuple[Figures, ...]
    prediction: Figures | None
    prediction_threshold: float | None
    label: Figures | None
    quality: Quality | None
    estimate: Estimate | None
    notes: tuple[str, ...]


def missing(feature: Monitored) -> Figures:
    """The figures of a column that the log does not have."""
    return _unmeasured(feature, "missing", "the column is missing from the prediction log")


def changed_type(feature: Monitored, held: str) -> Figures:
    """The figures of a column whose type is not the reference's any more."""
    return _unmeasured(feature, "type", f"the log holds {held}, the reference has numbers; mend the column's producer")


def _unmeasured(feature: Monitored, kind: Literal["missing", "type"], what: str) -> Figures:
    words = f"{title(feature.name)}: {what}"
    return Figures(
        finding=Finding(feature=feature.name, kind=kind, score=None, threshold=None, weight=feature.weight, words=words)
    )


def measure(
    feature: Monitored,
    values: npt.NDArray[Any],
    partitions: Sequence[dt.date],
    policy: DriftPolicy,
    distance: Distance = psi,
) -> Figures:
    """The figures of one feature's values [B], B > 0, in a window of these partitions; DataFault on a NaN score.

    ``distance`` takes the counts of window and reference, and the share below which bins are pooled.
    """
    limits, usual = feature.limit(len(partitions)), feature.usual(partitions)
    known = values[~nulls(values)]
    bins = Bins(feature.kind, feature.edges, feature.categories)
    wider = bins.extended(values)
    counts = np.bincount(wider.codes(values), minlength=wider.width)
    before = np.array([*usual.counts[:-1], *[0] * (wider.width - bins.width), usual.counts[-1]])
    unseen = float(counts[bins.width - 1 : wider.width - 1].sum() / len(values)) if wider.width > bins.width else 0.0
    rare = policy.rare_share if feature.kind == "categorical" else 0.0
    figures = Figures(
        finding=Finding(feature=feature.name, kind="ok", score=None, threshold=None, weight=feature.weight, words="-"),
        psi=finite(float(distance(counts, before, rare)), f"drift of '{feature.name}'"),
        psi_threshold=max(policy.psi_drift, limits.psi),
        null_share=1 - len(known) / len(values),
        null_share_reference=usual.null_share,
        null_threshold=max(policy.null_drift, limits.nulls),
        unseen_share=unseen,
        unseen_threshold=max(policy.unseen_drift, limits.unseen),
        mean=float(known.mean()) if feature.kind == "numeric" and len(known) else None,
        mean_reference=usual.mean,
        median=float(np.median(known)) if feature.kind == "numeric" and len(known) else None,
        bins=tuple(counts.tolist()),
        bins_reference=tuple(before.tolist()),
        new_categories=wider.categories[len(bins.categories) :],
    )
    kind, score, threshold = _verdict(figures, limits, stuck=_stuck(feature, known, limits, policy), policy=policy)
    finding = Finding(
        feature=feature.name,
        kind=kind,
        score=score,
        threshold=threshold,
        weight=feature.weight,
        words=_words(kind, feature, figures, usual),
    )
    return figures.model_copy(update={"finding": finding})


def binned(feature: Monitored, figures: Figures, policy: DriftPolicy) -> Binned:
    """What Evidently's report shows of a measured feature: the counts that the check decided by."""
    bins = Bins(feature.kind, feature.edges, (*feature.categories, *figures.new_categories))
    return Binned(
        labels=bins.labels,
        current=np.array(figures.bins),
        reference=np.array(figures.bins_reference),
        threshold=figures.psi_threshold or policy.psi_drift,
        rare=policy.rare_share if feature.kind == "categorical" else 0.0,
    )


def _stuck(feature: Monitored, known: npt.NDArray[Any], limits: Limits, policy: DriftPolicy) -> bool:
    """Whether all known values are one and the same, which neither the reference's days nor its usual value explain.

    A share of cancelled flights is 0 on a good day; a mean delay of exactly 0 in every row is a broken feed.
    """
    if not len(known) or not bool((known == known[0]).all()) or limits.constant > 1 - policy.block_quantile:
        return False
    return known[0] != feature.common or feature.common_share < policy.common_share


def _verdict(figures: Figures, limits: Limits, *, stuck: bool, policy: DriftPolicy) -> tuple[Any, float, float]:
    """The gravest kind, with the score and the threshold that decided it."""
    score, threshold = figures.psi or 0.0, figures.psi_threshold or policy.psi_drift
    null_share = figures.null_share or 0.0
    delta = abs(null_share - (figures.null_share_reference or 0.0))
    rules: tuple[tuple[str, bool, float, float], ...] = (
        ("empty", null_share == 1 and delta > max(policy.null_drift, limits.nulls), score, threshold),
        ("constant", stuck, score, threshold),
        ("nulls", delta > max(policy.null_drift, limits.nulls), delta, max(policy.null_drift, limits.nulls)),
        (
            "unseen",
            figures.unseen_share > max(policy.unseen_drift, limits.unseen),
            figures.unseen_share,
            max(policy.unseen_drift, limits.unseen),
        ),
        ("drift", score > threshold, score, threshold),
        ("warn", score > max(policy.psi_warn, limits.psi), score, threshold),
        ("warn", delta > max(policy.null_warn, limits.nulls), delta, max(policy.null_drift, limits.nulls)),
        (
            "warn",
            figures.unseen_share > max(policy.unseen_warn, limits.unseen),
            figures.unseen_share,
            max(policy.unseen_drift, limits.unseen),
        ),
    )
    return next(
        ((kind, found, limit) for kind, holds, found, limit in rules if holds),
        ("ok", score, threshold),
    )


def _words(kind: str, feature: Monitored, figures: Figures, usual: Usual) -> str:
    after = figures.null_share or 0.0
    if kind == "empty":
        return f"{title(feature.name)}: every value is null (null share was {usual.null_share:.1%})"
    if kind == "constant":
        return f"{title(feature.name)}: one single value in all rows, the reference never had that"
    if kind == "nulls":
        return moved_nulls(feature.name, usual.null_share, after)
    if kind == "unseen":
        return new_categories(feature.name, figures.new_categories, figures.unseen_share)
    if feature.kind == "numeric":
        return moved_mean(feature.name, (usual.mean, figures.mean), (usual.median, figures.median))
    names = (*feature.categories, *figures.new_categories)
    return moved_category(feature.name, _shares(feature.categories, usual.counts), _shares(names, figures.bins))


def _shares(categories: tuple[str, ...], counts: tuple[int, ...]) -> dict[str, float]:
    total = sum(counts)
    return {name: count / total for name, count in zip(categories, counts, strict=False)}
