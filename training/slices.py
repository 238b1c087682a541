"""A window cut into slices, and how candidate, champion and constant answer do in each. Pure; numpy only.

Intervals are normal, from the standard error of the paired differences of a slice's own rows: from 385 rows on, where
slices are judged (decisions.md 5), they are those of a bootstrap.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from training.bootstrap import auc_of
from training.encoding import Values, numbers, texts
from training.measures import GUARD, NO_VALUE, Dimension, Gain, Slice, Task
from training.scoring import Floats, errors_of, row_losses

Known: TypeAlias = Callable[[str, str], bool]
"""Whether the champion's training rows had this value in this column."""

HALF_WIDTH = 1.959964  # of a 95 % normal interval, in standard errors


@dataclass(frozen=True)
class Answers:
    """Answers [B] of those who are compared in each slice, and the labels [B]."""

    task: Task
    label: Floats
    candidate: Floats
    base: Floats
    champion: Floats | None = None


def slices_of(
    columns: Mapping[str, Values], dimensions: Sequence[Dimension], found: Answers, known: Known
) -> tuple[Slice, ...]:
    """Every slice of every dimension, the dimensions as declared and the values sorted; empty ones are left out."""
    losses = {
        name: row_losses(answer, found.label, found.task)
        for name, answer in (("candidate", found.candidate), ("base", found.base), ("champion", found.champion))
        if answer is not None
    }
    return tuple(
        _slice(dimension, value, rows, found, losses, known)
        for dimension in dimensions
        for value, rows in _members(columns[dimension.column], dimension)
    )


def _members(values: Values, dimension: Dimension) -> list[tuple[str, npt.NDArray[np.int64]]]:
    """(value, rows) of each slice that has rows."""
    if dimension.edges:
        number = numbers(values, dimension.column)
        names = np.array([*dimension.buckets(), NO_VALUE], dtype=object)
        place = np.where(np.isnan(number), len(names) - 1, np.searchsorted(dimension.edges, number, "right"))
    else:
        said = np.array([NO_VALUE if text is None else text for text in texts(values)], dtype=object)
        names, place = np.unique(said, return_inverse=True)
    return [(str(name), rows) for at, name in enumerate(names) if len(rows := np.flatnonzero(place == at))]


def _slice(
    dimension: Dimension,
    value: str,
    rows: npt.NDArray[np.int64],
    found: Answers,
    losses: Mapping[str, Floats],
    known: Known,
) -> Slice:
    label, candidate = found.label[rows], found.candidate[rows]
    loss = {name: values[rows] for name, values in losses.items()}
    off = candidate - label
    return Slice(
        dimension=dimension.column,
        value=value,
        group=dimension.group,
        rows=len(rows),
        positives=int(label.sum()) if found.task == "classification" else 0,
        label_mean=float(label.mean()),
        deciding=float(loss["candidate"].mean()),
        guard=guard_of(candidate, label, found.task),
        bias=float(off.mean()),
        bias_error=_error(off),
        gain_over_base=gain_of_rows(loss["base"] - loss["candidate"]),
        gain=gain_of_rows(loss["champion"] - loss["candidate"]) if "champion" in loss else None,
        known=(bool(dimension.edges) or known(dimension.column, value)) if "champion" in loss else None,
    )


def guard_of(answer: Floats, label: Floats, task: Task) -> float | None:
    """The guard of some rows; None for the AUC of one class."""
    if task == "regression":
        return float(getattr(errors_of(answer, label), GUARD[task].field))
    area = auc_of(answer, label)(np.ones(len(label), dtype=np.int64))
    return None if np.isnan(area) else area


def gain_of_rows(difference: Floats) -> Gain | None:
    """The mean of some paired differences with its normal interval; None for a single row."""
    error, mean = _error(difference), float(difference.mean())
    if error is None:
        return None
    return Gain(mean=mean, lower=mean - HALF_WIDTH * error, upper=mean + HALF_WIDTH * error, standard_error=error)


def _error(values: Floats) -> float | None:
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else None
