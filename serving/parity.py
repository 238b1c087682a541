"""How far an engine's answers lie from torch's, at every batch size that callers will use."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from serving.contract import ParityPolicy
from serving.engines.onnxruntime import Engine, run_all
from serving.gate import ParityFigures


class ParityRows(NamedTuple):
    """Encoded rows with torch's answers: numeric FP32 [rows, n], categorical INT64 [rows, m], score FP32 [rows]."""

    numeric: np.ndarray
    categorical: np.ndarray
    score: np.ndarray


def read_rows(path: Path) -> ParityRows:
    """The rows of a ``parity.npz``."""
    with np.load(path) as arrays:
        return ParityRows(arrays["numeric"], arrays["categorical"], arrays["score"].reshape(-1))


def compare(engine: Engine, rows: ParityRows, max_batch: int, policy: ParityPolicy) -> tuple[ParityFigures, ...]:
    """The distance at each batch size; rows are repeated to fill the largest batch."""
    return tuple(_at(engine, rows, batch, policy) for batch in sorted({*policy.batches, max_batch}))


def _at(engine: Engine, rows: ParityRows, batch: int, policy: ParityPolicy) -> ParityFigures:
    order = np.arange(max(batch, len(rows.score))) % len(rows.score)
    found = run_all(engine, rows.numeric[order], rows.categorical[order], batch).astype(np.float64)
    wanted = rows.score[order].astype(np.float64)
    absolute = np.abs(found - wanted)
    relative = absolute / np.maximum(np.abs(wanted), policy.relative_floor)
    worst = int(np.argmax(np.where(np.isfinite(absolute), absolute, np.inf)))
    return ParityFigures(
        batch=batch,
        rows=len(rows.score),
        max_absolute=float(absolute.max()),
        max_relative=float(relative.max()),
        not_finite=int((~np.isfinite(found)).sum()),
        worst_row=int(order[worst]),
        worst_found=float(found[worst]),
        worst_wanted=float(wanted[worst]),
    )
