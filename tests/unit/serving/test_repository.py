"""What is written into a Triton repository, against golden files (update: PERENNIAL_UPDATE_GOLDEN=1 pytest <this file>)."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from artifacts.refs import sha256
from serving.repository import Batching, Flavour, GraphDescription, ModelSpec, TensorDescription, config_pbtxt
from serving.server_model import TEXT

GOLDEN = Path(__file__).parents[2] / "golden"
BATCHING = Batching(max_batch=1024, preferred=(32, 256), queue_delay_microseconds=150)


def graph(batch: int | None = None, score_batch: int | None = None) -> GraphDescription:
    return GraphDescription(
        inputs=(
            TensorDescription(name="numeric", dtype="float32", dims=(batch, 20)),
            TensorDescription(name="categorical", dtype="int64", dims=(batch, 4)),
        ),
        outputs=(TensorDescription(name="score", dtype="float32", dims=(score_batch, 1)),),
    )


def model(described: GraphDescription | None = None, **changes: Any) -> ModelSpec:
    fields = {
        "name": "flight_delay_v7",
        "graph": described or graph(),
        "batching": BATCHING,
        "engine": "onnxruntime",
        "files": {"model.onnx": sha256(b"onnx")},
        "checksums": {"model.onnx": "9e107d9d372bb6826bd81d3542a419d6"},
        "main": "model.onnx",
        "onnx_digest": sha256(b"onnx"),
        "package_digest": sha256(b"package"),
    }
    return ModelSpec.model_validate({**fields, **changes})


def rendered(described: GraphDescription, batching: Batching = BATCHING) -> str:
    return config_pbtxt(model(described, batching=batching), "embedded")


def parsed(text: str) -> Any:
    return text_format.Parse(text, model_config_pb2.ModelConfig())


def compare(name: str, text: str) -> None:
    path = GOLDEN / name
    if os.environ.get("PERENNIAL_UPDATE_GOLDEN") == "1":
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


@pytest.mark.covers("field-reports 105")
@pytest.mark.parametrize(
    ("name", "described"), [("config_batched.pbtxt", graph()), ("config_frozen.pbtxt", graph(2, 2))]
)
def test_the_configuration_is_as_reviewed(name: str, described: GraphDescription) -> None:
    compare(name, rendered(described))


PLAN = {"files": {"model.plan": sha256(b"plan")}, "checksums": {"model.plan": "e4d909c290d0fb1ca068ffaddf22cbd0"}}
PRODUCTION: list[tuple[str, dict[str, Any], Flavour]] = [
    ("config_onnxruntime_cpu.pbtxt", {}, "cpu"),
    ("config_onnxruntime_cuda.pbtxt", {}, "gpu"),
    ("config_openvino_cpu.pbtxt", {"engine": "openvino"}, "cpu"),
    ("config_tensorrt.pbtxt", {"engine": "tensorrt", "main": "model.plan", "instances": 2, **PLAN}, "gpu"),
]


@pytest.mark.parametrize(("name", "changes", "flavour"), PRODUCTION)
def test_a_production_server_gets_its_configuration_from_the_same_spec(
    name: str, changes: dict[str, Any], flavour: Flavour
) -> None:
    text = config_pbtxt(model(**changes), flavour)
    compare(name, text)
    config, embedded = parsed(text), parsed(rendered(graph()))
    assert config.backend in {"onnxruntime", "tensorrt"}
    for shared in ("name", "max_batch_size", "input", "output", "dynamic_batching", "version_policy", "model_warmup"):
        assert getattr(config, shared) == getattr(embedded, shared), shared
    (agent,) = config.model_repository_agents.agents
    assert agent.name == "checksum"
    assert list(agent.parameters) == [f"MD5:1/{config.default_model_filename}"]


@pytest.mark.parametrize(
    ("engine", "flavour", "words"),
    [("tensorrt", "cpu", "needs a server on GPUs"), ("tensorrt", "embedded", "GPUs"), ("openvino", "gpu", "for CPUs")],
)
def test_an_engine_that_a_server_cannot_run_is_refused(engine: str, flavour: Flavour, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        config_pbtxt(model(engine=engine), flavour)


def test_the_python_file_is_as_reviewed() -> None:
    compare("model.py.txt", TEXT)
    compile(TEXT, "model.py", "exec")


def test_the_configuration_parses_as_tritons_own_message() -> None:
    config = text_format.Parse(rendered(graph()), model_config_pb2.ModelConfig())
    assert config.max_batch_size == 1024
    assert list(config.input[0].dims) == [20]
    assert list(config.version_policy.specific.versions) == [1]
    assert config.instance_group[0].kind == model_config_pb2.ModelInstanceGroup.KIND_CPU
    parameters = {key: value.string_value for key, value in config.parameters.items()}
    assert parameters == {
        "threads": "1",
        "spin": "0",
        "digest": sha256(b"onnx"),
        "package": sha256(b"package"),
        "engine": "onnxruntime",
        "main": "model.onnx",
        "files": json.dumps({"model.onnx": sha256(b"onnx")}),
    }
    assert list(config.dynamic_batching.preferred_batch_size) == [32, 256]
    assert [warm.batch_size for warm in config.model_warmup] == [1, 256]


@pytest.mark.covers("field-reports 105")
@pytest.mark.parametrize("described", [graph(2, None), graph(None, 2), graph(2, 2)])
def test_batching_needs_a_free_first_dimension_everywhere(described: GraphDescription) -> None:
    config = text_format.Parse(rendered(described), model_config_pb2.ModelConfig())
    assert config.max_batch_size == 0
    assert not config.HasField("dynamic_batching")
    assert len(config.input[0].dims) == 2


def test_a_preferred_batch_is_never_larger_than_the_largest() -> None:
    small = BATCHING.model_copy(update={"max_batch": 8})
    config = text_format.Parse(rendered(graph(), small), model_config_pb2.ModelConfig())
    assert list(config.dynamic_batching.preferred_batch_size) == [8]


def test_a_type_that_is_not_served_is_named() -> None:
    tensor = TensorDescription(name="text", dtype="object", dims=(None, 1))
    with pytest.raises(ValueError, match="input 'text' is object"):
        rendered(GraphDescription(inputs=(tensor,), outputs=graph().outputs))
