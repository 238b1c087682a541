from __future__ import annotations

import errno
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import BaseModel, Field

import artifacts.step as door
from artifacts.faults import BucketMissing, CacheFull, ClockSkewed
from artifacts.refs import Ref, Uri, file_uri, sha256
from artifacts.settings import ROOT
from artifacts.step import DataFault, LostPeer, TryAgain, failure_of, progress_uri, step, step_key
from artifacts.store import ArtifactCorrupt, ArtifactMissing


class Spec(BaseModel, frozen=True, extra="forbid"):
    rows: int = Field(gt=0)
    name: str = "x"
    output: Uri = "file:///out"


def run(folder: Path, work: Any, spec: str = '{"rows": 1}') -> tuple[int, Uri]:
    (folder / "spec.json").write_text(spec)
    result = file_uri(folder / "result.json")
    return step(work, Spec, [file_uri(folder / "spec.json"), result]), result


def test_a_good_end_leaves_a_result_and_no_failure(tmp_path: Path) -> None:
    ref = Ref(uri="file:///out", digest=sha256(b"x"))
    code, result = run(tmp_path, lambda _: ref)
    assert (code, failure_of(result)) == (0, None)
    assert Ref.model_validate_json((tmp_path / "result.json").read_bytes()) == ref


def test_a_rank_that_does_not_answer_writes_no_result(tmp_path: Path) -> None:
    assert run(tmp_path, lambda _: None)[0] == 0
    assert not (tmp_path / "result.json").exists()


@pytest.mark.parametrize(
    ("error", "code", "kind"),
    [
        (DataFault(["a.csv: x: null", "a.csv: y: null"]), 65, "bad_data"),
        (ArtifactCorrupt("a: differs"), 65, "bad_data"),
        (ArtifactMissing("a: not there"), 65, "bad_data"),
        (TryAgain("no answer"), 75, "try_again"),
        (ConnectionRefusedError("refused"), 75, "try_again"),
        (TimeoutError("late"), 75, "try_again"),
        (BucketMissing("store 'lake': no bucket"), 64, "bad_spec"),
        (ClockSkewed("store 'lake': the clock"), 75, "try_again"),
        (CacheFull("no room"), 75, "try_again"),
        (OSError(errno.ENOSPC, "No space left on device", "weights.pt"), 75, "try_again"),
        (OSError(errno.EIO, "broken"), 1, "error"),
        (KeyError("column"), 1, "error"),
        (MemoryError(), 1, "error"),
    ],
)
def test_every_failure_has_its_exit_code_and_its_words(tmp_path: Path, error: Exception, code: int, kind: str) -> None:
    def work(spec: Spec) -> None:
        raise error

    found, result = run(tmp_path, work)
    failure = failure_of(result)
    assert failure is not None
    assert (found, failure.kind) == (code, kind)
    assert str(error) in failure.reason
    assert not (tmp_path / "result.json").exists()


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ('{"rows": 0}', "rows: Input should be greater than 0 (got 0)"),
        ('{"rowz": 1}', "rowz: Extra inputs are not permitted (got 1)"),
        ("{}", "rows: Field required"),
        ("{", "(whole): Invalid JSON"),
    ],
)
def test_a_bad_spec_is_explained_line_by_line(tmp_path: Path, spec: str, says: str) -> None:
    code, result = run(tmp_path, lambda _: pytest.fail("a bad spec was worked on"), spec)
    failure = failure_of(result)
    assert failure is not None
    assert (code, failure.kind) == (64, "bad_spec")
    assert any(
        line.startswith(file_uri(tmp_path / "spec.json")) and says in line for line in failure.reason.splitlines()
    )


def test_a_spec_that_is_not_there_and_a_wrong_call_are_bad_specs(tmp_path: Path) -> None:
    result = file_uri(tmp_path / "result.json")
    assert step(lambda _: None, Spec, [file_uri(tmp_path / "none.json"), result]) == 64
    assert "no such spec" in str(failure_of(result))
    assert step(lambda _: None, Spec, ["one word"]) == 64


def test_progress_is_written_beside_the_result_and_not_too_often(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[dict[str, Any]] = []
    time = iter([100.0, 110.0, 110.1, 120.0, *[130.0] * 9])
    monkeypatch.setattr(door, "time", SimpleNamespace(monotonic=lambda: next(time)))

    def work(spec: Spec) -> None:
        for fraction in (0.25, 0.3, 2.0):
            door.progress(fraction, "rows")
            seen.append(json.loads((tmp_path / "progress.json").read_text()))

    code, result = run(tmp_path, work)
    assert code == 0
    assert progress_uri(result) == file_uri(tmp_path / "progress.json")
    assert [one["fraction"] for one in seen] == [0.25, 0.25, 1.0]
    assert seen[0]["eta_seconds"] == 30.0


def test_progress_outside_a_step_is_silent() -> None:
    door.progress(0.5, "nothing")


def test_the_key_of_a_step_leaves_out_its_place_and_nothing_else() -> None:
    code = sha256(b"code")
    key = step_key("a.b", Spec(rows=1), code)
    assert key == step_key("a.b", Spec(rows=1, output="s3://elsewhere/x"), code)
    others = {
        step_key("a.c", Spec(rows=1), code),
        step_key("a.b", Spec(rows=2), code),
        step_key("a.b", Spec(rows=1), sha256(b"other code")),
    }
    assert len({key, *others}) == 4


def test_who_lost_a_peer_never_speaks_over_the_peer_s_own_words(tmp_path: Path) -> None:
    def lost(_: Spec) -> None:
        raise LostPeer("connection closed")

    code, result = run(tmp_path, lost)
    failure = failure_of(result)
    assert (code, failure and failure.kind) == (75, "try_again")
    words = door.Failure(kind="bad_data", reason="a.csv: x: null").model_dump_json()
    (tmp_path / "failure.json").write_text(words)
    assert run(tmp_path, lost)[0] == 75
    assert (tmp_path / "failure.json").read_text() == words


def test_giving_up_ends_the_process_with_words_and_code(tmp_path: Path) -> None:
    script = (
        "import sys, threading; from artifacts.refs import Ref; from artifacts.step import TryAgain, give_up, step\n"
        "def work(_):\n"
        "    threading.Thread(target=give_up, args=(TryAgain('nothing moves'),)).start(); threading.Event().wait(60)\n"
        "sys.exit(step(work, Ref))\n"
    )
    (tmp_path / "spec.json").write_text(Ref(uri="file:///x", digest=sha256(b"x")).model_dump_json())
    result = file_uri(tmp_path / "result.json")
    words = [sys.executable, "-c", script, file_uri(tmp_path / "spec.json"), result]
    assert subprocess.run(words, cwd=ROOT, check=False, capture_output=True, timeout=60).returncode == 75
    failure = failure_of(result)
    assert failure is not None
    assert failure.reason == "TryAgain: nothing moves"


def test_who_knows_better_says_how_long_it_takes(tmp_path: Path) -> None:
    def work(_: Spec) -> None:
        door.progress(0.5, "half", 7.0)
        assert json.loads((tmp_path / "progress.json").read_text())["eta_seconds"] == 7.0

    assert run(tmp_path, work)[0] == 0
