"""Paired bootstraps: the same resampled rows for both scorers, exact for ties, seeded. Pure; numpy only.

One draw at a time: memory does not grow with the draws, and the first draws of many are the draws of few. Rows are
counted and ranked in integers, so an AUC comes out the same in whatever order it is summed. No BLAS: its threads wait
for each other on shared cores, and their number would change the last bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from training.measures import Gain

Floats: TypeAlias = npt.NDArray[np.float64]
Counts: TypeAlias = npt.NDArray[np.int64]
Statistic: TypeAlias = Callable[[Counts], float]
"""A figure of a resampled window, from how often each row was drawn [B]."""

INTERVAL = (0.025, 0.975)


def resamples(rows: int, draws: int, seed: int) -> Iterator[Counts]:
    """How often each row was drawn [B], once per draw; each sums to ``rows``."""
    generator = np.random.default_rng(seed)
    for _ in range(draws):
        yield np.bincount(generator.integers(0, rows, rows), minlength=rows)


def mean_of(values: Floats) -> Statistic:
    """The mean of some figure of the rows."""
    return lambda counts: float(np.einsum("i,i->", counts.astype(np.float64), values) / len(values))


def root_of_mean(values: Floats) -> Statistic:
    """The root of such a mean: an RMSE, from squared errors."""
    mean = mean_of(values)
    return lambda counts: float(np.sqrt(mean(counts)))


def auc_of(score: Floats, label: Floats) -> Statistic:
    """The AUC of the rows, ties counting half; NaN where a draw holds one class only."""
    negatives, positives = (rows[np.argsort(score[rows], kind="stable")] for rows in _classes(label))
    below = np.searchsorted(score[negatives], score[positives], "left")
    not_above = np.searchsorted(score[negatives], score[positives], "right")
    summed = np.zeros(len(negatives) + 1, dtype=np.int64)

    def statistic(counts: Counts) -> float:
        np.cumsum(counts.take(negatives), out=summed[1:])
        weight = counts.take(positives)
        pairs = int(weight.sum()) * int(summed[-1])
        if not pairs:
            return float("nan")
        return int((weight * (summed.take(below) + summed.take(not_above))).sum()) / (2 * pairs)

    return statistic


def drawn_statistics(statistics: Sequence[Statistic], rows: int, draws: int, seed: int) -> Floats:
    """The statistics of each draw, [draws, statistics]."""
    return np.array([
        [statistic(counts) for statistic in statistics] for counts in resamples(rows, draws, seed)
    ]).reshape(draws, len(statistics))


def gain_of(mean: float, drawn: Floats) -> Gain:
    """A gain from its value on the window itself and its values [D] on the draws."""
    lower, upper = np.quantile(drawn, INTERVAL)
    return Gain(mean=mean, lower=float(lower), upper=float(upper), standard_error=float(drawn.std(ddof=1)))


def _classes(label: Floats) -> tuple[Counts, Counts]:
    return np.flatnonzero(label <= 0), np.flatnonzero(label > 0)
