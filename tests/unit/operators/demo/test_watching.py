"""The demo sees a failed run at once, also one that failed before it looked, and says which task and where its log is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from artifacts.refs import sha256
from operators.airflow_client import AirflowClient
from operators.demo import watching
from operators.demo.watching import RunFailed, Watcher
from operators.ledger import Ledger
from tests.make.operators import ledger

DAG, RUN = "watch__flight_delay", "asset__1"


class Airflow:
    """The answers of a small Airflow: its runs and their task instances; ``asked`` counts looks at failed runs."""

    def __init__(self) -> None:
        self.runs: list[dict[str, Any]] = []
        self.tasks: list[dict[str, Any]] = []
        self.asked = 0

    def run(self, state: str, run_id: str = RUN) -> None:
        self.runs = [one for one in self.runs if one["dag_run_id"] != run_id]
        self.runs.append({"dag_id": DAG, "dag_run_id": run_id, "state": state})

    def task(self, task_id: str, state: str, end: str, map_index: int = -1, **changes: Any) -> None:
        self.tasks.append({
            "dag_id": DAG, "dag_run_id": RUN, "task_id": task_id, "state": state, "end_date": end, "map_index": map_index, "try_number": 2, **changes
        })  # fmt: skip

    def __call__(self, request: httpx.Request) -> httpx.Response:
        path = request.url.path
        if path == "/auth/token":
            return httpx.Response(201, json={"access_token": "t"})
        if path == "/api/v2/dags/~/dagRuns":
            assert request.url.params["state"] == "failed"
            self.asked += 1
            return httpx.Response(200, json={"dag_runs": [one for one in self.runs if one["state"] == "failed"]})
        if path == f"/api/v2/dags/{DAG}/dagRuns":
            return httpx.Response(200, json={"dag_runs": self.runs})
        if path.endswith("/taskInstances"):
            return httpx.Response(200, json={"task_instances": self.tasks})
        return httpx.Response(200, json=next(one for one in self.runs if path.endswith(one["dag_run_id"])))


@pytest.fixture
def book(tmp_path: Path) -> Ledger:
    return ledger(tmp_path)


@pytest.fixture
def airflow(monkeypatch: pytest.MonkeyPatch) -> Airflow:
    monkeypatch.setattr(watching, "POLL_SECONDS", 0.0)
    return Airflow()


def watcher(airflow: Airflow, book: Ledger, folder: Path) -> Watcher:
    passwords = folder / "passwords.json"
    passwords.write_text(json.dumps({"demo": "secret"}))
    client = AirflowClient("http://airflow", "demo", passwords, httpx.MockTransport(airflow))
    return Watcher(client, book, folder / "logs")


def quiet(_fraction: float, _words: str) -> None:
    """Says nothing."""


def test_a_run_that_failed_before_the_wait_began_ends_it_at_once(
    airflow: Airflow, book: Ledger, tmp_path: Path
) -> None:
    made = watcher(airflow, book, tmp_path)
    airflow.run("failed")
    airflow.task("decide", "failed", "2013-09-01T00:00:09Z")
    with pytest.raises(RunFailed):
        made.until(lambda: None, quiet, "another_dag")
    assert airflow.asked == 2  # once when it was made, once in the first look


def test_it_names_the_task_that_failed_first_its_reason_and_its_log(
    airflow: Airflow, book: Ledger, tmp_path: Path
) -> None:
    made = watcher(airflow, book, tmp_path)
    airflow.run("failed")
    airflow.task("choose", "success", "2013-09-01T00:00:01Z")
    airflow.task("finish", "failed", "2013-09-01T00:00:02Z")
    airflow.task("check", "failed", "2013-09-01T00:00:05Z", map_index=3)
    airflow.task("check", "failed", "2013-09-01T00:00:04Z", map_index=1)
    airflow.task("spread", "upstream_failed", "2013-09-01T00:00:00Z")
    key = sha256(b"check 1")
    words = {
        "dag": DAG,
        "run": RUN,
        "task": "check",
        "map_index": "1",
        "module": "monitoring.check",
        "folder": "file:///s",
    }
    book.finish_attempt(key, book.begin_attempt(key, words), "refused", {"reason": "exit 65: origin: NaN"})
    with pytest.raises(RunFailed) as caught:
        made.until(lambda: None, quiet, DAG)
    said, log = str(caught.value).splitlines()
    assert said == f"{DAG} {RUN} failed in task check[1], try 2: exit 65: origin: NaN"
    assert log == f"log: {tmp_path}/logs/dag_id={DAG}/run_id={RUN}/task_id=check/map_index=1/attempt=2.log"


def test_a_task_without_a_step_points_to_its_log(airflow: Airflow, book: Ledger, tmp_path: Path) -> None:
    made = watcher(airflow, book, tmp_path)
    airflow.run("failed")
    airflow.task("settle", "failed", "2013-09-01T00:00:05Z")
    airflow.task("failed", "failed", "2013-09-01T00:00:01Z")
    with pytest.raises(
        RunFailed, match=r"in task settle, try 2: its log says why\nlog: .*/task_id=settle/attempt=2\.log"
    ):
        made.run(DAG, RUN, quiet)


def test_runs_that_had_failed_before_the_demo_are_of_an_earlier_one(
    airflow: Airflow, book: Ledger, tmp_path: Path
) -> None:
    airflow.run("failed", "earlier")
    made = watcher(airflow, book, tmp_path)
    answers = iter([None, None, "found"])
    assert made.until(lambda: next(answers), quiet, DAG) == "found"
    airflow.run("failed")
    made.forgive(DAG)
    answers = iter([None, "found"])
    assert made.until(lambda: next(answers), quiet, DAG) == "found"


def test_a_started_run_is_shown_until_it_has_succeeded(airflow: Airflow, book: Ledger, tmp_path: Path) -> None:
    made = watcher(airflow, book, tmp_path)
    airflow.run("running")
    airflow.task("choose", "success", "")
    airflow.task("check", "running", "")
    said: list[tuple[float, str]] = []

    def say(fraction: float, words: str) -> None:
        said.append((fraction, words))
        airflow.run("success")

    made.run(DAG, RUN, say)
    assert said == [(0.5, f"{DAG}: 1 of 2 tasks")]


def test_nothing_at_all_ends_in_time(airflow: Airflow, book: Ledger, tmp_path: Path) -> None:
    with pytest.raises(TimeoutError, match=f"nothing came of {DAG}"):
        watcher(airflow, book, tmp_path).until(lambda: None, quiet, DAG, seconds=-1)
