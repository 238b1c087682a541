"""The whole loop through the real scheduler, unattended: cron starts features and retrain, events do the rest."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import httpx
import numpy as np
import psutil
import pytest
import tritonclient.http as triton

from operators import stack
from operators.ledger import RETRAIN, STEP_BEGUN, ledger
from operators.tasks.release import RELEASE
from operators.tasks.retrain import GATE
from operators.versions import versions
from tests.integration.e2e.conftest import PARTITION, ROW, Stack
from tests.make.operators import alive

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(2400)]

MODEL, SECOND = ROW.model, "next_hour_temperature"
Found = TypeVar("Found")


def wait_for(condition: Callable[[], Found | None], what: str, seconds: float = 1500) -> Found:
    until = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < until, (
            f"{what}: not within {seconds:.0f} s; the ledger has {[e.kind for e in ledger().entries()][-10:]}"
        )
        time.sleep(1)
    return found


def of_type(loop: Stack, dag_id: str, run_type: str, state: str = "success") -> list[dict[str, object]]:
    return [run for run in loop.airflow.runs(dag_id) if run["run_type"] == run_type and run["state"] == state]


def outcomes() -> list[object]:
    return [entry.body["outcome"] for entry in ledger().entries(RETRAIN, MODEL)]


def trainings() -> int:
    """Fits that were run; cron asks for the same day each minute, and all but the first find both of them done."""
    bodies = [entry.body for entry in ledger().entries(STEP_BEGUN)]
    return sum(body["module"] == "training.train" and body["dag"] == f"retrain__{MODEL}" for body in bodies)


def test_cron_alone_brings_a_model_into_production(loop: Stack) -> None:
    released = wait_for(lambda: ledger().entries(RELEASE, MODEL), "a first release")
    assert released[0].body["outcome"] == "promoted", released[0].body["reasons"]
    (version,) = versions(ledger(), MODEL)
    assert version.registered.partition == PARTITION
    assert version.trigger == "scheduled"
    wait_for(lambda: of_type(loop, f"retrain__{MODEL}", "scheduled"), "a scheduled retrain run")
    wait_for(lambda: of_type(loop, f"release__{MODEL}", "asset_triggered"), "the release that the package's event woke")
    verdicts = {verdict["gate"]: verdict["status"] for verdict in ledger().entries(GATE, MODEL)[0].body["verdicts"]}
    assert verdicts["G4 champion"] == "skipped"
    assert ledger().verify() == []


def test_the_second_row_is_trained_and_judged_by_the_same_dags(loop: Stack) -> None:
    (version,) = wait_for(lambda: versions(ledger(), SECOND), "a version of the second row")
    assert (version.trigger, version.evaluation_ref().task) == ("scheduled", "regression")
    judged = wait_for(lambda: ledger().entries(RELEASE, SECOND), "the release of the second row")
    assert judged[0].body["outcome"] == "promoted", judged[0].body["reasons"]
    assert of_type(loop, f"retrain__{SECOND}", "scheduled")


def test_the_gateway_answers_a_real_client(loop: Stack) -> None:
    token = Path(loop.env["PERENNIAL_GATEWAY_TOKEN_FILE"]).read_text().strip()
    address = loop.env["PERENNIAL_GATEWAY"].removeprefix("http://")
    client = triton.InferenceServerClient(address)
    values = {
        "carrier": "UA", "flight": 1545, "origin": "EWR", "dest": "IAH", "distance": 1400.0,
        "scheduled_departure": "2013-04-01T18:15:00Z", "scheduled_arrival": "2013-04-01T22:19:00Z",
    }  # fmt: skip
    kinds = {"BYTES": np.object_, "INT64": np.int64, "FP64": np.float64}
    inputs = []
    for item in ROW.serving.request:
        value = values[item.name]
        array = np.array([[value.encode() if isinstance(value, str) else value]], dtype=kinds[item.datatype])
        tensor = triton.InferInput(item.name, [1, 1], item.datatype)
        tensor.set_data_from_numpy(array)
        inputs.append(tensor)
    answer = client.infer(MODEL, inputs, headers={"Authorization": f"Bearer {token}"})
    assert 0 < float(answer.as_numpy("score").ravel()[0]) < 1
    assert httpx.post(f"{loop.env['PERENNIAL_GATEWAY']}/v2/models/{MODEL}/infer", json={}).status_code == 401


def test_the_same_partition_again_is_not_made_again(loop: Stack) -> None:
    run_id = loop.airflow.trigger(
        f"retrain__{MODEL}", {"partition": PARTITION.isoformat(), "reason": "the same day twice"}
    )
    wait_for(lambda: loop.airflow.run(f"retrain__{MODEL}", run_id)["state"] == "success", "the second run")
    assert "ALREADY_FRESH" in outcomes()
    assert len(versions(ledger(), MODEL)) == 1
    assert trainings() == 2


def test_an_event_that_comes_twice_without_a_decision_trains_nothing(loop: Stack) -> None:
    asset = next(a for a in loop.airflow.assets() if a["name"] == f"retrain/{MODEL}")
    before = len(of_type(loop, f"retrain__{MODEL}", "asset_triggered"))
    for _ in range(2):
        loop.airflow.post_event(int(asset["id"]), {"from": "a test"})
    wait_for(lambda: len(of_type(loop, f"retrain__{MODEL}", "asset_triggered")) > before, "the run that the event woke")
    assert len(versions(ledger(), MODEL)) == 1
    assert trainings() == 2


def test_stopping_while_a_step_runs_leaves_no_process(loop: Stack) -> None:
    loop.airflow.trigger(f"retrain__{MODEL}", {"partition": "2013-03-30", "reason": "stopped half-way", "force": True})

    def step() -> psutil.Process | None:
        for process in psutil.process_iter(["cmdline"]):
            words = process.info["cmdline"] or []
            if "feature_repo.training_set" in words and any(str(loop.state) in word for word in words):
                return process
        return None

    wait_for(step, "a running step")
    supervisor = stack.running(loop.state / "stack.pid")
    assert supervisor is not None
    tree = [psutil.Process(supervisor), *stack.descendants(supervisor)]
    begun = time.monotonic()
    loop.stop()
    assert time.monotonic() - begun < 8
    assert [process for process in tree if alive(process.pid)] == []
    assert step() is None
