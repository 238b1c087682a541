"""Checks become ledger rows and at most one decision, whatever the order and number of the events."""

import datetime as dt

import pytest
from airflow.sdk.exceptions import AirflowSkipException

from artifacts.refs import file_uri, join
from artifacts.store import publish, write_bytes
from operators import live
from operators.ledger import ledger
from operators.pipelines import pipeline
from operators.settings import platform
from operators.tasks import watch as tasks
from serving.contract import Routing
from tests.make import control
from tests.make.monitoring import check_ref

ROW = pipeline("flight_delay")
DAY = dt.timedelta(days=1)
FIRST = dt.date(2013, 9, 1)


@pytest.fixture(autouse=True)
def _deployment(tmp_path, monkeypatch):
    control.deployment(tmp_path, monkeypatch, dt.datetime(2013, 9, 10, 15, tzinfo=dt.UTC))


def go_live(number=1):
    _, version = live.routing(ROW.model)
    champion = control.deployed(number)
    live.records().put(
        Routing.record(ROW.model), Routing(model=ROW.model, champion=champion).model_dump(mode="json"), version
    )
    return champion


def closed(*days):
    for day in days:
        with publish(join(platform().store, "predictions", ROW.model, day.isoformat()), "predictions") as draft:
            (draft.path / "predictions.parquet").write_text(day.isoformat())
            draft.facts["rows"] = 900


def checked(folder, number, *, score=0.1, prediction=0.05, package=1):
    day = FIRST + number * DAY
    found = check_ref(
        score,
        partition=day,
        prediction_psi=prediction,
        prediction_threshold=0.2,
        package_digest=control.package(package).digest,
    )
    uri = file_uri(folder / f"check-{day}-{package}-{score}.json")
    write_bytes(uri, found.model_dump_json().encode())
    return {"result": uri, "key": found.digest}


def drift_decisions():
    return [entry for entry in ledger().entries("decision", ROW.model) if entry.body["trigger"] == "drift"]


def test_without_a_live_version_there_is_nothing_to_watch():
    with pytest.raises(AirflowSkipException, match="nothing to watch"):
        tasks.choose_partitions(ROW)


def test_all_unchecked_closed_partitions_are_taken_once(tmp_path):
    go_live()
    closed(FIRST - 2 * DAY, FIRST, FIRST + DAY)
    assert tasks.choose_partitions(ROW)["partitions"] == ["2013-09-01", "2013-09-02"]
    tasks.decide_all(ROW, [checked(tmp_path, 0), checked(tmp_path, 1)])
    with pytest.raises(AirflowSkipException, match="has been checked"):
        tasks.choose_partitions(ROW)


def test_every_check_gets_its_row_also_for_a_no(tmp_path):
    go_live()
    assert tasks.decide_all(ROW, [checked(tmp_path, 0)]) is False
    row = ledger().entries(tasks.DRIFT, ROW.model)[-1].body
    assert row["decision"]["retrain"] is False
    assert row["decision"]["reasons"]


def test_two_hits_decide_once_and_the_same_evidence_twice_does_not_decide_again(tmp_path):
    go_live()
    results = [checked(tmp_path, n, score=0.4) for n in range(2)]
    assert tasks.decide_all(ROW, results) is True
    assert len(drift_decisions()) == 1
    assert drift_decisions()[0].body["partition"] == "2013-09-02"
    tasks.decide_all(ROW, results)
    assert len(drift_decisions()) == 1


def test_while_a_retrain_is_open_more_drift_is_merged_not_queued(tmp_path):
    go_live()
    tasks.decide_all(ROW, [checked(tmp_path, n, score=0.4) for n in range(2)])
    assert (
        tasks.decide_all(ROW, [checked(tmp_path, 2, score=0.5)]) is True
    )  # the event is sent again: the first may be lost
    assert len(drift_decisions()) == 1
    assert ledger().entries(tasks.DRIFT, ROW.model)[-1].body["decision"]["state"] == "RETRAINING"


def test_a_new_live_version_begins_its_own_history(tmp_path):
    go_live()
    tasks.decide_all(ROW, [checked(tmp_path, 0, score=0.4)])
    go_live(2)
    assert tasks.decide_all(ROW, [checked(tmp_path, 1, score=0.4, package=2)]) is False
