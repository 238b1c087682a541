"""The engines by name. A module is imported when its engine is asked for, since each owns a heavy library."""

from __future__ import annotations

import importlib

from serving.engine_contract import EngineName
from serving.engines.interface import Kind, Unsupported

MODULES: dict[EngineName, str] = {
    "onnxruntime": "onnxruntime",
    "openvino": "openvino",
    "onnxruntime-int8-dynamic": "int8",
    "onnxruntime-int8-static": "int8",
    "tensorrt": "tensorrt",
}


def kind_of(name: EngineName) -> Kind:
    """An engine; Unsupported where its library is not installed."""
    try:
        module = importlib.import_module(f"serving.engines.{MODULES[name]}")
    except ImportError as error:
        raise Unsupported(f"'{name}' needs a package that is not installed here: {error}") from error
    return next(kind for kind in module.KINDS if kind.name == name)
