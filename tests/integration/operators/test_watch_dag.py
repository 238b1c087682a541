"""The ``watch`` DAG as Airflow runs it: mapped checks of which one fails, the row it gets, and runs with nothing to do."""

from __future__ import annotations

import datetime as dt
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from artifacts.refs import join
from artifacts.settings import ROOT
from artifacts.store import publish
from monitoring.contract import CheckRef, ReferenceRef
from operators import live
from operators.calls import watch as calls
from operators.ledger import ledger
from operators.pages import load_dags
from operators.payload import PENDING, StepCall
from operators.pipelines import pipeline
from operators.settings import platform
from operators.tasks.watch import DRIFT
from serving.contract import Routing
from tests.make import control
from tests.make.check_step import StandInSpec

pytestmark = pytest.mark.airflow
ROW = pipeline("flight_delay")
DAYS = (dt.date(2013, 9, 1), dt.date(2013, 9, 2), dt.date(2013, 9, 3))
BAD = DAYS[1]
PACKAGE = control.package(1).digest


def _call(result: type, name: str, spec: Any) -> StepCall:
    return StepCall(
        "tests.make.check_step",
        "monitoring",
        spec,
        result,
        output=lambda _, key: join(platform().store, name, key[7:19]),
    )


def reference(_row: object) -> StepCall:
    return _call(ReferenceRef, "references", lambda asked: StandInSpec(package=asked["package"], output=PENDING))


def check(_row: object) -> StepCall:
    def spec(partition: str, frozen: object) -> StandInSpec:
        day = dt.date.fromisoformat(partition)
        return StandInSpec(package=PACKAGE, partition=day, bad=day == BAD, output=PENDING)

    return _call(CheckRef, "checks", spec)


@pytest.fixture
def dag(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    control.deployment(tmp_path, monkeypatch, dt.datetime(2013, 9, 10, 15, tzinfo=dt.UTC))
    subprocess.run([sys.executable, "-m", "airflow", "db", "migrate"], cwd=ROOT, check=True, capture_output=True)
    monkeypatch.setattr(calls, "reference", reference)
    monkeypatch.setattr(calls, "check", check)
    return load_dags(ROOT / "dags")[f"watch__{ROW.model}"]


def test_a_bad_day_gets_its_row_the_others_theirs_and_the_run_is_red(dag: Any) -> None:
    assert dag.test().state == "success"  # nothing is live, so every task is skipped
    routing = Routing(model=ROW.model, champion=control.deployed(1)).model_dump(mode="json")
    live.records().put(Routing.record(ROW.model), routing, 0)
    for day in DAYS:
        with publish(join(platform().store, "predictions", ROW.model, day.isoformat()), "predictions") as draft:
            (draft.path / "predictions.parquet").write_text(str(day))
            draft.facts["rows"] = 900
    run = dag.test()
    states = {entry.body["partition"]: entry.body["decision"]["state"] for entry in ledger().entries(DRIFT, ROW.model)}
    assert states == {"2013-09-01": "STABLE", "2013-09-02": "DATA_INCIDENT", "2013-09-03": "STABLE"}
    assert run.state == "failed"
    assert {ti.task_id: ti.state for ti in run.get_task_instances() if ti.task_id in ("decide", "failed")} == {
        "decide": "success",
        "failed": "failed",
    }
