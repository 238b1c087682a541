"""How far two samples lie apart: Evidently's PSI over the reference's bins. The one module that touches Evidently.

PSI = sum over bins of (p - q) ln(p / q), where p and q are the shares of current and reference. Evidently gets codes, not
raw values: numbers cut at the quantiles of the reference alone (its own equally wide bins of both samples together are
emptied by one outlier), and null as a bin, since it is a value that the model sees. ``psi`` is the same figure for many
pairs of counts at once (a test holds both to 1e-9), which calibration on thousands of blocks needs.
"""

from __future__ import annotations

import itertools
import json
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from artifacts.step import DataFault

Floats = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int64]
Distance: TypeAlias = Callable[[npt.NDArray[Any], npt.NDArray[Any], float], Any]

TINY = 1e-4  # evidently/legacy/calculations/stattests/utils.py, get_binned_data
NULL, RARE = "(null)", "(rare)"
NOTHING = np.array(None, dtype=object)


@dataclass(frozen=True)
class Bins:
    """How a feature's values become codes: 0 .. width - 2 for values, width - 1 for null."""

    kind: Literal["numeric", "categorical"]
    edges: tuple[float, ...] = ()
    categories: tuple[str, ...] = ()

    @property
    def width(self) -> int:
        """The number of codes."""
        return len(self.edges) + 2 if self.kind == "numeric" else len(self.categories) + 1

    def codes(self, values: npt.NDArray[Any]) -> Codes:
        """The code of each value [B]; a category that is not listed raises ValueError (extend the bins first)."""
        missing = nulls(values)
        if self.kind == "numeric":
            found = np.searchsorted(self.edges, np.where(missing, 0.0, values), side="left").astype(np.int64)
        else:
            found = _places(values, missing, self.categories)
        return np.where(missing, self.width - 1, found)

    @property
    def labels(self) -> tuple[str, ...]:
        """What each code is called, numeric bins numbered so that they sort."""
        if self.kind == "categorical":
            return (*self.categories, NULL)
        if not self.edges:
            return ("any", NULL)
        between = [f"{low:.4g} to {high:.4g}" for low, high in itertools.pairwise(self.edges)]
        names = [f"up to {self.edges[0]:.4g}", *between, f"above {self.edges[-1]:.4g}"]
        return (*(f"{place:02d}: {name}" for place, name in enumerate(names)), NULL)

    def extended(self, values: npt.NDArray[Any]) -> Bins:
        """The same bins with every new category of ``values`` added at the end; numeric bins stay as they are."""
        if self.kind == "numeric":
            return self
        known = set(self.categories)
        new = sorted(set(map(str, set(values[~nulls(values)].tolist()))) - known)
        return Bins("categorical", categories=(*self.categories, *new))


