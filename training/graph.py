"""Writes the ONNX graph of a network with one of two exporters, and says how a graph differs from its signature.

A graph is one file up to ``ExportSpec.external_above_bytes`` of weights; above it the weights lie beside it, because
protobuf ends at 2 GiB, and the graph names their digest.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from pathlib import Path

import onnx
import torch
from torch import Tensor, nn

from artifacts.refs import file_digest, sha256
from training.contract import ExportSpec, Signature
from training.fit import Fit

MODEL_FILE, DATA_FILE = "model.onnx", "model.onnx.data"
INPUTS, OUTPUT, BATCH = ("numeric", "categorical"), "score", "batch"
INLINE_BYTES = 1024  # shapes and constants stay inside: ONNX's own check cannot follow them outside
TRACED_BATCH = 2  # a dynamic dimension may not be traced with size 0 or 1 (field report 94)


class GraphFault(RuntimeError):
    """An exporter's graph is not the network's; another exporter may do better."""


def not_finite(weights: Mapping[str, Tensor]) -> list[str]:
    """One line for each tensor of a state dict that holds NaN or infinity."""
    counts = {name: int((~torch.isfinite(value)).sum()) for name, value in weights.items() if value.is_floating_point()}
    return [
        f"weights.pt: '{name}' holds {count} values of {weights[name].numel()} that are no finite numbers; train again"
        for name, count in counts.items()
        if count
    ]


def weight_bytes(network: nn.Module) -> int:
    """The size of everything that a state dict holds."""
    return sum(value.numel() * value.element_size() for value in network.state_dict().values())


def write_graph(fit: Fit, spec: ExportSpec, path: Path, exporter: str) -> None:
    """Exports with a free batch dimension and a fixed opset; the digests of the graph's origin are in its metadata."""
    if fit.network.training:
        raise RuntimeError("the network is in training mode; an export would keep its dropout")
    external = weight_bytes(fit.network) > spec.external_above_bytes
    with warnings.catch_warnings():  # two inputs share one free dimension, and torch warns that it needs its name once
        warnings.filterwarnings("ignore", message="# The axis name")
        EXPORTERS[exporter](fit, spec, path, external)
    graph = onnx.load(path)
    (path.parent / DATA_FILE).unlink(missing_ok=True)
    onnx.save_model(graph, path, save_as_external_data=external, location=DATA_FILE, size_threshold=INLINE_BYTES)
    origin = {
        "model": spec.fit.model,
        "training_key": spec.fit.training_key,
        "fit": spec.fit.digest,
        "dataset": spec.fit.dataset.digest,
        "signature": sha256(fit.record.signature.model_dump_json().encode()),
        "exporter": exporter,
    }
    if external:
        origin |= {"weights": file_digest(path.parent / DATA_FILE)}
    graph = onnx.load(path, load_external_data=False)
    onnx.helper.set_model_props(graph, origin)
    onnx.save(graph, path)


def _example(signature: Signature) -> tuple[Tensor, Tensor]:
    return (
        torch.zeros(TRACED_BATCH, len(signature.numeric)),
        torch.zeros(TRACED_BATCH, len(signature.categorical), dtype=torch.int64),
    )


def _dynamo(fit: Fit, spec: ExportSpec, path: Path, external: bool) -> None:  # noqa: FBT001  one of EXPORTERS
    signature = fit.record.signature
    batch = torch.export.Dim(BATCH, min=1, max=signature.max_batch)
    torch.onnx.export(
        fit.network,
        _example(signature),
        path,
        input_names=list(INPUTS),
        output_names=[OUTPUT],
        dynamic_shapes={name: {0: batch} for name in INPUTS},
        opset_version=spec.opset,
        dynamo=True,
        external_data=external,
        verbose=False,
    )


def _torchscript(fit: Fit, spec: ExportSpec, path: Path, external: bool) -> None:  # noqa: ARG001, FBT001  one of EXPORTERS
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns that this exporter is the older one, which is why it comes second
        torch.onnx.export(
            fit.network,
            _example(fit.record.signature),
            path,
            input_names=list(INPUTS),
            output_names=[OUTPUT],
            dynamic_axes={name: {0: BATCH} for name in (*INPUTS, OUTPUT)},
            opset_version=spec.opset,
            dynamo=False,
        )


EXPORTERS: dict[str, Callable[[Fit, ExportSpec, Path, bool], None]] = {"dynamo": _dynamo, "torchscript": _torchscript}


def require_signature(path: Path, signature: Signature, opset: int) -> None:
    """Raises GraphFault when the graph is broken, has a frozen batch, another opset or other tensors than the signature's."""
    try:
        onnx.checker.check_model(str(path), full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise GraphFault(f"ONNX's own check refuses the graph: {str(error).splitlines()[0]}") from error
    graph = onnx.load(path, load_external_data=False)
    found = {each.domain or "ai.onnx": each.version for each in graph.opset_import}
    if found.get("ai.onnx") != opset:
        raise GraphFault(f"the graph has opset {found.get('ai.onnx')}, the spec says {opset}")
    expected = {
        INPUTS[0]: (onnx.TensorProto.FLOAT, len(signature.numeric)),
        INPUTS[1]: (onnx.TensorProto.INT64, len(signature.categorical)),
        OUTPUT: (onnx.TensorProto.FLOAT, 1),
    }
    tensors = (*graph.graph.input, *graph.graph.output)
    for tensor in tensors:
        dims = tensor.type.tensor_type.shape.dim
        if not dims or not dims[0].dim_param:
            size = dims[0].dim_value if dims else "none"
            raise GraphFault(f"'{tensor.name}' has a frozen batch of {size}; its first dimension must be free")
    kinds = {
        t.name: (t.type.tensor_type.elem_type, *(d.dim_value for d in t.type.tensor_type.shape.dim[1:]))
        for t in tensors
    }
    if kinds != expected:
        raise GraphFault(f"the graph has tensors {kinds}, the signature says {expected}")
