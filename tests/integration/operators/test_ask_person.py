"""A question to a person on a real scheduler and API server: the answer and the silence both come back as ours."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from artifacts.settings import ROOT

pytestmark = pytest.mark.airflow
PATIENCE_SECONDS = 120
ANSWER_SECONDS = 45
TOY = f'''
import datetime as dt, json
from pathlib import Path
from airflow.sdk import DAG, task
from operators.ask_operator import AskPerson, comment

with DAG("toy", schedule=None, params={{"version": 3}}) as dag:
    @task
    def which():
        return {{"subject": "Release?", "body": "| gate |"}}

    @task
    def settle(answer, run_id):
        Path(__file__).with_name(run_id).write_text(json.dumps(answer))

    asked = which()
    answer = AskPerson(
        task_id="ask", subject="{{{{ ti.xcom_pull(task_ids='which')['subject'] }}}}", body="{{{{ ti.xcom_pull(task_ids='which')['body'] }}}}",
        params=comment(), response_timeout=dt.timedelta(seconds={ANSWER_SECONDS}),
    )
    asked >> answer
    settle(answer.output)

with DAG("tick", schedule=None):
    @task
    def nothing():
        pass

    nothing()
'''  # fmt: skip


def free_port() -> int:
    with closing(socket.socket()) as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def until(ask: Callable[[], Any]) -> Any:
    """The first true answer; servers that do not answer yet are asked again."""
    end = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < end:
        try:
            if found := ask():
                return found
        except (httpx.TransportError, KeyError):
            pass
        time.sleep(0.5)
    raise TimeoutError


def environment(folder: Path, port: int) -> dict[str, str]:
    (folder / "passwords.json").write_text(json.dumps({"grace": "word"}))
    wanted = {
        "AIRFLOW_HOME": str(folder),
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{folder / 'airflow.db'}",
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__DAGS_FOLDER": str(folder / "dags"),
        "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
        "AIRFLOW__CORE__PARALLELISM": "2",
        "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": "grace:admin",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(folder / "passwords.json"),
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"http://127.0.0.1:{port}/execution/",
        "AIRFLOW__API__HOST": "127.0.0.1",
        "AIRFLOW__API__PORT": str(port),
        "AIRFLOW__API__BASE_URL": f"http://127.0.0.1:{port}",
        "AIRFLOW__API__WORKERS": "1",
        "AIRFLOW__API__SECRET_KEY": "a" * 40,
        "AIRFLOW__API_AUTH__JWT_SECRET": "b" * 64,
        "PYTHONPATH": str(ROOT),
    }
    return {**os.environ, **wanted}


@pytest.fixture
def api(tmp_path: Path) -> Iterator[httpx.Client]:
    """A logged-in client of a whole Airflow that has the toy DAG."""
    (tmp_path / "dags").mkdir()
    (tmp_path / "dags" / "toy.py").write_text(TOY)
    port = free_port()
    env = environment(tmp_path, port)
    airflow = [sys.executable, "-m", "airflow"]
    subprocess.run([*airflow, "db", "migrate"], env=env, cwd=tmp_path, check=True, capture_output=True)
    started = []
    try:
        for part in ("api-server", "scheduler", "dag-processor"):
            with (tmp_path / f"{part}.log").open("wb") as log:
                started.append(
                    subprocess.Popen(
                        [*airflow, part], env=env, cwd=tmp_path, stdout=log, stderr=log, start_new_session=True
                    )
                )
        base = f"http://127.0.0.1:{port}"
        login = {"username": "grace", "password": "word"}
        token = until(lambda: httpx.post(f"{base}/auth/token", json=login).json()["access_token"])
        with httpx.Client(
            base_url=f"{base}/api/v2", headers={"Authorization": f"Bearer {token}"}, timeout=30
        ) as client:
            until(lambda: client.get("/dags/toy").is_success and client.get("/dags/tick").is_success)
            yield client
    finally:
        for process in started:
            os.killpg(process.pid, signal.SIGTERM)
        for process in started:
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def test_an_answer_and_silence_both_come_back_and_no_worker_waits(api: httpx.Client, tmp_path: Path) -> None:
    for run in ("yes", "late"):
        body = {"dag_run_id": run, "logical_date": None, "conf": {}}
        assert api.post("/dags/toy/dagRuns", json=body).is_success
    where = "/dags/toy/dagRuns/yes/taskInstances/ask"
    until(lambda: api.get(where).json()["state"] == "awaiting_input")
    details = api.get("/dags/~/dagRuns/~/hitlDetails").json()["hitl_details"]
    asked = next(one for one in details if one["task_instance"]["dag_run_id"] == "yes")
    assert (asked["subject"], asked["body"], asked["options"]) == ("Release?", "| gate |", ["Approve", "Reject"])
    given = {"chosen_options": ["Approve"], "params_input": {"comment": "read it"}}

    def good(dag: str, run: str) -> bool:
        return bool(api.get(f"/dags/{dag}/dagRuns/{run}").json()["state"] == "success")

    # Airflow takes an answer for a crash until its scheduler has heard that the worker of the question is gone: a run that
    # begins and ends afterwards shows that it has.
    assert api.post("/dags/tick/dagRuns", json={"dag_run_id": "tick", "logical_date": None, "conf": {}}).is_success
    assert until(lambda: good("tick", "tick"))
    assert api.patch(f"{where}/-1/hitlDetails", json=given).is_success
    assert until(lambda: good("toy", "yes"))
    assert until(lambda: good("toy", "late"))
    found = {run: json.loads((tmp_path / "dags" / run).read_text()) for run in ("yes", "late")}
    assert (found["yes"]["answer"], found["yes"]["approver"], found["yes"]["comment"]) == (
        "approved",
        "grace",
        "read it",
    )
    assert found["late"] == {"answer": None, "answered_at": None, "approver": None, "comment": ""}
