"""``sweep`` removes pods that nobody waits for, over HTTP, and leaves the others."""

from __future__ import annotations

import datetime as dt
import threading
from typing import Any

import pytest

from operators.tasks import sweep
from tests.integration.cluster.conftest import Stand
from tests.make import pod_tasks
from tests.make.operators import runs
from tests.make.pod_tasks import context, outcomes
from tests.make.toy_step import wait_for


@pytest.fixture
def running(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A pod that runs until the test is over."""
    monkeypatch.setattr(sweep, "platform", lambda: pod_tasks.place(stand.folder))
    monkeypatch.setattr(sweep, "ledger", lambda: stand.ledger)
    gate = stand.folder / "gate"

    def execute() -> None:
        try:
            stand.task(gate=str(gate)).execute(context())
        except RuntimeError:  # its pod was taken from it
            return

    thread = threading.Thread(target=execute)
    thread.start()
    wait_for(lambda: runs(stand.folder) == 1)
    yield stand
    gate.touch()
    thread.join()


def reap(stand: Stand, state: str | None, minutes: float) -> list[str]:
    ti = context()["ti"]
    ti.get_task_states = lambda run_ids, task_ids, **_: {run_ids[0]: {task_ids[0]: state}} if state else {}
    now = dt.datetime.now(dt.UTC) + dt.timedelta(minutes=minutes)
    return sweep.reap_pods(ti, now, str(stand.config))


@pytest.mark.covers("field-reports 8")
@pytest.mark.parametrize("state", ["failed", "success", None])
def test_the_pod_of_a_task_that_ended_or_is_gone_goes_after_ten_minutes(running: Stand, state: str | None) -> None:
    (name,) = running.cluster.pods
    assert reap(running, state, 5) == []
    assert reap(running, state, 11) == [name]
    assert outcomes(running.ledger)[0] == "killed"


@pytest.mark.covers("field-reports 8")
@pytest.mark.parametrize("state", ["running", "deferred", "up_for_retry", "queued"])
def test_the_pod_of_a_task_that_lives_stays(running: Stand, state: str) -> None:
    assert reap(running, state, 600) == []
    assert len(running.cluster.pods) == 1


@pytest.mark.covers("field-reports 8")
def test_a_pod_whose_attempt_is_closed_goes_although_its_task_lives(running: Stand) -> None:
    (pod,) = running.cluster.created
    running.ledger.finish_attempt(pod["metadata"]["annotations"]["perennial/key"], 1, "failed")
    assert reap(running, "running", 11) == [pod["metadata"]["name"]]


def test_a_pod_that_failed_is_kept_for_a_day(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep, "platform", lambda: pod_tasks.place(stand.folder))
    monkeypatch.setattr(sweep, "ledger", lambda: stand.ledger)
    with pytest.raises(RuntimeError):
        stand.task("exit 7").execute(context())
    assert reap(stand, "failed", 23 * 60) == []
    assert len(reap(stand, "failed", 25 * 60)) == 1
