"""Skill of the live version on labelled requests, against its skill at promotion; and an estimate before labels. Numpy and scipy only.

Skill = 1 - log loss / log loss of the window's own base rate: raw log loss improves when the base rate falls, skill
does not (decisions.md 1.3). A regression's is 1 - absolute error / that of its naive answer: a calm week is easy for both.
Days are resampled whole, since the rows of a day are not independent.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import stdtrit

from artifacts.step import DataFault
from artifacts.store import read_ref
from monitoring.contract import DriftPolicy, Estimate, Quality
from monitoring.windows import Labelled
from training.contract import EvaluationRef

BOTH, LOWER = 0.975, 0.025  # ends of 95 % intervals
CLIP = 1e-7  # a probability of exactly 0 or 1 would make one row's loss infinite

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Promoted:
    """Skill on the test window at promotion; ``days`` [3, n] holds each day's loss, positives and rows, if known."""

    skill: float
    days: Floats | None = None


def promoted(evaluation: EvaluationRef) -> Promoted:
    """What ``evaluation.json`` says of the version's evaluation fit on its test window, by that window's own base rate.

    A regression is held against the naive answer of its evaluation, on the same rows.
    """
    if evaluation.task == "regression":
        return Promoted(1 - evaluation.candidate.deciding / evaluation.base_rate.deciding)
    skill = 1 - evaluation.candidate.deciding / entropy(evaluation.positives / evaluation.rows)
    found = json.loads(read_ref(evaluation).file("evaluation.json").read_text()).get("days")
    if not found:
        return Promoted(skill)
    days = np.array([[day["loss"], day["positives"], day["rows"]] for day in found], dtype=np.float64).T
    if days[2].sum() != evaluation.rows:
        raise DataFault([
            f"{evaluation.uri}/evaluation.json: days hold {days[2].sum():.0f} rows, the reference says {evaluation.rows}; "
            "evaluate the version again"
        ])
    return Promoted(skill, days)


def enough(rows: Labelled, policy: DriftPolicy) -> tuple[Labelled, int]:
    """The rows of days whose labelled share is high enough, and how many days were left out.

    Labels of early flights come first, so the labelled rows of a day in progress are no sample of it.
    """
    known = np.bincount(rows.day, minlength=len(rows.requests))
    whole = known >= policy.minimum_coverage * rows.requests
    kept = whole[rows.day]
    return rows.only(kept), int(((known > 0) & ~whole).sum())


def measure(rows: Labelled, at_promotion: Promoted, policy: DriftPolicy, rng: np.random.Generator) -> Quality | None:
    """Quality of the labelled rows; None when they are too few for a figure.

    With fewer than ``quality_days`` days the upper bound is the trivial one (perfect skill), so no drop is confirmed.
    """
    if not _sufficient(rows, policy):
        return None
    losses, base = losses_of(rows), base_loss(rows)
    if not base:
        return None
    skill = 1 - float(losses.mean()) / base
    days = np.unique(rows.day)
    difference = skill - at_promotion.skill
    figures = {
        "task": rows.task,
        "labelled": len(rows.label),
        "coverage": rows.coverage,
        "log_loss": float(losses.mean()),
        "base_log_loss": base,
        "auc": auc(rows.score, rows.label) if rows.task == "classification" else None,
        "skill": skill,
        "skill_at_promotion": at_promotion.skill,
        "difference_upper": 1 - at_promotion.skill,
        "days": len(days),
        "first": rows.partitions[days[0]],
        "last": rows.partitions[days[-1]],
        "both_resampled": at_promotion.days is not None,
    }
    if len(days) >= policy.quality_days:
        errors = _errors(rows, losses, at_promotion, policy.bootstrap_draws, rng)
        one, two = (float(stdtrit(len(days) - 1, share)) for share in (policy.quality_confidence, BOTH))
        figures |= {
            "difference_upper": difference + one * errors.difference,
            "skill_lower": skill - two * errors.skill,
            "skill_upper": skill + two * errors.skill,
        }
        if figures["auc"] is not None:
            figures |= {
                "auc_lower": max(figures["auc"] - two * errors.auc, 0.0),
                "auc_upper": min(figures["auc"] + two * errors.auc, 1.0),
            }
    return Quality.model_validate(figures)


def _sufficient(rows: Labelled, policy: DriftPolicy) -> bool:
    """Whether there are labels enough for a figure, of each class where there are classes."""
    if len(rows.label) < policy.minimum_labels:
        return False
    positives = float(rows.label.sum())
    return rows.task == "regression" or min(positives, len(rows.label) - positives) >= policy.minimum_events


def losses_of(rows: Labelled) -> Floats:
    """The deciding loss of each row [B]: log loss, or the absolute error."""
    return row_losses(rows.score, rows.label) if rows.task == "classification" else np.abs(rows.score - rows.label)


def base_loss(rows: Labelled) -> float:
    """The mean loss of the answer that knows nothing: the base rate, or a regression's naive answer."""
    if rows.task == "classification":
        return float(entropy(float(rows.label.sum()) / len(rows.label)))
    return float(naive_losses(rows).mean())


def naive_losses(rows: Labelled) -> Floats:
    """Absolute error [B] of the naive answer of a regression; of the labels' median where there is none."""
    median = np.median(rows.label)
    answer = np.full(len(rows.label), median) if rows.naive is None else rows.naive
    return np.abs(np.where(np.isfinite(answer), answer, median) - rows.label)


class _Errors(NamedTuple):
    """Standard errors over days."""

    skill: float
    difference: float
    auc: float


