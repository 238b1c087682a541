"""Waiting for Airflow without taking part: the demo asks how runs are, and the ledger what came of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from pydantic import ValidationError

from artifacts.refs import join
from artifacts.step import Progress
from artifacts.store import read_bytes
from operators.airflow_client import AirflowClient
from operators.demo.display import Say
from operators.ledger import STEP_FINISHED, Ledger

POLL_SECONDS = 1.0
DONE_STATES = {"success", "skipped", "failed", "upstream_failed", "removed"}

Found = TypeVar("Found")


class RunFailed(RuntimeError):
    """A run that the demo waits for has failed; the message has the step's own reason."""


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


def _reason(book: Ledger) -> str:
    failed = [
        entry for entry in book.entries(STEP_FINISHED, newest=20) if entry.body["outcome"] in ("failed", "refused")
    ]
    return str(failed[-1].body["reason"]) if failed else "no step left a reason; look at the task's log"


def _show(airflow: AirflowClient, dag_id: str, run_id: str, book: Ledger, say: Say) -> None:
    tasks = airflow.tasks(dag_id, run_id)
    done = sum(task["state"] in DONE_STATES for task in tasks)
    step = running_step(book)
    part = step[1] if step else 0.0
    words = f"{dag_id}: {step[0]} {step[2]}" if step else f"{dag_id}: {done} of {len(tasks)} tasks"
    say((done + part) / max(len(tasks), 1), words)


def wait_for_run(airflow: AirflowClient, dag_id: str, run_id: str, book: Ledger, say: Say) -> None:
    """Returns when a run has succeeded; raises RunFailed with the reason when it has not."""
    while True:
        state = airflow.run(dag_id, run_id)["state"]
        if state == "success":
            return
        if state == "failed":
            raise RunFailed(f"{dag_id} {run_id} failed: {_reason(book)}")
        _show(airflow, dag_id, run_id, book, say)
        time.sleep(POLL_SECONDS)


def wait_until(
    condition: Callable[[], Found | None],
    airflow: AirflowClient,
    dag_ids: Sequence[str],
    book: Ledger,
    say: Say,
    seconds: float,
) -> Found:
    """Returns what the condition finds; the runs that bring it about are started by Airflow, not by us.

    Raises RunFailed when a run of these DAGs fails meanwhile, TimeoutError after ``seconds`` without a result.
    """
    failed_before = {
        run["dag_run_id"] for dag_id in dag_ids for run in airflow.runs(dag_id) if run["state"] == "failed"
    }
    until = time.monotonic() + seconds
    while (found := condition()) is None:
        for dag_id in dag_ids:
            for run in airflow.runs(dag_id)[:3]:
                if run["state"] == "failed" and run["dag_run_id"] not in failed_before:
                    raise RunFailed(f"{dag_id} {run['dag_run_id']} failed: {_reason(book)}")
                if run["state"] == "running":
                    _show(airflow, dag_id, run["dag_run_id"], book, say)
        if time.monotonic() > until:
            raise TimeoutError(
                f"nothing came of {', '.join(dag_ids)} within {seconds:.0f} s; their runs in Airflow say more"
            )
        time.sleep(POLL_SECONDS)
    return found
