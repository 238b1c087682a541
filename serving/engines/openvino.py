"""OpenVINO on the CPU: one thread, one stream, fp32 (its default would be bfloat16 where the CPU has it)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import openvino

from serving.engines.interface import THREADS, Kind, Sources, Unsupported, named

SETTINGS = {
    "INFERENCE_NUM_THREADS": THREADS,
    "NUM_STREAMS": 1,
    "PERFORMANCE_HINT": "LATENCY",
    "INFERENCE_PRECISION_HINT": "f32",
}


class OpenVinoEngine:
    """A compiled ONNX graph with the inputs and the output of ``Signature``."""

    def __init__(self, path: Path) -> None:
        core = openvino.Core()
        if "CPU" not in core.available_devices:
            raise Unsupported(f"OpenVINO sees no CPU device here (it sees {core.available_devices})")
        try:
            compiled = core.compile_model(core.read_model(path), "CPU", SETTINGS)
        except RuntimeError as error:  # OpenVINO's one error: a broken file, or an operator that it does not have
            raise Unsupported(f"OpenVINO cannot compile {path.name}: {_first_line(error)}") from error
        self._request = compiled.create_infer_request()
        self._inputs = {name for found in compiled.inputs for name in found.names}

    def run(self, numeric: np.ndarray, categorical: np.ndarray) -> np.ndarray:
        """See ``Engine``."""
        self._request.infer(named(numeric, categorical, self._inputs), share_inputs=True)
        return np.array(self._request.get_output_tensor(0).data).reshape(-1)


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__


def load(path: Path) -> OpenVinoEngine:
    """Loads ``model.onnx``; Unsupported when OpenVINO cannot compile it."""
    return OpenVinoEngine(path)


def build(sources: Sources) -> None:
    """Nothing is kept: OpenVINO compiles the graph at load, in about half a second; whether it can is known here."""
    load(sources.model)


KINDS = (Kind("openvino", "fp32", "model.onnx", build, load, {"openvino": openvino.__version__.partition("-")[0]}),)
