"""ONNX Runtime with int8 weights: dynamic (scales from each batch) and static (scales from training rows)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
from onnxruntime.quantization import CalibrationDataReader, quantize_dynamic, quantize_static

from serving.engines.interface import Kind, Sources, Unsupported, named
from serving.engines.onnxruntime import load

LAYERS = ["MatMul", "Gemm"]  # only layers with weights: whatever prepares nulls and codes stays exact
CALIBRATION_BATCH = 64
DYNAMIC_FILE, STATIC_FILE = "model-int8-dynamic.onnx", "model-int8-static.onnx"


class Rows(CalibrationDataReader):
    """Calibration rows, batch by batch."""

    def __init__(self, sources: Sources) -> None:
        inputs = {found.name for found in ort.InferenceSession(str(sources.model)).get_inputs()}
        self._batches: Iterator[dict[str, np.ndarray]] = (
            named(
                sources.numeric[at : at + CALIBRATION_BATCH], sources.categorical[at : at + CALIBRATION_BATCH], inputs
            )
            for at in range(0, len(sources.numeric), CALIBRATION_BATCH)
        )

    def get_next(self) -> dict[str, np.ndarray] | None:
        """The next batch, or None at the end."""
        return next(self._batches, None)


def dynamic(sources: Sources) -> None:
    """Weights in int8; the scale of each layer's input is found anew for each batch."""
    target = sources.model.with_name(DYNAMIC_FILE)
    quantize_dynamic(sources.model, target, op_types_to_quantize=LAYERS, per_channel=True)
    _require_quantised(sources.model, target)


def static(sources: Sources) -> None:
    """Weights and layer inputs in int8, with the ranges that the calibration rows show."""
    if not len(sources.numeric):
        raise Unsupported("static int8 needs calibration rows, there are none")
    target = sources.model.with_name(STATIC_FILE)
    quantize_static(sources.model, target, Rows(sources), op_types_to_quantize=LAYERS, per_channel=True)
    _require_quantised(sources.model, target)


def _require_quantised(source: Path, target: Path) -> None:
    """A graph whose layers cannot be quantised comes back unchanged: that is no int8 engine."""
    before, after = (len(onnx.load(path, load_external_data=False).graph.node) for path in (source, target))
    if before == after:
        raise Unsupported(f"the graph has no layer ({', '.join(LAYERS)}) that could be quantised")


VERSIONS = {"onnxruntime": ort.__version__}
KINDS = (
    Kind("onnxruntime-int8-dynamic", "int8", DYNAMIC_FILE, dynamic, load, VERSIONS),
    Kind("onnxruntime-int8-static", "int8", STATIC_FILE, static, load, VERSIONS),
)
