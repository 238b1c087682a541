"""Skill of the live version on labelled requests, against its skill at promotion. Numpy only.

Skill = 1 - log loss / log loss of the window's own base rate: raw log loss improves when the base rate falls, skill
does not (decisions.md 1.3). Days are resampled whole, since the rows of a day are not independent.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from monitoring.contract import DriftPolicy, Quality
from monitoring.windows import Labelled
from training.contract import EvaluationRef

UPPER = 0.95
CLIP = 1e-7  # a probability of exactly 0 or 1 would make one row's loss infinite

Floats = npt.NDArray[np.float64]


def measure(rows: Labelled, evaluation: EvaluationRef, policy: DriftPolicy, rng: np.random.Generator) -> Quality | None:
    """Quality of the labelled rows; None when they are too few for a figure.

    With fewer than ``quality_days`` days the upper bound is the trivial one (perfect skill), so no drop is confirmed.
    """
    positives = float(rows.label.sum())
    if len(rows.label) < policy.minimum_labels or min(positives, len(rows.label) - positives) < policy.minimum_events:
        return None
    losses = row_losses(rows.score, rows.label)
    base = entropy(positives / len(rows.label))
    promoted = skill_at_promotion(evaluation)
    skill = 1 - float(losses.mean()) / base
    upper = 1 - promoted
    if len(np.unique(rows.day)) >= policy.quality_days:
        draws = resampled_skill(losses, rows.label, rows.day, policy.bootstrap_draws, rng)
        upper = float(np.quantile(draws, UPPER)) - promoted
    return Quality(
        labelled=len(rows.label),
        coverage=rows.coverage,
        log_loss=float(losses.mean()),
        base_log_loss=base,
        auc=auc(rows.score, rows.label),
        skill=skill,
        skill_at_promotion=promoted,
        difference_upper=upper,
    )


def skill_at_promotion(evaluation: EvaluationRef) -> float:
    """The skill of the version's evaluation fit on its test window, by that window's own base rate."""
    return 1 - evaluation.candidate.deciding / entropy(evaluation.positives / evaluation.rows)


def row_losses(score: Floats, label: Floats) -> Floats:
    """Log loss of each row [B]."""
    p = np.clip(score, CLIP, 1 - CLIP)
    return np.asarray(-(label * np.log(p) + (1 - label) * np.log1p(-p)))


def entropy(rate: Any) -> Any:
    """Log loss of a constant answer equal to the rate of positives; NaN at 0 and 1, where skill has no meaning."""
    rate = np.asarray(rate, dtype=np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        value = -(rate * np.log(rate) + (1 - rate) * np.log1p(-rate))
    return value if value.ndim else float(value)


def resampled_skill(
    losses: Floats, label: Floats, day: npt.NDArray[np.int64], draws: int, rng: np.random.Generator
) -> Floats:
    """Skill of ``draws`` resamples of whole days (day-block bootstrap); resamples with one label only are left out."""
    _, number = np.unique(day, return_inverse=True)
    sums = np.stack([np.bincount(number, weights) for weights in (losses, label, np.ones_like(label))])  # [3, days]
    picked = rng.multinomial(sums.shape[1], np.full(sums.shape[1], 1 / sums.shape[1]), size=draws)
    loss, positives, rows = (picked @ sums.T).T
    skill = 1 - (loss / rows) / entropy(positives / rows)
    return np.asarray(skill[np.isfinite(skill)])


def auc(score: Floats, label: Floats) -> float | None:
    """Area under the ROC curve by mid-ranks; None when only one label is there."""
    positives = int(label.sum())
    negatives = len(label) - positives
    if not positives or not negatives:
        return None
    _, place, counts = np.unique(score, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[place]
    return float((ranks[label == 1].sum() - positives * (positives + 1) / 2) / (positives * negatives))
