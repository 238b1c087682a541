"""``model.py`` of the embedded server: the chosen engine inside Triton's Python backend. A text, since it runs in the server.

It refuses files of other digests than the configuration's, and an engine that is not installed where the server runs.
"""

from __future__ import annotations

TEXT = '''\
"""Serves a package with its engine. Written by Perennial with the model; do not edit."""

import hashlib
import json
import os

import numpy as np
import triton_python_backend_utils as pb_utils


def digest_of(path):
    with open(path, "rb") as file:
        return "sha256:" + hashlib.file_digest(file, "sha256").hexdigest()


class OnnxRuntime:
    def __init__(self, path, parameters):
        import onnxruntime as ort

        options = ort.SessionOptions()
        options.intra_op_num_threads = int(parameters["threads"])
        options.inter_op_num_threads = 1
        options.add_session_config_entry("session.intra_op.allow_spinning", parameters["spin"])
        self.session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        self.inputs = [tensor.name for tensor in self.session.get_inputs()]
        self.outputs = [tensor.name for tensor in self.session.get_outputs()]

    def run(self, tensors):
        return self.session.run(self.outputs, tensors)


class OpenVino:
    def __init__(self, path, parameters):
        import openvino

        settings = {"INFERENCE_NUM_THREADS": int(parameters["threads"]), "NUM_STREAMS": 1}
        settings |= {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"}
        compiled = openvino.Core().compile_model(path, "CPU", settings)
        self.request = compiled.create_infer_request()
        self.inputs = [tensor.any_name for tensor in compiled.inputs]
        self.outputs = [tensor.any_name for tensor in compiled.outputs]

    def run(self, tensors):
        self.request.infer(tensors, share_inputs=True)
        return [np.array(self.request.get_tensor(name).data) for name in self.outputs]


class TritonPythonModel:
    def initialize(self, args):
        config = json.loads(args["model_config"])
        parameters = {key: value["string_value"] for key, value in config["parameters"].items()}
        folder = os.path.join(args["model_repository"], args["model_version"])
        for name, digest in json.loads(parameters["files"]).items():
            found = digest_of(os.path.join(folder, name))
            if found != digest:
                raise pb_utils.TritonModelException(
                    f"{name} has digest {found}, the configuration says {digest}; publish the package again"
                )
        kind = OpenVino if parameters["engine"] == "openvino" else OnnxRuntime
        try:
            self.engine = kind(os.path.join(folder, parameters["main"]), parameters)
        except ImportError as error:
            raise pb_utils.TritonModelException(
                f"engine '{parameters['engine']}' is not installed where the server runs ({error}); install it there"
            )
        self.inputs, self.outputs = self.engine.inputs, self.engine.outputs
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
            return self.response(self.engine.run(self.tensors(request)))
        except Exception as error:
            return pb_utils.InferenceResponse(error=pb_utils.TritonError(f"{type(error).__name__}: {error}"))

    def answer_together(self, requests):
        fed = [self.tensors(request) for request in requests]
        joined = {name: np.concatenate([tensors[name] for tensors in fed]) for name in self.inputs}
        ends = np.cumsum([len(tensors[self.inputs[0]]) for tensors in fed])[:-1]
        parts = [np.split(output, ends) for output in self.engine.run(joined)]
        return [self.response(outputs) for outputs in zip(*parts)]

    def response(self, outputs):
        named = [pb_utils.Tensor(name, np.ascontiguousarray(value)) for name, value in zip(self.outputs, outputs)]
        return pb_utils.InferenceResponse(named)
'''
