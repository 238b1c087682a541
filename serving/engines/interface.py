"""The one interface of every engine: it is built beside a package's graph, loaded from files, and answers encoded rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np

from artifacts.refs import Digest
from serving.engine_contract import EngineName, Precision

THREADS = 1
SPIN = "0"


class Unsupported(RuntimeError):
    """An engine cannot be built or loaded on this machine, or not for this graph; the message says why."""


class Engine(Protocol):
    """Answers encoded rows."""

    def run(self, numeric: np.ndarray, categorical: np.ndarray) -> np.ndarray:
        """Scores FP32 [batch] of numeric FP32 [batch, n] and categorical INT64 [batch, m]."""


@dataclass(frozen=True)
class Sources:
    """What engines are built from: the graph, and encoded training rows for those that calibrate."""

    model: Path
    numeric: np.ndarray
    categorical: np.ndarray
    max_batch: int


@dataclass(frozen=True)
class Kind:
    """One engine: ``build`` makes its file in the graph's folder, ``load`` opens that file.

    Both raise Unsupported where the machine or the graph is not for it.
    """

    name: EngineName
    precision: Precision
    file: str
    build: Callable[[Sources], None]
    load: Callable[[Path], Engine]
    versions: Mapping[str, str] = field(default_factory=dict)
    key: Callable[[Path], Digest] | None = None


def named(numeric: np.ndarray, categorical: np.ndarray, inputs: set[str]) -> dict[str, np.ndarray]:
    """The tensors that a graph takes; one that it does not have is left out."""
    tensors = {"numeric": numeric, "categorical": categorical}
    return {name: tensor for name, tensor in tensors.items() if name in inputs}


def run_all(engine: Engine, numeric: np.ndarray, categorical: np.ndarray, batch: int) -> np.ndarray:
    """Scores of any number of rows, in batches of at most ``batch``; FP32 [rows]."""
    starts = range(0, len(numeric), batch)
    parts = [engine.run(numeric[start : start + batch], categorical[start : start + batch]) for start in starts]
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.float32)
