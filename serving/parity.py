"""How far an engine's answers lie from torch's, at every batch size that callers will use."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from serving.engine_contract import ParityPolicy
from serving.engines.interface import Engine, run_all
from serving.gate_parity import ParityFigures

Floats = npt.NDArray[np.float64]


class ParityRows(NamedTuple):
    """Encoded rows with torch's answers, real rows first: numeric FP32 [rows, n], categorical INT64 [rows, m], score FP32 [rows]."""

    numeric: np.ndarray
    categorical: np.ndarray
    score: np.ndarray
    real: int


def read_rows(path: Path) -> ParityRows:
    """The rows of a ``parity.npz``."""
    with np.load(path) as arrays:
        score = arrays["score"].reshape(-1)
        return ParityRows(arrays["numeric"], arrays["categorical"], score, int(arrays["real"]))


def compare(engine: Engine, rows: ParityRows, max_batch: int, policy: ParityPolicy) -> tuple[ParityFigures, ...]:
    """The distance at each batch size; rows are repeated to fill the largest batch."""
    answers = {batch: _answers(engine, rows, batch) for batch in sorted({*policy.batches, max_batch})}
    alone = next(iter(answers.values()))  # the smallest batch: a row and its nearest neighbours
    return tuple(_at(batch, found, alone, rows, policy) for batch, found in answers.items())


def _answers(engine: Engine, rows: ParityRows, batch: int) -> Floats:
    """One answer per row, [rows]; the last batch is filled with the first rows."""
    order = np.arange(-(-len(rows.score) // batch) * batch) % len(rows.score)
    return run_all(engine, rows.numeric[order], rows.categorical[order], batch).astype(np.float64)[: len(rows.score)]


def _at(batch: int, found: Floats, alone: Floats, rows: ParityRows, policy: ParityPolicy) -> ParityFigures:
    wanted = rows.score.astype(np.float64)
    scale = max(1.0, float(np.abs(wanted).max(initial=0.0)))
    distance = np.abs(found - wanted)
    # Probabilities are exact near 0 too; a regression's answers are sums, as exact as their largest.
    floor = policy.relative_floor if scale == 1.0 else scale
    relative = distance / np.maximum(np.abs(wanted), floor)
    worst = int(np.argmax(np.where(np.isfinite(distance), distance, np.inf)))
    middle = float(np.median(wanted))
    with np.errstate(invalid="ignore"):  # infinity less infinity is NaN, which no limit lets pass
        spread = float(np.abs(found - alone).max()) / scale
    return ParityFigures(
        batch=batch,
        rows=rows.real,
        edge_rows=len(wanted) - rows.real,
        max_absolute=float(distance.max()) / scale,
        max_relative=float(relative.max()),
        not_finite=int((~np.isfinite(found)).sum()),
        worst_row=worst,
        worst_found=float(found[worst]),
        worst_wanted=float(wanted[worst]),
        spread=spread,
        cosine=_cosine(found, wanted),
        agreement=float(np.mean((found > middle) == (wanted > middle))),
    )


def _cosine(found: Floats, wanted: Floats) -> float:
    if not np.isfinite(found).all():
        return float("nan")
    return float(np.dot(found, wanted) / max(float(np.linalg.norm(found) * np.linalg.norm(wanted)), 1e-30))
