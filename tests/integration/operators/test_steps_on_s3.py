"""Steps whose spec, result and artifacts lie on S3: reused, followed and explained as on a disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from artifacts import store
from artifacts.refs import Uri, join
from operators.process import StepFailed, StepRefused
from operators.steps import load
from tests.make import s3
from tests.make.operators import Telling, ledger, runner, runs, toy_step
from tests.make.stores import declare
from tests.make.toy_step import ToyRef


def test_a_step_is_run_once_and_its_result_is_read(lake: Uri, tmp_path: Path) -> None:
    step = toy_step(tmp_path, store=lake, output=join(lake, "made"))
    result = runner(tmp_path, step=step).run()
    assert isinstance(result, ToyRef)
    assert result.uri == join(lake, "made")
    assert step.result_uri.startswith(lake)
    assert store.read_ref(result).file("word.txt").read_text() == "work"
    assert load(step.xcom(), ToyRef) == result
    again = runner(tmp_path, step=step)
    assert again.run() == result
    assert runs(tmp_path) == 1

    store.remove(join(result.uri, "manifest.json"))  # the result is there, what it names is not
    assert runner(tmp_path, step=step).run() == result
    assert runs(tmp_path) == 2


def test_progress_and_failure_come_through_the_store(lake: Uri, tmp_path: Path) -> None:
    step = toy_step(tmp_path, "progress", store=lake, output=join(lake, "made"))
    moving = runner(tmp_path, step=step, log=Telling(tmp_path))
    moving.run()
    assert [line for line in moving.log.lines if "% part" in line]
    with pytest.raises(StepRefused, match="exit 65: flights"):
        runner(tmp_path, step=toy_step(tmp_path, "bad data", store=lake, output=join(lake, "made"))).run()


@pytest.mark.parametrize(
    ("changes", "error", "says"),
    [
        ({"read_only": True}, StepRefused, "ReadOnlyStore: store 'other'"),
        ({"bucket": "nowhere"}, StepRefused, "BucketMissing: store 'other': bucket 'nowhere' does not exist"),
        ({"secret_key": {"env": "ABSENT"}}, StepRefused, "CredentialsRefused: store 'other': secret_key: $ABSENT"),
        (
            {"endpoint": "http://127.0.0.1:9"},
            StepFailed,
            "StoreAway: store 'other': http://127.0.0.1:9 does not answer",
        ),
    ],
)
def test_a_store_at_fault_ends_the_step_in_one_line_that_says_whether_to_retry(
    s3_server: s3.Server,
    lake: Uri,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    changes: dict[str, Any],
    error: type[Exception],
    says: str,
) -> None:
    other = {**s3_server.store(name="other", prefix=f"{tmp_path.name}/other"), **changes}
    declare(monkeypatch, tmp_path / "cache", s3_server.store(), other, **s3_server.env())
    output = f"s3://{other['bucket']}/{other['prefix']}/made"
    step = toy_step(tmp_path, store=lake, output=output)
    one = runner(tmp_path, step=step)
    with pytest.raises(error) as caught:
        one.run()
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
    (attempt,) = ledger(tmp_path).attempts(step.key)
    assert attempt.outcome == ("refused" if error is StepRefused else "failed")
    log = "\n".join(one.log.lines)
    assert "Traceback" not in log
    assert s3.SECRET not in log


def test_a_step_that_cannot_reach_its_own_result_still_says_why(
    s3_server: s3.Server, lake: Uri, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its failure.json cannot be written either: the exit code and the log remain."""
    step = toy_step(tmp_path, store=lake, output=join(lake, "made"))
    one = runner(tmp_path, step=step)
    monkeypatch.setattr("operators.process.environment", lambda _, outer: {**outer, "LAKE_SECRET": "wrong"})
    with pytest.raises(StepRefused, match="it left no reason \\(exit 64\\)"):
        one.run()
    assert any("CredentialsRefused: store 'lake'" in line for line in one.log.lines)
