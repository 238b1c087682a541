"""``config.pbtxt`` of a Triton model, rendered from what the ONNX graph itself says of its tensors. Pure.

One spec gives the configuration of the embedded server (Python backend, the engine in process) and of a production server
(Triton's own backends, on CPU or GPU).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Literal, TypeAlias

from pydantic import BaseModel, Field

from artifacts.refs import Digest
from serving.engine_contract import EngineName

Flavour: TypeAlias = Literal["embedded", "cpu", "gpu"]
"""The embedded server, or a production server with Triton's own backends on that hardware."""

VERSION = 1
"""Triton's version number inside a folder; ours is in the folder's name, which is never used twice."""

TRITON_TYPES = {"float32": "TYPE_FP32", "float64": "TYPE_FP64", "int64": "TYPE_INT64", "int32": "TYPE_INT32"}


class TensorDescription(BaseModel, frozen=True, extra="forbid"):
    """One input or output of a graph; ``None`` stands for a free dimension."""

    name: str
    dtype: str
    dims: tuple[int | None, ...]


class GraphDescription(BaseModel, frozen=True, extra="forbid"):
    """What a graph takes and gives."""

    inputs: tuple[TensorDescription, ...] = Field(min_length=1)
    outputs: tuple[TensorDescription, ...] = Field(min_length=1)

    @property
    def batches(self) -> bool:
        """Whether every tensor has a free first dimension, which is what Triton's batching needs."""
        return all(tensor.dims and tensor.dims[0] is None for tensor in (*self.inputs, *self.outputs))


class Batching(BaseModel, frozen=True, extra="forbid"):
    """How requests may be put together."""

    max_batch: int = Field(gt=0)
    preferred: tuple[int, ...] = Field(min_length=1)
    queue_delay_microseconds: int = Field(ge=0)


class ModelSpec(BaseModel, frozen=True, extra="forbid"):
    """Everything that a configuration is rendered from."""

    name: str
    graph: GraphDescription
    batching: Batching
    engine: EngineName
    files: dict[str, Digest] = Field(min_length=1, description="The engine's files in the version's folder.")
    checksums: dict[str, str] = Field(
        description="MD5 of the same files: what Triton's own checksum agent can compare before a native backend loads."
    )
    main: str = Field(description="The file that is loaded.")
    onnx_digest: Digest
    package_digest: Digest
    instances: int = Field(default=1, gt=0)


NATIVE: dict[EngineName, str] = {
    "onnxruntime": "onnxruntime",
    "onnxruntime-int8-dynamic": "onnxruntime",
    "onnxruntime-int8-static": "onnxruntime",
    "openvino": "onnxruntime",  # its OpenVINO accelerator
    "tensorrt": "tensorrt",
}


def config_pbtxt(spec: ModelSpec, flavour: Flavour) -> str:
    """``config.pbtxt``: fixed version, warm-up, and the digests that make it checkable at load.

    ``max_batch_size`` is above 0 only when every input and output has a free first dimension. ValueError for an engine
    that this kind of server cannot run.
    """
    _require_runnable(spec, flavour)
    batched = spec.graph.batches
    lines = [
        f"name: {json.dumps(spec.name)}",
        f"backend: {json.dumps('python' if flavour == 'embedded' else NATIVE[spec.engine])}",
        *([] if flavour == "embedded" else [f"default_model_filename: {json.dumps(spec.main)}"]),
        f"max_batch_size: {spec.batching.max_batch if batched else 0}",
        *(_tensor("input", tensor, batched=batched) for tensor in spec.graph.inputs),
        *(_tensor("output", tensor, batched=batched) for tensor in spec.graph.outputs),
        f"version_policy {{ specific {{ versions: [ {VERSION} ] }} }}",
        f"instance_group [ {{ count: {spec.instances} kind: {'KIND_GPU' if flavour == 'gpu' else 'KIND_CPU'} }} ]",
        *([_dynamic(spec.batching), *_warm_up(spec)] if batched else []),
        *_native(spec, flavour),
        *_parameters(_settings(spec, flavour)),
    ]
    return "\n".join(lines) + "\n"


