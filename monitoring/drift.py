"""How far two samples lie apart: our PSI, vectorised over blocks, and Evidently's report. The one module that touches Evidently.

PSI = sum over bins of (p - q) ln(p / q), where p and q are the shares of current and reference. A null is a bin of its
own, since it is a value that the model sees. Evidently's own PSI differs by definition in one place: it cuts numeric
columns into equally wide bins of both samples together (Sturges), we cut at the quantiles of the reference alone, so
that no outlier empties the bins. On categories, and on numbers with at most 20 values, both agree up to pooling.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from artifacts.step import DataFault

Floats = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int64]


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

    def extended(self, values: npt.NDArray[Any]) -> Bins:
        """The same bins with every new category of ``values`` added at the end; numeric bins stay as they are."""
        if self.kind == "numeric":
            return self
        known = set(self.categories)
        new = sorted({str(value) for value in values[~nulls(values)]} - known)
        return Bins("categorical", categories=(*self.categories, *new))


def nulls(values: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Which values are null: NaN in numbers, None in text."""
    if values.dtype.kind == "f":
        return np.isnan(values)
    return np.fromiter((value is None for value in values), dtype=bool, count=len(values))


def _places(values: npt.NDArray[Any], missing: npt.NDArray[np.bool_], categories: Sequence[str]) -> Codes:
    place = {category: code for code, category in enumerate(categories)}
    found = np.fromiter((-1 if value is None else place.get(value, -1) for value in values), np.int64, len(values))
    unknown = np.unique(values[(found < 0) & ~missing].astype(str))
    if len(unknown):
        raise ValueError(f"categories {unknown[:5].tolist()} are not listed; extend the bins first")
    return found


def bins_of(values: npt.NDArray[Any], kind: Literal["numeric", "categorical"], number: int) -> Bins:
    """Bins from a reference: its quantiles (equal ones merged) or its categories, sorted."""
    known = values[~nulls(values)]
    if kind == "categorical":
        return Bins(kind, categories=tuple(sorted({str(value) for value in known})))
    if not len(known):
        return Bins(kind)
    edges = np.unique(np.quantile(known, np.arange(1, number) / number))
    return Bins(kind, edges=tuple(float(edge) for edge in edges))


def shares(counts: npt.NDArray[Any]) -> Floats:
    """Counts [..., k] as shares of their sum; NaN where nothing was counted."""
    total = counts.sum(axis=-1, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(counts / total, dtype=np.float64)


def psi(current: npt.NDArray[Any], reference: npt.NDArray[Any], floor: float, rare: float = 0.0) -> Floats:
    """Population stability index of counts [..., k] against counts [..., k] -> [...].

    Bins whose share is below ``rare`` on both sides are pooled into one. An empty bin counts as ``floor``.
    """
    p, q = np.broadcast_arrays(shares(current), shares(reference))
    pooled = (p < rare) & (q < rare)
    parts = np.where(pooled, 0.0, _terms(p, q, floor)).sum(axis=-1)
    p_rest, q_rest = (np.where(pooled, side, 0.0).sum(axis=-1) for side in (p, q))
    return np.asarray(parts + np.where(pooled.any(axis=-1), _terms(p_rest, q_rest, floor), 0.0))


def _terms(p: Floats, q: Floats, floor: float) -> Floats:
    """The summand of each bin; a bin that is empty on both sides adds nothing."""
    p, q = np.maximum(p, floor), np.maximum(q, floor)
    return np.asarray((p - q) * np.log(p / q))


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
class Sample:
    """One side of Evidently's report: columns of equal length."""

    numeric: Mapping[str, npt.NDArray[Any]]
    categorical: Mapping[str, npt.NDArray[Any]]


def report(current: Sample, reference: Sample, thresholds: Mapping[str, float], folder: Path) -> dict[str, float]:
    """Writes Evidently's ``report.html`` and ``report.json`` into a folder; returns its PSI per column.

    Both sides must have the columns of ``thresholds`` with at least one value each. The method is pinned to PSI in
    every column, since Evidently's default changes with the number of rows.
    """
    os.environ.setdefault("DO_NOT_TRACK", "1")
    import pandas as pd  # noqa: PLC0415  with Evidently 4 s of import, which a window with too few rows need not pay
    from evidently import DataDefinition, Dataset, Report  # noqa: PLC0415
    from evidently.presets import DataDriftPreset  # noqa: PLC0415

    numeric = [name for name in thresholds if name in reference.numeric]
    categorical = [name for name in thresholds if name in reference.categorical]
    definition = DataDefinition(numerical_columns=numeric, categorical_columns=categorical)
    sides = [
        Dataset.from_pandas(
            pd.DataFrame({
                **{name: side.numeric[name] for name in numeric},
                **{name: side.categorical[name] for name in categorical},
            }),
            data_definition=definition,
        )
        for side in (current, reference)
    ]
    preset = DataDriftPreset(
        columns=[*numeric, *categorical],
        per_column_method=dict.fromkeys(thresholds, "psi"),
        per_column_threshold=dict(thresholds),
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


def _plain(value: Any) -> Any:
    """What Evidently leaves in its dictionary that JSON does not know: numpy numbers and enumerations."""
    return value.value if hasattr(value, "value") else float(value)
