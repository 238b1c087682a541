"""The ``release`` DAG as Airflow runs it: a rollback with a real projection onto a real MLflow, and runs without work."""

from __future__ import annotations

import datetime as dt
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from artifacts.settings import ROOT
from operators import live
from operators.calls import release as calls
from operators.ledger import ledger
from operators.pages import load_dags
from operators.payload import Skip, StepCall
from operators.pipelines import pipeline
from operators.rollout import promoted
from operators.settings import platform
from operators.tasks import release as tasks
from operators.versions import record
from serving.contract import Routing, StageRef
from tests.make import control
from training.mlflow_store import CHAMPION, PREVIOUS, Registry, prepare

pytestmark = pytest.mark.airflow
ROW = pipeline("flight_delay")
DAYS = (dt.date(2013, 8, 31), dt.date(2013, 9, 8))


def nothing_to_load(_row: object) -> StepCall:
    """Stands in for what needs a Triton."""
    return StepCall("serving.stage", "serving", lambda **_: Skip("there is no Triton here"), StageRef, effect=True)


@pytest.fixture
def dags(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    control.deployment(tmp_path, monkeypatch, dt.datetime(2013, 9, 10, 15, tzinfo=dt.UTC))
    subprocess.run([sys.executable, "-m", "airflow", "db", "migrate"], cwd=ROOT, check=True, capture_output=True)
    for name in ("stage", "unstage"):
        monkeypatch.setattr(calls, name, nothing_to_load)
    settle = tasks.settle
    monkeypatch.setattr(tasks, "settle", lambda *given: settle(*given, lambda *_: None))
    return load_dags(ROOT / "dags")


def two_versions(folder: Path) -> Registry:
    """Versions 1 and 2, in the ledger and in MLflow; 2 is live, and a hand has set the aliases."""
    prepare(platform().mlflow)
    registry, routing = Registry(platform().mlflow), Routing(model=ROW.model)
    for number, day in enumerate(DAYS, start=1):
        version = control.version(folder, number, day)
        record(ledger(), version)
        key, package = version.registered.training_key, version.registered.package
        tags = {"training_key": key, "package_digest": package.digest, "package_uri": package.uri}
        run_id = registry.run(ROW.model, key, {})
        assert registry.create(ROW.model, f"perennial://{number}", run_id, tags).number == number
        routing = promoted(routing, control.deployed(number, day))
    live.records().put(Routing.record(ROW.model), routing.model_dump(mode="json"), 0)
    registry.point(ROW.model, CHAMPION, 2)
    registry.point(ROW.model, PREVIOUS, 1)
    return registry


@pytest.mark.covers("field-reports 79", "bad evidence: alias by hand")
def test_a_click_rolls_back_and_the_aliases_follow_not_the_hand_that_moved_them(
    dags: dict[str, Any], tmp_path: Path
) -> None:
    assert dags[f"approve__{ROW.model}"].test().state == "success"  # nobody has to be asked
    assert dags[f"release__{ROW.model}"].test().state == "success"  # nothing waits
    registry = two_versions(tmp_path)
    run = dags[f"release__{ROW.model}"].test(run_conf={"rollback": True, "reason": "latency"})
    states = {ti.task_id: ti.state for ti in run.get_task_instances()}
    assert run.state == "success", states
    skipped = {"stage", "judge", "challenge", "unstage", "failed"}
    assert {name for name, state in states.items() if state == "skipped"} == skipped
    champion = live.routing(ROW.model)[0].champion
    assert champion is not None
    assert champion.version == 1
    assert registry.aliases(ROW.model) == {CHAMPION: 1, PREVIOUS: 2}
    overruled = ledger().entries(tasks.OVERRULED, ROW.model)[-1].body["aliases"]
    assert overruled == ["champion=2", "previous=1"]
    promotion = ledger().entries(tasks.PROMOTION, ROW.model)[-1].body
    assert (promotion["rollback"], promotion["from"]["version"], promotion["to"]["version"]) == (True, 2, 1)


def test_a_backfill_without_a_gap_ends_green_and_trains_nothing(dags: dict[str, Any]) -> None:
    run = dags[f"backfill__{ROW.model}"].test()
    assert run.state == "success"
    assert {ti.state for ti in run.get_task_instances() if ti.task_id != "finish"} == {"skipped"}
