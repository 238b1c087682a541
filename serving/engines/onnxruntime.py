"""ONNX Runtime on the CPU: one thread and no spinning, the same settings as in the served model."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import numpy as np
import onnxruntime as ort

THREADS = 1
SPIN = "0"


class Engine(Protocol):
    """Answers encoded rows."""

    def run(self, numeric: np.ndarray, categorical: np.ndarray) -> np.ndarray:
        """Scores FP32 [batch] of numeric FP32 [batch, n] and categorical INT64 [batch, m]."""


class OnnxEngine:
    """A loaded ONNX graph with the inputs and the output of ``Signature``."""

    def __init__(self, path: Path) -> None:
        options = ort.SessionOptions()
        options.intra_op_num_threads = THREADS
        options.inter_op_num_threads = 1
        options.add_session_config_entry("session.intra_op.allow_spinning", SPIN)
        self._session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        self._inputs = {found.name for found in self._session.get_inputs()}

    def run(self, numeric: np.ndarray, categorical: np.ndarray) -> np.ndarray:
        """See ``Engine``; an input that the graph does not have is left out."""
        tensors = {"numeric": numeric, "categorical": categorical}
        feed = {name: tensor for name, tensor in tensors.items() if name in self._inputs}
        return np.asarray(self._session.run(["score"], feed)[0]).reshape(-1)


def load(path: Path) -> OnnxEngine:
    """Loads ``model.onnx``; ONNX Runtime's own error when the graph is broken."""
    return OnnxEngine(path)


def run_all(engine: Engine, numeric: np.ndarray, categorical: np.ndarray, batch: int) -> np.ndarray:
    """Scores of any number of rows, in batches of at most ``batch``; FP32 [rows]."""
    starts = range(0, len(numeric), batch)
    parts = [engine.run(numeric[start : start + batch], categorical[start : start + batch]) for start in starts]
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.float32)
