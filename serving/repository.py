"""The files of a Triton model folder, rendered from what the ONNX graph itself says of its tensors. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping

from pydantic import BaseModel, Field

from artifacts.refs import Digest

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
    preferred: int = Field(gt=0)
    queue_delay_microseconds: int = Field(ge=0)


def config_pbtxt(
    name: str, graph: GraphDescription, batching: Batching, onnx_digest: Digest, package_digest: Digest
) -> str:
    """``config.pbtxt``: one CPU instance of the Python backend, fixed version, and the digests that make it checkable.

    ``max_batch_size`` is above 0 only when every input and output has a free first dimension.
    """
    tensors = [
        *(_tensor("input", tensor, batched=graph.batches) for tensor in graph.inputs),
        *(_tensor("output", tensor, batched=graph.batches) for tensor in graph.outputs),
    ]
    parameters = {"threads": "1", "spin": "0", "digest": onnx_digest, "package": package_digest}
    lines = [
        f"name: {json.dumps(name)}",
        'backend: "python"',
        f"max_batch_size: {batching.max_batch if graph.batches else 0}",
        *tensors,
        f"version_policy {{ specific {{ versions: [ {VERSION} ] }} }}",
        "instance_group [ { count: 1 kind: KIND_CPU } ]",
        *([_dynamic(batching)] if graph.batches else []),
        *_parameters(parameters),
    ]
    return "\n".join(lines) + "\n"


def _tensor(kind: str, tensor: TensorDescription, *, batched: bool) -> str:
    if tensor.dtype not in TRITON_TYPES:
        raise ValueError(f"{kind} '{tensor.name}' is {tensor.dtype}; served types are {sorted(TRITON_TYPES)}")
    dims = ", ".join("-1" if size is None else str(size) for size in tensor.dims[1 if batched else 0 :])
    return f"{kind} [ {{ name: {json.dumps(tensor.name)} data_type: {TRITON_TYPES[tensor.dtype]} dims: [ {dims} ] }} ]"


def _dynamic(batching: Batching) -> str:
    return (
        f"dynamic_batching {{ preferred_batch_size: [ {min(batching.preferred, batching.max_batch)} ] "
        f"max_queue_delay_microseconds: {batching.queue_delay_microseconds} }}"
    )


def _parameters(parameters: Mapping[str, str]) -> list[str]:
    return [
        f"parameters {{ key: {json.dumps(key)} value {{ string_value: {json.dumps(value)} }} }}"
        for key, value in parameters.items()
    ]


def model_py() -> str:
    """``model.py``: ONNX Runtime inside Triton's Python backend; it refuses a ``model.onnx`` of another digest."""
    return MODEL_PY


MODEL_PY = '''\
"""Serves model.onnx with ONNX Runtime. Written by Perennial with the model; do not edit."""

import hashlib
import json
import os

import numpy as np
import onnxruntime as ort
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        config = json.loads(args["model_config"])
        parameters = {key: value["string_value"] for key, value in config["parameters"].items()}
        path = os.path.join(args["model_repository"], args["model_version"], "model.onnx")
        with open(path, "rb") as file:
            found = "sha256:" + hashlib.file_digest(file, "sha256").hexdigest()
        if found != parameters["digest"]:
            raise pb_utils.TritonModelException(
                f"model.onnx has digest {found}, the configuration says {parameters['digest']}; publish the package again"
            )
        options = ort.SessionOptions()
        options.intra_op_num_threads = int(parameters["threads"])
        options.inter_op_num_threads = 1
        options.add_session_config_entry("session.intra_op.allow_spinning", parameters["spin"])
        self.session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        self.inputs = [tensor.name for tensor in self.session.get_inputs()]
        self.outputs = [tensor.name for tensor in self.session.get_outputs()]
        self.batched = config["max_batch_size"] > 0

    def execute(self, requests):
        # Dynamic batching hands over several requests at once: one run of the graph answers them all.
        if self.batched and len(requests) > 1:
            try:
                return self.answer_together(requests)
            except Exception:  # one bad request must not fail its neighbours: each is tried alone
                pass
        return [self.answer(request) for request in requests]

    def tensors(self, request):
        return {name: pb_utils.get_input_tensor_by_name(request, name).as_numpy() for name in self.inputs}

    def answer(self, request):
        try:
            return self.response(self.session.run(self.outputs, self.tensors(request)))
        except Exception as error:
            return pb_utils.InferenceResponse(error=pb_utils.TritonError(f"{type(error).__name__}: {error}"))

    def answer_together(self, requests):
        fed = [self.tensors(request) for request in requests]
        joined = {name: np.concatenate([tensors[name] for tensors in fed]) for name in self.inputs}
        ends = np.cumsum([len(tensors[self.inputs[0]]) for tensors in fed])[:-1]
        parts = [np.split(output, ends) for output in self.session.run(self.outputs, joined)]
        return [self.response(outputs) for outputs in zip(*parts)]

    def response(self, outputs):
        named = [pb_utils.Tensor(name, np.ascontiguousarray(value)) for name, value in zip(self.outputs, outputs)]
        return pb_utils.InferenceResponse(named)
'''
