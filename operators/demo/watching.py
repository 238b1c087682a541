"""Waiting for Airflow without taking part: the demo asks how runs are, and the ledger what came of them."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from artifacts.refs import join
from artifacts.step import Progress
from artifacts.store import read_bytes
from operators.airflow_client import AirflowClient
from operators.demo.display import Say
from operators.ledger import Ledger

POLL_SECONDS = 1.0
POLLS_PER_LOOK = 3  # the ledger is asked at every poll, Airflow's server at every third: a look costs it three requests
PATIENCE_SECONDS = 900.0
ACTIVE_STATES = {"running", "queued"}
REPORTERS = {"failed", "finish"}  # operators/endings.py, and the tasks that write how a run ended
DONE_STATES = {"success", "skipped", "failed", "upstream_failed", "removed"}

Found = TypeVar("Found")
Row = Mapping[str, Any]


class RunFailed(RuntimeError):
    """A run has failed; the message names its task, the step's own reason, and the log."""


def running_step(book: Ledger) -> tuple[str, float, str] | None:
    """The newest step that runs: its module, its fraction, what it is doing; None when none does."""
    for attempt in book.status(newest=5):
        if attempt.outcome is None:
            try:
                state = Progress.model_validate_json(
                    read_bytes(join(str(attempt.begun.body["folder"]), "progress.json"))
                )
            except (OSError, ValidationError):
                state = Progress(fraction=0, doing="")
            return str(attempt.begun.body["module"]), state.fraction, state.doing
    return None


def culprit(tasks: list[dict[str, Any]]) -> Row | None:
    """The task instance that made a run fail: of those that failed, the first to end; what only reports it is left out."""
    found = [task for task in tasks if task["state"] == "failed"]
    own = [task for task in found if task["task_id"] not in REPORTERS] or found
    return min(own, key=lambda task: str(task["end_date"]), default=None)


def log_file(logs: Path, task: Row) -> Path:
    """Where Airflow keeps the log of a task instance's last try."""
    index = [f"map_index={task['map_index']}"] if task["map_index"] >= 0 else []
    parts = (f"dag_id={task['dag_id']}", f"run_id={task['dag_run_id']}", f"task_id={task['task_id']}", *index)
    return logs.joinpath(*parts, f"attempt={task['try_number']}.log")


class Watcher:
    """Waits for what Airflow's runs bring about, and raises RunFailed as soon as one of them has failed.

    Runs that had failed before it was made belong to an earlier demo and are of no interest.
    """

    def __init__(self, airflow: AirflowClient, book: Ledger, logs: Path) -> None:
        self._airflow, self._book, self._logs = airflow, book, logs
        self._known = {run["dag_run_id"] for run in airflow.failed_runs()}

    def forgive(self, dag_id: str) -> None:
        """Takes the failed runs of a DAG for known: something is done about them."""
        self._known |= {run["dag_run_id"] for run in self._airflow.runs(dag_id) if run["state"] == "failed"}

    def active(self, dag_id: str) -> list[dict[str, Any]]:
        """The runs of a DAG that run or wait to."""
        return [run for run in self._airflow.runs(dag_id) if run["state"] in ACTIVE_STATES]

    def run(self, dag_id: str, run_id: str, say: Say) -> None:
        """Returns when a run has succeeded."""

        def succeeded() -> bool | None:
            return self._airflow.run(dag_id, run_id)["state"] == "success" or None

        self.until(succeeded, say, dag_id, seconds=math.inf)  # it has been started, so it ends one way or the other

    def until(
        self, condition: Callable[[], Found | None], say: Say, *dag_ids: str, seconds: float = PATIENCE_SECONDS
    ) -> Found:
        """Returns what the condition finds; shows the runs of these DAGs meanwhile.

        Raises RunFailed when any run fails, TimeoutError after ``seconds`` without a result.
        """
        until = time.monotonic() + seconds
        polls = itertools.count()
        while (found := condition()) is None:
            if next(polls) % POLLS_PER_LOOK == 0:
                self._look(dag_ids, say)
            if time.monotonic() > until:
                what = ", ".join(dag_ids) or "Airflow"
                raise TimeoutError(f"nothing came of {what} within {seconds:.0f} s; the runs in Airflow say more")
            time.sleep(POLL_SECONDS)
        return found

    def _look(self, dag_ids: Sequence[str], say: Say) -> None:
        self._raise_failed()
        for dag_id in dag_ids:
            for run in self.active(dag_id)[:1]:
                self._show(dag_id, run["dag_run_id"], say)

    def _raise_failed(self) -> None:
        for run in self._airflow.failed_runs():
            if run["dag_run_id"] not in self._known:
                raise RunFailed(self._why(run["dag_id"], run["dag_run_id"]))

    def _why(self, dag_id: str, run_id: str) -> str:
        task = culprit(self._airflow.tasks(dag_id, run_id))
        if task is None:
            return f"{dag_id} {run_id} failed, and none of its tasks did; the scheduler's log says more"
        attempt = self._book.of_task(dag_id, run_id, task["task_id"]).get(task["map_index"])
        said = attempt.finished.body["reason"] if attempt and attempt.finished else "its log says why"
        place = task["task_id"] if task["map_index"] < 0 else f"{task['task_id']}[{task['map_index']}]"
        return f"{dag_id} {run_id} failed in task {place}, try {task['try_number']}: {said}\nlog: {log_file(self._logs, task)}"

    def _show(self, dag_id: str, run_id: str, say: Say) -> None:
        tasks = self._airflow.tasks(dag_id, run_id)
        done = sum(task["state"] in DONE_STATES for task in tasks)
        step = running_step(self._book)
        part = step[1] if step else 0.0
        words = f"{dag_id}: {step[0]} {step[2]}" if step else f"{dag_id}: {done} of {len(tasks)} tasks"
        say((done + part) / max(len(tasks), 1), words)
