"""What the model would lose without each feature: the deciding loss on the window with that column shuffled. Pure.

A categorical column is shuffled as the one column that it is. Features that say the same share their importance, or
hide each other: it tells what this model uses, not what the world is made of.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from training.contract import Columns
from training.data import Encoded
from training.measures import Task
from training.scoring import Floats, row_losses

Answer: TypeAlias = Callable[[npt.NDArray[np.float32], npt.NDArray[np.int64]], npt.NDArray[np.float32]]
"""Answers float32 [B, 1] of encoded rows."""

IMPORTANCE_STREAM = 7  # keeps its random numbers apart from those of other uses of the same seed


def increases(
    answer: Answer, rows: Encoded, columns: Columns, task: Task, *, sample: int, seed: int
) -> dict[str, tuple[float, float]]:
    """Feature -> (mean increase of the deciding loss, its standard error) over ``sample`` rows, drawn once.

    The shuffle of a feature depends on the seed and its name alone, not on which other features there are.
    """
    chosen = np.random.default_rng((IMPORTANCE_STREAM, seed)).permutation(len(rows))[:sample]
    numeric, categorical, label = rows.numeric[chosen], rows.categorical[chosen], rows.label[chosen].astype(np.float64)

    def losses() -> Floats:
        return row_losses(answer(numeric, categorical)[:, 0].astype(np.float64), label, task)

    whole = losses()
    found = {}
    for table, names in ((numeric, columns.numeric), (categorical, columns.categorical)):
        for place, name in enumerate(names):
            kept = table[:, place].copy()
            shuffle = np.random.default_rng((IMPORTANCE_STREAM, seed, zlib.crc32(name.encode())))
            table[:, place] = shuffle.permutation(kept)
            difference = losses() - whole
            table[:, place] = kept
            found[name] = (float(difference.mean()), float(difference.std() / np.sqrt(len(difference))))
    return found


def shares(found: Mapping[str, float]) -> dict[str, float]:
    """Each feature's share of all importance, summing to 1: what hurts nobody weighs nothing, or all equally if none does."""
    positive = {name: max(value, 0.0) for name, value in found.items()}
    total = sum(positive.values())
    return {name: value / total if total > 0 else 1 / len(positive) for name, value in positive.items()}
