"""ONNX Runtime on the CPU: one thread and no spinning, the same settings as in the served model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime as ort

from serving.engines.interface import SPIN, THREADS, Kind, Sources, named


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
        """See ``Engine``."""
        answer = self._session.run(["score"], named(numeric, categorical, self._inputs))[0]
        return np.asarray(answer).reshape(-1)


def load(path: Path) -> OnnxEngine:
    """Loads ``model.onnx``; ONNX Runtime's own error when the graph is broken."""
    return OnnxEngine(path)


def as_it_is(sources: Sources) -> None:
    """Nothing is built: the graph is what is loaded."""


KINDS = (Kind("onnxruntime", "fp32", "model.onnx", as_it_is, load, {"onnxruntime": ort.__version__}),)