def _require_runnable(spec: ModelSpec, flavour: Flavour) -> None:
    if spec.engine == "tensorrt" and flavour != "gpu":
        raise ValueError(f"'{spec.name}': a TensorRT plan needs a server on GPUs, this one is '{flavour}'")
    if spec.engine == "openvino" and flavour == "gpu":
        raise ValueError(f"'{spec.name}': OpenVINO was chosen for CPUs, this server is on GPUs; package it again there")


def _settings(spec: ModelSpec, flavour: Flavour) -> dict[str, str]:
    """Of our own model.py, or of ONNX Runtime's backend (one thread has no pool that could spin)."""
    identity = {"digest": spec.onnx_digest, "package": spec.package_digest, "engine": spec.engine}
    if flavour == "embedded":
        files = json.dumps(spec.files, sort_keys=True)
        return {"threads": "1", "spin": "0", **identity, "main": spec.main, "files": files}
    if flavour == "cpu":
        return {"intra_op_thread_count": "1", "inter_op_thread_count": "1", **identity}
    return identity


def _native(spec: ModelSpec, flavour: Flavour) -> list[str]:
    """What only Triton's own backends take: the check of the files before they are loaded, and OpenVINO."""
    if flavour == "embedded":
        return []
    checks = " ".join(
        f"parameters {{ key: {json.dumps(f'MD5:{VERSION}/{path}')} value: {json.dumps(checksum)} }}"
        for path, checksum in sorted(spec.checksums.items())
    )
    lines = [f'model_repository_agents {{ agents [ {{ name: "checksum" {checks} }} ] }}']
    if spec.engine == "openvino":
        lines.append('optimization { execution_accelerators { cpu_execution_accelerator: [ { name: "openvino" } ] } }')
    return lines


def _tensor(kind: str, tensor: TensorDescription, *, batched: bool) -> str:
    dims = ", ".join(str(size) for size in _dims(tensor, batched=batched))
    return f"{kind} [ {{ name: {json.dumps(tensor.name)} data_type: {_type(kind, tensor)} dims: [ {dims} ] }} ]"


def _type(kind: str, tensor: TensorDescription) -> str:
    if tensor.dtype not in TRITON_TYPES:
        raise ValueError(f"{kind} '{tensor.name}' is {tensor.dtype}; served types are {sorted(TRITON_TYPES)}")
    return TRITON_TYPES[tensor.dtype]


def _dims(tensor: TensorDescription, *, batched: bool) -> list[int]:
    return [-1 if size is None else size for size in tensor.dims[1 if batched else 0 :]]


def _dynamic(batching: Batching) -> str:
    sizes = sorted({min(size, batching.max_batch) for size in batching.preferred})
    return (
        f"dynamic_batching {{ preferred_batch_size: [ {', '.join(map(str, sizes))} ] "
        f"max_queue_delay_microseconds: {batching.queue_delay_microseconds} }}"
    )


def _warm_up(spec: ModelSpec) -> list[str]:
    """One request of zeros at batch 1 and at the largest preferred batch, before the model counts as ready."""
    inputs = " ".join(
        f"inputs {{ key: {json.dumps(tensor.name)} value {{ data_type: {_type('input', tensor)} "
        f"dims: [ {', '.join(map(str, _dims(tensor, batched=True)))} ] zero_data: true }} }}"
        for tensor in spec.graph.inputs
    )
    sizes = sorted({1, min(max(spec.batching.preferred), spec.batching.max_batch)})
    return [f'model_warmup [ {{ name: "batch {size}" batch_size: {size} {inputs} }} ]' for size in sizes]


def _parameters(parameters: Mapping[str, str]) -> list[str]:
    return [
        f"parameters {{ key: {json.dumps(key)} value {{ string_value: {json.dumps(value)} }} }}"
        for key, value in parameters.items()
    ]
