"""What binds a TensorRT plan to its GPU, and the command that builds it. Nothing here needs a GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from artifacts.refs import sha256
from serving.engines.interface import Unsupported
from serving.engines.tensorrt import TARGET_FILE, Device, Profile, Target, command, require_same_device

HERE = Device(tensorrt="10.9.0", cuda="13.0", compute_capability="9.0")


def target(**changes: Any) -> Target:
    fields = {**HERE.model_dump(), "onnx_digest": sha256(b"onnx"), "profile": Profile(largest=1024)}
    return Target.model_validate({**fields, **changes})


def test_the_command_is_as_reviewed() -> None:
    words = command(Path("model.onnx"), Path("model.plan"), {"numeric": 20, "categorical": 4}, target())
    assert words == [
        "trtexec",
        "--onnx=model.onnx",
        "--saveEngine=model.plan",
        "--minShapes=numeric:1x20,categorical:1x4",
        "--optShapes=numeric:32x20,categorical:32x4",
        "--maxShapes=numeric:1024x20,categorical:1024x4",
        "--noTF32",
        "--skipInference",
    ]
    half = command(Path("m"), Path("p"), {"numeric": 1}, target(precision="fp16", profile=Profile(largest=8)))
    assert "--fp16" in half
    assert "--optShapes=numeric:8x1" in half, "never above the largest"


@pytest.mark.covers("field-reports 98")
@pytest.mark.parametrize(
    "changes",
    [
        {"onnx_digest": sha256(b"other")},
        {"tensorrt": "10.9.1"},
        {"cuda": "12.9"},
        {"compute_capability": "8.9"},
        {"precision": "fp16"},
        {"profile": Profile(largest=512)},
    ],
)
def test_everything_that_a_plan_depends_on_is_in_its_key(changes: dict[str, Any]) -> None:
    assert target(**changes).key != target().key
    assert target().key == target().key


@pytest.mark.covers("field-reports 98")
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"compute_capability": "8.9"}, "compute_capability is 8.9 in the plan, 9.0 here"),
        ({"cuda": "12.9"}, "cuda is 12.9 in the plan, 13.0 here"),
        ({"tensorrt": "8.6.1"}, "tensorrt is 8.6.1 in the plan, 10.9.0 here"),
    ],
)
def test_a_plan_of_another_card_is_refused_by_name(tmp_path: Path, changes: dict[str, str], words: str) -> None:
    path = tmp_path / "model.plan"
    path.with_name(TARGET_FILE).write_text(target().model_dump_json())
    assert require_same_device(path, HERE) == target()
    path.with_name(TARGET_FILE).write_text(target(**changes).model_dump_json())
    with pytest.raises(Unsupported, match=f"{words}; build the plan on the class of GPU"):
        require_same_device(path, HERE)


@pytest.mark.parametrize("text", [None, "", "{}"])
def test_a_plan_that_does_not_say_what_it_was_built_for_is_refused(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / TARGET_FILE).write_text(text)
    with pytest.raises(Unsupported, match="does not say what it was built for"):
        require_same_device(tmp_path / "model.plan", HERE)