def nulls(values: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Which values are null: NaN in numbers, None in text."""
    if values.dtype.kind == "f":
        return np.isnan(values)
    return np.asarray(np.equal(values, NOTHING), dtype=np.bool_)


def _places(values: npt.NDArray[Any], missing: npt.NDArray[np.bool_], categories: Sequence[str]) -> Codes:
    place = {category: code for code, category in enumerate(categories)}
    found = np.array([place.get(value, -1) for value in values.tolist()], dtype=np.int64)
    unknown = np.unique(values[(found < 0) & ~missing].astype(str))
    if len(unknown):
        raise ValueError(f"categories {unknown[:5].tolist()} are not listed; extend the bins first")
    return found


def bins_of(values: npt.NDArray[Any], kind: Literal["numeric", "categorical"], number: int) -> Bins:
    """Bins from a reference: its quantiles (equal ones merged) or its categories, sorted."""
    known = values[~nulls(values)]
    if kind == "categorical":
        return Bins(kind, categories=tuple(sorted(set(map(str, set(known.tolist()))))))
    if not len(known):
        return Bins(kind)
    edges = np.unique(np.quantile(known, np.arange(1, number) / number))
    return Bins(kind, edges=tuple(float(edge) for edge in edges))


def shares(counts: npt.NDArray[Any]) -> Floats:
    """Counts [..., k] as shares of their sum; NaN where nothing was counted."""
    total = counts.sum(axis=-1, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(counts / total, dtype=np.float64)


def pooled(
    current: npt.NDArray[Any], reference: npt.NDArray[Any], rare: float
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Both sides' counts [..., k] with one more bin at the end, into which those below ``rare`` on both sides have moved."""
    current, reference = np.broadcast_arrays(current, reference)
    moved = (shares(current) < rare) & (shares(reference) < rare)
    sides = [
        np.concatenate([np.where(moved, 0, side), np.where(moved, side, 0).sum(axis=-1, keepdims=True)], axis=-1)
        for side in (current, reference)
    ]
    return sides[0], sides[1]


def psi(current: npt.NDArray[Any], reference: npt.NDArray[Any], rare: float = 0.0) -> Floats:
    """Population stability index of counts [..., k] against counts [..., k] -> [...], by Evidently's definition."""
    sides = pooled(current, reference, rare) if rare else np.broadcast_arrays(current, reference)
    p, q = _filled(shares(sides[0])), _filled(shares(sides[1]))
    seen = (sides[0] > 0) | (sides[1] > 0)
    known = (sides[0].sum(axis=-1) > 0) & (sides[1].sum(axis=-1) > 0)
    with np.errstate(invalid="ignore"):
        return np.where(known, np.where(seen, (p - q) * np.log(p / q), 0.0).sum(axis=-1), np.nan)


def _filled(share: Floats) -> Floats:
    """Shares with every 0 replaced as Evidently does: by 0.0001, or where a share is that small, by its millionth."""
    least = np.where(share > 0, share, np.inf).min(axis=-1, keepdims=True)
    filled = np.where(share == 0, np.where(least <= TINY, least / 1e6, TINY), share)
    return np.asarray(filled, dtype=np.float64)


def distance(current: npt.NDArray[Any], reference: npt.NDArray[Any], rare: float = 0.0) -> float:
    """Evidently's own PSI of counts [k] against counts [k]; what a check decides by."""
    os.environ.setdefault("DO_NOT_TRACK", "1")
    import pandas as pd  # noqa: PLC0415  with Evidently 4 s of import, which a window with too few rows need not pay
    from evidently.legacy.calculations.stattests import psi_stat_test  # noqa: PLC0415
    from evidently.legacy.core import ColumnType  # noqa: PLC0415

    sides = pooled(current, reference, rare)
    if not all(side.sum() for side in sides):
        return float("nan")
    rows = [pd.Series(np.repeat(np.arange(len(side)), side)) for side in sides]
    return float(psi_stat_test(rows[1], rows[0], ColumnType.Categorical, None).drift_score)


def day_counts(codes: Codes, days: Codes, width: int) -> npt.NDArray[np.int64]:
    """Counts [days, width] of codes [B] whose day index is ``days`` [B]."""
    number = int(days.max()) + 1
    return np.bincount(days * width + codes, minlength=number * width).reshape(number, width)


def sliding(per_day: npt.NDArray[Any], length: int) -> npt.NDArray[Any]:
    """Sums over each run of ``length`` days: [days, k] -> [days - length + 1, k]."""
    total = np.concatenate([np.zeros_like(per_day[:1]), np.cumsum(per_day, axis=0)])
    return np.asarray(total[length:] - total[:-length])


def finite(score: float, what: str) -> float:
    """The score, or DataFault when it is NaN or infinite: a distance that cannot be computed is never a pass."""
    if not np.isfinite(score):
        raise DataFault([f"{what}: the score is {score}; a check that cannot be computed fails, look at the rows"])
    return float(score)


@dataclass(frozen=True)
class Binned:
    """One column of Evidently's report: counts of both sides per bin, and what the bins are called."""

    labels: tuple[str, ...]
    current: npt.NDArray[Any]
    reference: npt.NDArray[Any]
    threshold: float
    rare: float = 0.0


def report(columns: Mapping[str, Binned], folder: Path) -> dict[str, float]:
    """Writes Evidently's ``report.html`` and ``report.json`` into a folder; returns its PSI per column.

    The columns are the bins that the check decided by, so the report shows the same figures. The method is pinned to PSI
    in every column, since Evidently's default changes with the number of rows.
    """
    os.environ.setdefault("DO_NOT_TRACK", "1")
    import pandas as pd  # noqa: PLC0415
    from evidently import DataDefinition, Dataset, Report  # noqa: PLC0415
    from evidently.presets import DataDriftPreset  # noqa: PLC0415

    pairs = {name: pooled(binned.current, binned.reference, binned.rare) for name, binned in columns.items()}
    definition = DataDefinition(categorical_columns=list(columns))
    sides = [
        Dataset.from_pandas(pd.DataFrame(_filled_up(columns, pairs, side)), data_definition=definition)
        for side in (0, 1)
    ]
    preset = DataDriftPreset(
        columns=list(columns),
        per_column_method=dict.fromkeys(columns, "psi"),
        per_column_threshold={name: binned.threshold for name, binned in columns.items()},
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # constant columns make Evidently's histograms warn; they are findings of ours
        snapshot = Report([preset], include_tests=True).run(sides[0], sides[1])
        snapshot.save_html(str(folder / "report.html"))
        found = snapshot.dict()
    (folder / "report.json").write_text(json.dumps(found, default=_plain, indent=1))
    return {
        metric["config"]["column"]: float(metric["value"])
        for metric in found["metrics"]
        if metric["config"]["type"].endswith("ValueDrift")
    }


def _filled_up(columns: Mapping[str, Binned], pairs: Mapping[str, tuple[Any, Any]], side: int) -> dict[str, Any]:
    """The counts of one side as rows of a table, shorter columns ended by rows without a value, which Evidently leaves out.

    A feature that is held against its own weekdays has fewer rows in the reference than one that is held against all.
    """
    import pandas as pd  # noqa: PLC0415

    codes = {name: np.repeat(np.arange(len(pair[side])), pair[side]) for name, pair in pairs.items()}
    rows = max(map(len, codes.values()))
    return {
        name: pd.Categorical.from_codes(
            np.pad(found, (0, rows - len(found)), constant_values=-1), [*columns[name].labels, RARE]
        )
        for name, found in codes.items()
    }


def _plain(value: Any) -> Any:
    """What Evidently leaves in its dictionary that JSON does not know: numpy numbers and enumerations."""
    return value.value if hasattr(value, "value") else float(value)
