from __future__ import annotations

import itertools
import json
import shutil
from pathlib import Path

import pytest
from pydantic import BaseModel, ValidationError

from artifacts.refs import Ref, Uri, file_uri, local_path, sha256, short
from artifacts.store import publish, write_bytes
from operators.steps import LAYERS, PENDING, PlannedStep, Skip, StepCall, finished, load, made, plan, write_plan
from tests.make.operators import CODE, toy_call, toy_step
from tests.make.toy_step import ToyRef
from training.contract import TorchJob


class Spec(BaseModel, frozen=True, extra="forbid"):
    day: str
    output: Uri


class Result(BaseModel, frozen=True, extra="forbid"):
    one: Ref
    many: tuple[Ref, ...] = ()
    rows: int = 0


def call(**fields: object) -> StepCall:
    return StepCall("training.train", "training", lambda day: Spec(day=day, output=PENDING), Ref, **fields)  # type: ignore[arg-type]


def planned(made: StepCall, day: str = "2013-08-31", code: str = CODE) -> PlannedStep:
    step = plan(made, {"day": day}, "s3://bucket/store", code)
    assert isinstance(step, PlannedStep)
    return step


def test_the_folder_comes_from_the_key_and_the_key_from_spec_and_code() -> None:
    step = planned(call())
    assert step.folder == f"s3://bucket/store/steps/training.train/{short(step.key)}"
    assert step.result_uri == f"{step.folder}/result.json"
    assert planned(call()).key == step.key
    others = {planned(call(), day="2013-09-01").key, planned(call(), code=sha256(b"new code")).key}
    assert len({step.key, *others}) == 3


def test_an_output_that_depends_on_the_key_is_filled_in_without_changing_it() -> None:
    step = planned(call(output=lambda spec, key: f"s3://bucket/{spec.day}/{short(key)}"))
    assert step.spec.model_dump() == {"day": "2013-08-31", "output": f"s3://bucket/2013-08-31/{short(step.key)}"}
    assert step.key == planned(call()).key


def test_an_output_that_is_no_uri_is_refused() -> None:
    with pytest.raises(ValidationError, match="no absolute URI"):
        planned(call(output=lambda *_: "somewhere"))


def test_a_spec_with_a_password_in_it_is_refused() -> None:
    """Whatever the field's type: the spec would lie in the store, and be shown in the UI."""
    with pytest.raises(ValueError, match=r"training\.train: day: a URL with a password") as caught:
        planned(call(), day="redis://:pa55@host:6379/0")
    assert "pa55" not in str(caught.value)


def test_a_salt_makes_another_key_and_none_makes_no_difference() -> None:
    assert planned(call(salt=lambda **_: None)).key == planned(call()).key
    assert planned(call(salt=lambda **_: "decision 7")).key != planned(call()).key


def test_a_job_may_come_from_the_spec() -> None:
    job = TorchJob(processes_per_node=3)
    assert planned(call(job=job)).job == job
    assert planned(call(job=lambda spec: TorchJob(processes_per_node=len(spec.day)))).job == TorchJob(
        processes_per_node=10
    )


@pytest.mark.parametrize(
    ("answer", "reason"), [(Skip("all days are built"), "all days are built"), (None, "nothing to do")]
)
def test_nothing_to_do_is_a_skip_with_a_reason(answer: Skip | None, reason: str) -> None:
    skipped = plan(StepCall("a.b", "features", lambda: answer, Ref), {}, "s3://bucket", CODE)
    assert isinstance(skipped, Skip)
    assert reason in skipped.reason


def test_what_travels_is_small_and_json() -> None:
    assert len(json.dumps(planned(call()).xcom())) < 1024


def test_each_layer_holds_the_layer_below_it() -> None:
    layers = [set(LAYERS[image]) for image in ("features", "training", "serving", "monitoring")]
    assert all(below < above for below, above in itertools.pairwise(layers))


def done(folder: Path, step: PlannedStep) -> ToyRef:
    """Does by hand what the step would do."""
    write_plan(step, 1)
    with publish(file_uri(folder / "made"), "toy") as draft:
        (draft.path / "word.txt").write_text("work")
    assert draft.manifest is not None
    ref = ToyRef(uri=file_uri(folder / "made"), digest=draft.manifest.digest, word="work")
    write_bytes(step.result_uri, ref.model_dump_json().encode())
    return ref


def test_work_that_is_done_is_found_and_loaded(tmp_path: Path) -> None:
    step = toy_step(tmp_path)
    assert finished(step) is None
    ref = done(tmp_path, step)
    assert finished(step) == ref
    assert load(step.xcom(), ToyRef) == ref


def test_a_step_with_an_effect_outside_is_never_taken_as_done(tmp_path: Path) -> None:
    step = toy_step(tmp_path, effect=True)
    done(tmp_path, step)
    assert finished(step) is None


def _gone(folder: Path, step: PlannedStep) -> None:
    shutil.rmtree(folder / "made")


def _damaged(folder: Path, step: PlannedStep) -> None:
    next((folder / "made").glob("attempt-*/word.txt")).write_text("WORK")


def _rebuilt(folder: Path, step: PlannedStep) -> None:
    with publish(file_uri(folder / "made"), "toy") as draft:
        (draft.path / "word.txt").write_text("another version")


def _cut(folder: Path, step: PlannedStep) -> None:
    write_bytes(step.result_uri, b'{"uri": "file')


def _foreign(folder: Path, step: PlannedStep) -> None:
    other = {"module": step.module, "key": sha256(b"the same first digits"), "attempt": 1}
    write_bytes(step.identity_uri, json.dumps(other).encode())


@pytest.mark.parametrize("spoil", [_gone, _damaged, _rebuilt, _cut, _foreign])
def test_work_is_not_done_when_what_it_made_is_not_whole(tmp_path: Path, spoil: object) -> None:
    step = toy_step(tmp_path)
    done(tmp_path, step)
    spoil(tmp_path, step)  # type: ignore[operator]
    assert finished(step) is None


def test_the_references_in_a_results_own_fields_count_as_made() -> None:
    refs = [Ref(uri=f"s3://bucket/{name}", digest=sha256(name.encode())) for name in "abc"]
    assert list(made(Result(one=refs[0], many=tuple(refs[1:]), rows=3))) == refs
    assert list(made(ToyRef(**refs[0].model_dump(), word="w"))) == [ToyRef(**refs[0].model_dump(), word="w")]


def test_a_result_that_was_removed_is_a_clear_error(tmp_path: Path) -> None:
    step = toy_step(tmp_path)
    with pytest.raises(LookupError, match="clear the task that makes it"):
        load(step.xcom(), ToyRef)
    assert local_path(step.folder) is not None


def test_the_inputs_reach_the_spec_function_by_name(tmp_path: Path) -> None:
    assert toy_call(tmp_path).spec(anything="goes") is not None
    with pytest.raises(TypeError, match="unexpected keyword argument 'month'"):
        plan(call(), {"month": 8}, "s3://bucket", CODE)
