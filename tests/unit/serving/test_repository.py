"""What is written into a Triton repository, against golden files (update: PERENNIAL_UPDATE_GOLDEN=1 pytest <this file>)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from artifacts.refs import sha256
from serving.repository import Batching, GraphDescription, TensorDescription, config_pbtxt, model_py

GOLDEN = Path(__file__).parents[2] / "golden"
BATCHING = Batching(max_batch=1024, preferred=32, queue_delay_microseconds=100)


def graph(batch: int | None = None, score_batch: int | None = None) -> GraphDescription:
    return GraphDescription(
        inputs=(
            TensorDescription(name="numeric", dtype="float32", dims=(batch, 20)),
            TensorDescription(name="categorical", dtype="int64", dims=(batch, 4)),
        ),
        outputs=(TensorDescription(name="score", dtype="float32", dims=(score_batch, 1)),),
    )


def rendered(described: GraphDescription, batching: Batching = BATCHING) -> str:
    return config_pbtxt("flight_delay_v7", described, batching, sha256(b"onnx"), sha256(b"package"))


def compare(name: str, text: str) -> None:
    path = GOLDEN / name
    if os.environ.get("PERENNIAL_UPDATE_GOLDEN") == "1":
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "described"), [("config_batched.pbtxt", graph()), ("config_frozen.pbtxt", graph(2, 2))]
)
def test_the_configuration_is_as_reviewed(name: str, described: GraphDescription) -> None:
    compare(name, rendered(described))


def test_the_python_file_is_as_reviewed() -> None:
    compare("model.py.txt", model_py())
    compile(model_py(), "model.py", "exec")


def test_the_configuration_parses_as_tritons_own_message() -> None:
    config = text_format.Parse(rendered(graph()), model_config_pb2.ModelConfig())
    assert config.max_batch_size == 1024
    assert list(config.input[0].dims) == [20]
    assert list(config.version_policy.specific.versions) == [1]
    assert config.instance_group[0].kind == model_config_pb2.ModelInstanceGroup.KIND_CPU
    parameters = {key: value.string_value for key, value in config.parameters.items()}
    assert parameters == {"threads": "1", "spin": "0", "digest": sha256(b"onnx"), "package": sha256(b"package")}
    assert list(config.dynamic_batching.preferred_batch_size) == [32]


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
