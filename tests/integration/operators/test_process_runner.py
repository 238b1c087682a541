"""The process runner with real processes: what it reuses, whom it waits for, what it says, and what it leaves behind."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from artifacts.settings import ROOT
from operators.ledger import Attempt
from operators.process import StepFailed, StepRefused
from operators.steps import load
from tests.make.operators import Lines, Telling, alive, ledger, runner, runs, toy_step
from tests.make.toy_step import ToyRef, wait_for


def attempts(folder: Path, does: str) -> tuple[Attempt, ...]:
    return ledger(folder).attempts(toy_step(folder, does).key)


def outcomes(folder: Path, does: str) -> list[str | None]:
    return [one.outcome for one in attempts(folder, does)]


def test_work_is_done_once_and_then_reused(tmp_path: Path) -> None:
    first = runner(tmp_path)
    result = first.run()
    assert isinstance(result, ToyRef)
    assert load(first.step.xcom(), ToyRef) == result
    assert "made work" in first.log.lines  # the step's own output is the task's log
    second = runner(tmp_path)
    assert second.run() == result
    assert runs(tmp_path) == 1
    assert outcomes(tmp_path, "work") == ["done"]
    begun = attempts(tmp_path, "work")[0].begun.body
    assert (begun["dag"], begun["run"], begun["folder"]) == ("toy", "r1", first.step.folder)

    shutil.rmtree(tmp_path / "made")  # the result is there, what it names is not
    assert runner(tmp_path).run() == result
    assert runs(tmp_path) == 2


@pytest.mark.parametrize(
    ("does", "error", "says"),
    [
        (
            "bad data",
            StepRefused,
            "exit 65: flights.csv: origin: null in 3 rows; drop or fill them\nflights.csv: dest: null",
        ),
        ("try again", StepFailed, "TryAgain: the server does not answer (exit 75)"),
        ("error", StepRefused, "ZeroDivisionError: a fault of the step's own (exit 1)"),
        ("exit 7", StepFailed, "it left no reason (exit 7)"),
    ],
)
def test_a_failure_says_why_and_whether_to_try_again(
    tmp_path: Path, does: str, error: type[Exception], says: str
) -> None:
    with pytest.raises(error) as caught:
        runner(tmp_path, does).run()
    assert str(caught.value) == says
    (attempt,) = attempts(tmp_path, does)
    assert attempt.outcome == ("refused" if error is StepRefused else "failed")
    assert attempt.finished is not None
    assert "\n" not in str(attempt.finished.body["reason"])


@pytest.mark.parametrize("does", ["die once", "die after publish"])
def test_a_killed_step_is_run_again_and_ends_right(tmp_path: Path, does: str) -> None:
    with pytest.raises(StepFailed, match="killed by SIGKILL"):
        runner(tmp_path, does).run()
    result = runner(tmp_path, does).run()
    assert isinstance(result, ToyRef)
    assert result.word == does
    assert outcomes(tmp_path, does) == ["failed", "done"]


def test_the_words_of_an_earlier_failure_do_not_stick_to_a_later_one(tmp_path: Path) -> None:
    step = toy_step(tmp_path, "try again")
    with pytest.raises(StepFailed, match="does not answer"):
        runner(tmp_path, step=step).run()
    with pytest.raises(StepFailed, match="killed by SIGTERM"):
        _run_and(runner(tmp_path, "hang"), lambda one: one.stop())


def _run_and(one: Any, then: Any) -> None:
    """Runs in this thread, and does something once the step is at work."""
    thread = threading.Thread(target=lambda: (wait_for(lambda: "hanging" in one.log.lines), then(one)))
    thread.start()
    try:
        one.run()
    finally:
        thread.join()


def test_progress_is_told_as_it_moves(tmp_path: Path) -> None:
    one = runner(tmp_path, "progress", log=Telling(tmp_path))
    one.run()
    told = [line.split("% ")[1].split(",")[0] for line in one.log.lines if "% part" in line]
    assert told == [f"part {number}" for number in range(1, 6)]


@pytest.mark.covers("field-reports 46")
def test_nothing_that_a_step_started_outlives_it(tmp_path: Path) -> None:
    runner(tmp_path, "leave children").run()
    children = [int(pid) for pid in (tmp_path / "runs.children").read_text().split()]
    assert len(children) == 2
    assert not [pid for pid in children if alive(pid)]


def test_a_step_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    with pytest.raises(StepFailed, match="killed by SIGKILL"):
        _run_and(runner(tmp_path, "hang hard", grace_seconds=0.3), lambda one: one.stop())
    wait_for(lambda: not alive(int((tmp_path / "runs").read_text())))  # the grace may end before the kernel has


def test_an_error_in_the_task_itself_ends_the_step(tmp_path: Path) -> None:
    class Interrupt(BaseException):
        pass

    class Interrupted(Lines):
        def info(self, event: str, *args: Any) -> None:
            super().info(event, *args)
            if "hanging" in self.lines:
                raise Interrupt  # as a task's time-out does

    with pytest.raises(Interrupt):
        runner(tmp_path, "hang", log=Interrupted()).run()
    assert not alive(int((tmp_path / "runs").read_text()))
    assert outcomes(tmp_path, "hang") == ["failed"]


def test_twins_run_once(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    first, second = (
        runner(tmp_path, step=toy_step(tmp_path, gate=str(gate)), task={"run": run}) for run in ("r1", "r2")
    )
    with ThreadPoolExecutor(2) as pool:
        one = pool.submit(first.run)
        wait_for(lambda: runs(tmp_path) == 1)
        two = pool.submit(second.run)
        wait_for(lambda: any("waiting for it" in line for line in second.log.lines))
        gate.touch()
        assert one.result(60) == two.result(60)
    assert runs(tmp_path) == 1
    assert any("reused" in line for line in second.log.lines)


KILLED_TASK = """
import sys
from pathlib import Path
from tests.make.operators import runner, toy_step
folder = Path(sys.argv[1])
runner(folder, step=toy_step(folder, gate=str(folder / "gate"))).run()
"""


@pytest.mark.covers("field-reports 48")
def test_a_killed_task_takes_its_step_along_and_the_next_one_goes_on(tmp_path: Path) -> None:
    task = subprocess.Popen(
        [sys.executable, "-c", KILLED_TASK, str(tmp_path)], cwd=ROOT, env={**os.environ, "PYTHONPATH": "."}
    )
    wait_for(lambda: runs(tmp_path) == 1)
    task.send_signal(signal.SIGKILL)
    task.wait(10)
    (tmp_path / "gate").touch()
    result = runner(tmp_path, step=toy_step(tmp_path, gate=str(tmp_path / "gate"))).run()
    assert isinstance(result, ToyRef)
    assert not alive(int((tmp_path / "runs").read_text().split()[0]))
    tries = ledger(tmp_path).attempts(toy_step(tmp_path, gate=str(tmp_path / "gate")).key)
    assert [one.outcome for one in tries] == [None, "done"]  # nobody could write how the first one ended
