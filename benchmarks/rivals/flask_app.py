"""What textbooks serve a model with: Flask, and ONNX Runtime in the worker's process. For ``benchmarks.triton_vs_flask`` only.

It takes the same bytes as Triton: a head of JSON that describes the tensors, then the tensors themselves.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
from flask import Flask, Response, request

from serving.engines.onnxruntime import load

MODEL = "PERENNIAL_BENCHMARK_MODEL"
DTYPES = {"FP32": np.float32, "INT64": np.int64}


def make() -> Flask:
    """The application, with the model that the environment names."""
    app, engine = Flask("flask_app"), load(Path(os.environ[MODEL]))

    def infer(name: str) -> Response:
        tensors = tensors_of(request.get_data(), int(request.headers["Inference-Header-Content-Length"]))
        score = engine.run(tensors["numeric"], tensors["categorical"])
        output = {"name": "score", "datatype": "FP32", "shape": [len(score), 1], "data": score.tolist()}
        return Response(json.dumps({"model_name": name, "outputs": [output]}), mimetype="application/json")

    app.add_url_rule("/v2/models/<name>/infer", view_func=infer, methods=["POST"])
    return app


def tensors_of(body: bytes, place: int) -> dict[str, np.ndarray]:
    """The tensors of a request whose head ends at ``place``."""
    tensors = {}
    for each in json.loads(body[:place])["inputs"]:
        size = each["parameters"]["binary_data_size"]
        values = np.frombuffer(body[place : place + size], DTYPES[each["datatype"]])
        tensors[each["name"]] = values.reshape(each["shape"])
        place += size
    return tensors