def _errors(rows: Labelled, losses: Floats, at_promotion: Promoted, draws: int, rng: np.random.Generator) -> _Errors:
    """Standard errors from resamples of whole days, of the window's and, where known, of those at promotion.

    The percentiles of resamples of n days are too narrow by sqrt((n - 1) / n) and by Student's t: with 3 days a 95 % bound
    would hold in 80 % of windows. So the resamples give the errors, and t with n - 1 degrees of freedom the bounds.
    """
    if rows.task == "regression":
        return _errors_of_numbers(rows, losses, draws, rng)
    sums, pairs = day_sums(losses, rows.label, rows.day), day_pairs(rows.score, rows.label, rows.day)
    picked = _days_drawn(sums.shape[1], draws, rng)
    now = _deviation(skill_of(picked @ sums.T), sums.shape[1])
    then = 0.0
    if at_promotion.days is not None:
        days = at_promotion.days.shape[1]
        then = _deviation(skill_of(_days_drawn(days, draws, rng) @ at_promotion.days.T), days)
    return _Errors(now, math.hypot(now, then), _deviation(_areas(picked, pairs, sums), sums.shape[1]))


def _errors_of_numbers(rows: Labelled, losses: Floats, draws: int, rng: np.random.Generator) -> _Errors:
    """The same for a regression, whose skill is one less the ratio of its loss to the naive one; it has no AUC."""
    sums = day_sums(losses, naive_losses(rows), rows.day)
    drawn = _days_drawn(sums.shape[1], draws, rng) @ sums.T
    now = _deviation(1 - drawn[:, 0] / drawn[:, 1], sums.shape[1])
    return _Errors(now, now, math.nan)


def _days_drawn(days: int, draws: int, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """How often each day is drawn: [draws, days]."""
    return rng.multinomial(days, np.full(days, 1 / days), size=draws)


def _deviation(drawn: Floats, days: int) -> float:
    return float(np.nanstd(drawn)) * math.sqrt(days / max(days - 1, 1))


def day_sums(losses: Floats, label: Floats, day: npt.NDArray[np.int64]) -> Floats:
    """Loss, positives and rows of each day that has any: [3, days]."""
    _, number = np.unique(day, return_inverse=True)
    return np.stack([np.bincount(number, weights) for weights in (losses, label, np.ones_like(label))])


def skill_of(sums: Floats) -> Floats:
    """Skill of each row of sums (loss, positives, rows) [draws, 3]; NaN where one label only was drawn."""
    loss, positives, rows = sums.T
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(1 - (loss / rows) / entropy(positives / rows))


def day_pairs(score: Floats, label: Floats, day: npt.NDArray[np.int64]) -> Floats:
    """How many pairs (positive of day i, negative of day j) are in the right order, ties counting half: [days, days]."""
    days = np.unique(day)
    negatives = [np.sort(score[(day == which) & (label == 0)]) for which in days]
    found = np.zeros((len(days), len(days)))
    for place, which in enumerate(days):
        positive = score[(day == which) & (label == 1)]
        for other, scores in enumerate(negatives):
            below = np.searchsorted(scores, positive, "left") + np.searchsorted(scores, positive, "right")
            found[place, other] = below.sum() / 2
    return found


def _areas(picked: npt.NDArray[np.int64], pairs: Floats, sums: Floats) -> Floats:
    """The AUC of each resample of days [draws]; NaN where one label only was drawn."""
    positives, negatives = picked @ sums[1], picked @ (sums[2] - sums[1])
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.einsum("di,ij,dj->d", picked, pairs, picked, optimize=True) / (positives * negatives))


def gain(
    old: Floats, new: Floats, day: npt.NDArray[np.int64], draws: int, rng: np.random.Generator
) -> tuple[float, float]:
    """Mean of old - new row losses [B] of two versions on the same rows, and its lower 95 % bound (days resampled)."""
    _, number = np.unique(day, return_inverse=True)
    sums = np.stack([np.bincount(number, old - new), np.bincount(number)])
    picked = rng.multinomial(sums.shape[1], np.full(sums.shape[1], 1 / sums.shape[1]), size=draws)
    total, rows = (picked @ sums.T).T
    return float((old - new).mean()), float(np.quantile(total / rows, LOWER))


def estimate(score: Floats) -> Estimate | None:
    """What quality would be if the scores [B] were calibrated; None without rows. An estimate, never evidence.

    A calibrated score p loses its entropy on average. So a change of the inputs shows, a changed relation does not.
    """
    if not len(score):
        return None
    p = np.clip(score, CLIP, 1 - CLIP)
    loss, base = float(entropy(p).mean()), entropy(float(p.mean()))
    values, place = np.unique(score, return_inverse=True)
    positive, negative = np.bincount(place, p), np.bincount(place, 1 - p)
    right = float((positive * (np.cumsum(negative) - negative / 2)).sum())
    alike = len(values) == 1
    return Estimate(
        rows=len(score),
        positives=float(p.mean()),
        log_loss=loss,
        skill=None if alike else 1 - loss / base,
        auc=None if alike else right / float(positive.sum() * negative.sum()),
    )


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


def auc(score: Floats, label: Floats) -> float | None:
    """Area under the ROC curve by mid-ranks; None when only one label is there."""
    positives = int(label.sum())
    negatives = len(label) - positives
    if not positives or not negatives:
        return None
    _, place, counts = np.unique(score, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[place]
    return float((ranks[label == 1].sum() - positives * (positives + 1) / 2) / (positives * negatives))
