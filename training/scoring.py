"""How well probabilities fit labels: log loss, AUC, Brier, calibration, and paired bootstraps. Pure; numpy only.

Shapes: scores float64 [B] in [0, 1], labels [B] of 0 and 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from training.contract import Gain, Scores

Floats: TypeAlias = npt.NDArray[np.float64]

SCORE_FLOOR = 1e-7  # the smallest step of float32 near 1: an answer of exactly 0 or 1 costs 16, not infinity
BINS = 10
CELLS_AT_ONCE = 4_000_000  # draws x rows held in memory
INTERVAL = (0.025, 0.975)
CURVE_POINTS = 200


def row_losses(score: Floats, label: Floats) -> Floats:
    """The log loss of each row [B], in nats."""
    kept = np.clip(score, SCORE_FLOOR, 1 - SCORE_FLOOR)
    return -np.where(label > 0, np.log(kept), np.log1p(-kept))


def auc(score: Floats, label: Floats) -> float:
    """Area under the ROC curve: the share of (positive, negative) pairs in the right order, ties counting half."""
    return float(_weighted_auc(*_ordered(score, label), np.ones((1, len(score))))[0])


def calibration_bins(score: Floats, label: Floats) -> list[tuple[float, float, int]]:
    """(mean score, share of positives, rows) of ten bins of equal mass, lowest scores first."""
    order = np.argsort(score, kind="stable")
    return [
        (float(score[part].mean()), float(label[part].mean()), len(part))
        for part in np.array_split(order, BINS)
        if len(part)
    ]


def scores_of(score: Floats, label: Floats) -> Scores:
    """All figures of one scorer."""
    bins = calibration_bins(score, label)
    return Scores(
        log_loss=float(row_losses(score, label).mean()),
        auc=auc(score, label),
        brier=float(np.mean((score - label) ** 2)),
        ece=sum(rows * abs(mean - share) for mean, share, rows in bins) / len(score),
    )


def paired_gains(candidate: Floats, champion: Floats, label: Floats, draws: int, seed: int) -> tuple[Gain, Gain]:
    """Gains in log loss and in AUC over the same resampled rows, positive when the candidate is better."""
    gain_B = row_losses(champion, label) - row_losses(candidate, label)
    orders = [_ordered(score, label) for score in (candidate, champion)]
    losses, areas = [], []
    for weight_DB in _resamples(len(label), draws, seed):
        losses.append(weight_DB @ gain_B / len(label))
        better, worse = (_weighted_auc(*order, weight_DB) for order in orders)
        areas.append(better - worse)
    return (
        _gain(float(gain_B.mean()), np.concatenate(losses)),
        _gain(auc(candidate, label) - auc(champion, label), np.concatenate(areas)),
    )


def roc_points(score: Floats, label: Floats) -> list[tuple[float, float]]:
    """(false positive rate, true positive rate), thinned for drawing."""
    order = np.argsort(-score, kind="stable")
    positive = np.concatenate([[0.0], np.cumsum(label[order])])
    negative = np.arange(len(label) + 1) - positive
    shown = np.unique(np.linspace(0, len(label), CURVE_POINTS).astype(int))
    return [(float(negative[at] / negative[-1]), float(positive[at] / positive[-1])) for at in shown]


def _gain(mean: float, drawn: Floats) -> Gain:
    lower, upper = np.quantile(drawn, INTERVAL)
    return Gain(mean=mean, lower=float(lower), upper=float(upper), standard_error=float(drawn.std(ddof=1)))


def _resamples(rows: int, draws: int, seed: int) -> Iterator[Floats]:
    """How often each row was drawn, [some draws, B] at a time; rows in each draw sum to B."""
    generator = np.random.default_rng(seed)
    at_once = max(1, CELLS_AT_ONCE // rows)
    for begin in range(0, draws, at_once):
        some = min(at_once, draws - begin)
        drawn = generator.integers(0, rows, (some, rows)) + np.arange(some)[:, None] * rows
        yield np.bincount(drawn.ravel(), minlength=some * rows).reshape(some, rows).astype(np.float64)


def _ordered(score: Floats, label: Floats) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], Floats]:
    """Rows by ascending score, where each group of equal scores begins, and the labels in that order."""
    order = np.argsort(score, kind="stable")
    ascending = score[order]
    begins = np.flatnonzero(np.concatenate([[True], ascending[1:] != ascending[:-1]]))
    return order, begins, label[order]


def _weighted_auc(
    order: npt.NDArray[np.int64], begins: npt.NDArray[np.int64], label_B: Floats, weight_DB: Floats
) -> Floats:
    """The AUC of each weighting of the rows, [D]; NaN where a draw holds one class only."""
    ordered_DB = weight_DB[:, order]
    positive_DG = np.add.reduceat(ordered_DB * label_B, begins, axis=1)
    negative_DG = np.add.reduceat(ordered_DB * (1 - label_B), begins, axis=1)
    below_DG = np.cumsum(negative_DG, axis=1) - negative_DG
    pairs_D = positive_DG.sum(axis=1) * negative_DG.sum(axis=1)
    right_D = (positive_DG * (below_DG + 0.5 * negative_DG)).sum(axis=1)
    return np.divide(right_D, pairs_D, out=np.full_like(right_D, np.nan), where=pairs_D > 0)
