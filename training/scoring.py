"""How well answers fit labels: probabilities, or a regression's numbers. Pure; numpy only.

Shapes: answers float64 [B] (in [0, 1] for probabilities), labels [B] (0 and 1 there).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from training.bootstrap import auc_of, drawn_statistics, gain_of, mean_of, root_of_mean
from training.measures import Errors, Gain, Measured, Scores, Task

Floats: TypeAlias = npt.NDArray[np.float64]
Point: TypeAlias = tuple[float, float]

SCORE_FLOOR = 1e-7  # the smallest step of float32 near 1: an answer of exactly 0 or 1 costs 16, not infinity
BINS = 10
CURVE_POINTS = 200


def row_losses(answer: Floats, label: Floats, task: Task = "classification") -> Floats:
    """The deciding loss of each row [B]: log loss in nats, or the absolute error."""
    if task == "regression":
        return np.abs(answer - label)
    kept = np.clip(answer, SCORE_FLOOR, 1 - SCORE_FLOOR)
    return -np.where(label > 0, np.log(kept), np.log1p(-kept))


def measured(answer: Floats, label: Floats, task: Task) -> Measured:
    """All figures of one scorer."""
    return scores_of(answer, label) if task == "classification" else errors_of(answer, label)


def scores_of(score: Floats, label: Floats) -> Scores:
    """All figures of one scorer of probabilities."""
    bins = calibration_bins(score, label)
    return Scores(
        log_loss=float(row_losses(score, label).mean()),
        auc=auc(score, label),
        pr_auc=average_precision(score, label),
        brier=float(np.mean((score - label) ** 2)),
        ece=sum(rows * abs(mean - share) for mean, share, rows in bins) / len(score),
    )


def errors_of(answer: Floats, label: Floats) -> Errors:
    """All figures of one regression; R2 is NaN where all labels are equal."""
    off = answer - label
    around = float(np.mean((label - label.mean()) ** 2))
    return Errors(
        mae=float(np.abs(off).mean()),
        rmse=float(np.sqrt(np.mean(off**2))),
        r2=1 - float(np.mean(off**2)) / around if around else float("nan"),
        bias=float(off.mean()),
    )


def auc(score: Floats, label: Floats) -> float:
    """Area under the ROC curve: the share of (positive, negative) pairs in the right order, ties counting half."""
    return auc_of(score, label)(np.ones(len(label), dtype=np.int64))


def average_precision(score: Floats, label: Floats) -> float:
    """Area under the precision-recall curve, in steps: the mean precision at the positives, ties flagged together."""
    flagged, found = _flagged(score, label)
    if not found[-1]:
        return float("nan")
    return float((np.diff(found, prepend=0.0) * found / flagged).sum() / found[-1])


def calibration_bins(score: Floats, label: Floats) -> list[tuple[float, float, int]]:
    """(mean answer, mean label, rows) of ten bins of equal mass, lowest answers first."""
    order = np.argsort(score, kind="stable")
    return [
        (float(score[part].mean()), float(label[part].mean()), len(part))
        for part in np.array_split(order, BINS)
        if len(part)
    ]


def paired_gains(
    candidate: Floats, champion: Floats, label: Floats, draws: int, seed: int, task: Task = "classification"
) -> tuple[Gain, Gain]:
    """Gains in the deciding figure and in the guard over the same resampled rows, positive when the candidate is better."""
    decides = mean_of(row_losses(champion, label, task) - row_losses(candidate, label, task))
    if task == "classification":
        more, less = auc_of(candidate, label), auc_of(champion, label)
    else:
        more, less = root_of_mean((champion - label) ** 2), root_of_mean((candidate - label) ** 2)
    drawn = drawn_statistics((decides, more, less), len(label), draws, seed)
    once = np.ones(len(label), dtype=np.int64)
    return gain_of(decides(once), drawn[:, 0]), gain_of(more(once) - less(once), drawn[:, 1] - drawn[:, 2])


def at_threshold(score: Floats, label: Floats, threshold: float) -> dict[str, float | int | None]:
    """What flagging every row at ``threshold`` or above would mean; a share of nothing is None."""
    flagged = score >= threshold
    right, all_flagged, positives = float(label[flagged].sum()), int(flagged.sum()), float(label.sum())
    precision = right / all_flagged if all_flagged else None
    recall = right / positives if positives else None
    return {
        "threshold": threshold,
        "flagged": all_flagged,
        "precision": precision,
        "recall": recall,
        "f1": 2 * right / (all_flagged + positives) if all_flagged + positives else None,
    }


def base_rate_threshold(score: Floats, label: Floats) -> float:
    """The answer above which as many rows lie as there are positives."""
    return float(np.quantile(score, 1 - label.mean()))


def roc_points(score: Floats, label: Floats) -> list[Point]:
    """(false positive rate, true positive rate), thinned for drawing."""
    flagged, found = _flagged(score, label)
    missed = flagged - found
    return _thinned([(0.0, 0.0), *zip((missed / missed[-1]).tolist(), (found / found[-1]).tolist(), strict=True)])


def pr_points(score: Floats, label: Floats) -> list[Point]:
    """(recall, precision), thinned for drawing."""
    flagged, found = _flagged(score, label)
    return _thinned(list(zip((found / found[-1]).tolist(), (found / flagged).tolist(), strict=True)))


def _flagged(score: Floats, label: Floats) -> tuple[Floats, Floats]:
    """How many rows, and how many positives, lie at or above each distinct answer, highest first."""
    order = np.argsort(-score, kind="stable")
    last_of_tie = np.flatnonzero(np.diff(score[order], append=np.nan) != 0)
    return (last_of_tie + 1).astype(np.float64), np.cumsum(label[order])[last_of_tie]


def _thinned(points: Sequence[Point]) -> list[Point]:
    shown = np.unique(np.linspace(0, len(points) - 1, CURVE_POINTS).astype(int))
    return [points[at] for at in shown]
