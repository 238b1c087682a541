"""The ``watch`` DAG as Airflow runs it: mapped checks of which one fails, the row it gets, and runs with nothing to do."""

from __future__ import annotations

import datetime as dt
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from airflow.models.asset import AssetEvent, AssetModel, DagScheduleAssetReference
from airflow.utils.session import create_session
from sqlalchemy import func, select

from artifacts.refs import join
from artifacts.settings import ROOT
from artifacts.store import publish
from monitoring.contract import CheckRef, ReferenceRef
from monitoring.effect_contract import EffectRef
from operators import live
from operators.calls import watch as calls
from operators.ledger import DECISION, ledger
from operators.notices import NOTICE
from operators.pages import load_dags
from operators.payload import PENDING, StepCall
from operators.pipelines import pipeline
from operators.settings import platform
from operators.tasks.effects import EFFECT
from operators.tasks.release import RELEASE
from operators.tasks.watch import DRIFT
from plugins.board.alerts import wake
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


def effect(_row: object) -> StepCall:
    def spec(decision: int) -> StandInSpec:
        return StandInSpec(package=PACKAGE, replaces=True, output=PENDING)

    return _call(EffectRef, "effects", spec)


@pytest.fixture
def dag(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    control.deployment(tmp_path, monkeypatch, dt.datetime(2013, 9, 10, 15, tzinfo=dt.UTC))
    subprocess.run([sys.executable, "-m", "airflow", "db", "migrate"], cwd=ROOT, check=True, capture_output=True)
    monkeypatch.setattr(calls, "reference", reference)
    monkeypatch.setattr(calls, "check", check)
    monkeypatch.setattr(calls, "effect", effect)
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
    told = [entry.body["facts"] for entry in ledger().entries(NOTICE, ROW.model)]
    assert [(fact["from"], fact["to"]) for fact in told] == [("STABLE", "DATA_INCIDENT"), ("DATA_INCIDENT", "STABLE")]  # type: ignore[index,call-overload]


def test_a_drift_retrain_that_is_due_is_replayed_though_there_is_nothing_to_check(dag: Any) -> None:
    body = {"trigger": "drift", "cause": "drift", "partition": "2013-08-30", "package_digest": "old"}
    promoted = dt.datetime(2013, 9, 2, 15, tzinfo=dt.UTC)
    decision = ledger().append(DECISION, ROW.model, body, at=promoted)
    ledger().close_decision(decision, "trained", {"package": PACKAGE}, at=promoted)
    ledger().append(RELEASE, ROW.model, {"package": PACKAGE, "outcome": "promoted"}, at=promoted)
    with publish(join(platform().store, "predictions", ROW.model, "2013-09-03"), "predictions") as draft:
        (draft.path / "predictions.parquet").write_text("3")
        draft.facts["rows"] = 900
    assert dag.test().state == "success"
    written: Any = [entry.body for entry in ledger().entries(EFFECT, ROW.model)]
    assert [(row["decision"], row["effect"]["helped"]) for row in written] == [(decision.id, True)]
    assert written[0]["precision"]["words"] == "1 of the last 1 drift retrains helped"
    assert dag.test().state == "success"
    assert len(ledger().entries(EFFECT, ROW.model)) == 1


def test_the_event_of_an_alert_is_one_that_airflow_gives_to_watch(dag: Any) -> None:
    dag.test()  # brings the DAG and its assets into the database
    with create_session() as session:
        before = session.scalar(select(func.max(AssetEvent.id))) or 0
    wake(ROW.model)
    with create_session() as session:
        events = select(AssetModel.name).join(AssetEvent, AssetEvent.asset_id == AssetModel.id)
        names = session.scalars(events.where(AssetEvent.id > before)).all()
        waiting = session.scalars(
            select(DagScheduleAssetReference.dag_id).join(AssetModel).where(AssetModel.name == names[0])
        )
        assert (list(names), list(waiting)) == (["alerts/flight_delay"], [dag.dag_id])
