"""Checks become ledger rows and at most one decision, whatever the order and number of the events."""

import datetime as dt

import pytest
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from artifacts.refs import file_uri, join, sha256
from artifacts.step import Failure
from artifacts.store import publish, write_bytes
from operators import live
from operators.ledger import ledger
from operators.pipelines import pipeline
from operators.settings import platform
from operators.tasks import sweep
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
    return {"result": uri, "key": found.digest, "day": day}


def decide_all(results, partitions=None, run="run", package=1):
    """Ends a run of ``watch`` that was asked for these partitions, by default for those that have a result."""
    days = partitions or [result["day"] for result in results]
    asked = {"package": control.package(package).digest, "partitions": [str(day) for day in days]}
    return tasks.decide_all(ROW, asked, results, run)


def fail(day, index=0, run="run", kind="bad_data", reason="check.json: origin: NaN score"):
    """What a check that gives no result leaves: the step its own words, unless it was killed; the runner its attempt."""
    key = sha256(f"{day}{run}".encode())
    folder = join(platform().store, "steps", f"check-{day}-{run}")
    words = {"dag": f"watch__{ROW.model}", "task": "check", "run": run, "map_index": str(index), "folder": folder}
    number = ledger().begin_attempt(key, words)
    if kind in ("bad_data", "error", "try_again"):
        failure = Failure(kind=kind, reason=reason)
        write_bytes(join(folder, "failure.json"), failure.model_dump_json().encode())
    if kind != "lost":
        ledger().finish_attempt(key, number, "refused", {"reason": reason})
    return folder


def rows():
    return [entry.body for entry in ledger().entries(tasks.DRIFT, ROW.model)]


def drift_decisions():
    return [entry for entry in ledger().entries("decision", ROW.model) if entry.body["trigger"] == "drift"]


def test_without_a_live_version_there_is_nothing_to_watch():
    with pytest.raises(AirflowSkipException, match="nothing to watch"):
        tasks.choose_partitions(ROW)


def test_all_unchecked_closed_partitions_are_taken_once(tmp_path):
    go_live()
    closed(FIRST - 2 * DAY, FIRST, FIRST + DAY)
    assert tasks.choose_partitions(ROW)["partitions"] == ["2013-09-01", "2013-09-02"]
    decide_all([checked(tmp_path, 0), checked(tmp_path, 1)])
    with pytest.raises(AirflowSkipException, match="has been checked"):
        tasks.choose_partitions(ROW)


def test_every_check_gets_its_row_also_for_a_no(tmp_path):
    go_live()
    assert decide_all([checked(tmp_path, 0)]) is False
    row = ledger().entries(tasks.DRIFT, ROW.model)[-1].body
    assert row["decision"]["retrain"] is False
    assert row["decision"]["reasons"]


def test_two_hits_decide_once_and_the_same_evidence_twice_does_not_decide_again(tmp_path):
    go_live()
    results = [checked(tmp_path, n, score=0.4) for n in range(2)]
    assert decide_all(results) is True
    assert len(drift_decisions()) == 1
    assert drift_decisions()[0].body["partition"] == "2013-09-02"
    decide_all(results)
    assert len(drift_decisions()) == 1


def test_while_a_retrain_is_open_more_drift_is_merged_not_queued(tmp_path):
    go_live()
    decide_all([checked(tmp_path, n, score=0.4) for n in range(2)])
    assert decide_all([checked(tmp_path, 2, score=0.5)]) is True  # the event is sent again: the first may be lost
    assert len(drift_decisions()) == 1
    assert ledger().entries(tasks.DRIFT, ROW.model)[-1].body["decision"]["state"] == "RETRAINING"


def test_a_new_live_version_begins_its_own_history(tmp_path):
    go_live()
    decide_all([checked(tmp_path, 0, score=0.4)])
    go_live(2)
    assert decide_all([checked(tmp_path, 1, score=0.4, package=2)], package=2) is False


def test_a_check_that_refuses_its_data_is_an_incident_in_the_ledger(tmp_path):
    go_live()
    closed(FIRST, FIRST + DAY)
    folder = fail(FIRST, 0)
    assert decide_all([checked(tmp_path, 1)], [FIRST, FIRST + DAY]) is False
    bad, good = rows()
    assert (bad["partition"], bad["decision"]["state"], bad["failed"]) == ("2013-09-01", "DATA_INCIDENT", True)
    assert "check.json: origin: NaN score" in bad["decision"]["reasons"]
    assert bad["evidence_uri"] == f"{folder}/failure.json"
    assert (good["partition"], good["decision"]["state"]) == ("2013-09-02", "STABLE")


@pytest.mark.parametrize(
    ("kind", "says"),
    [("killed", "SIGKILL"), ("lost", "its worker was lost"), ("error", "SIGKILL"), ("try_again", "SIGKILL")],
)
def test_a_check_that_could_not_run_is_no_incident_of_the_data_and_no_pass(kind, says):
    go_live()
    closed(FIRST)
    fail(FIRST, kind=kind, reason="killed by SIGKILL")
    assert decide_all([], [FIRST]) is False
    assert rows()[0]["decision"]["state"] == "CHECK_FAILED"
    assert any(says in reason for reason in rows()[0]["decision"]["reasons"])


def test_a_check_whose_step_never_began_is_told_all_the_same():
    go_live()
    closed(FIRST)
    decide_all([], [FIRST])
    assert "no step was begun; the task's log says why" in rows()[0]["decision"]["reasons"]


def test_a_broken_newest_day_blocks_the_retrain_that_older_days_ask_for(tmp_path):
    go_live()
    closed(*(FIRST + n * DAY for n in range(3)))
    fail(FIRST + 2 * DAY, 2)
    hits = [checked(tmp_path, n, score=0.4) for n in range(2)]
    assert decide_all(hits, [FIRST + n * DAY for n in range(3)]) is False
    assert drift_decisions() == []
    assert rows()[1]["decision"]["suppressed_by"] == "superseded"


def test_an_old_day_that_is_mended_late_is_evidence_and_triggers_nothing(tmp_path):
    go_live()
    closed(*(FIRST + n * DAY for n in range(3)))
    fail(FIRST + DAY, 1)
    assert (
        decide_all([checked(tmp_path, 0, score=0.4), checked(tmp_path, 2)], [FIRST, FIRST + DAY, FIRST + 2 * DAY])
        is False
    )
    assert decide_all([checked(tmp_path, 1, score=0.4)], run="later") is False
    assert drift_decisions() == []


def test_a_day_that_fails_for_good_is_given_up_until_its_data_change(tmp_path):
    go_live()
    closed(FIRST)
    for number in range(ROW.drift.failed_checks):
        assert tasks.choose_partitions(ROW)["partitions"] == ["2013-09-01"]
        assert sweep.unfinished(ROW)["partitions"] == ["2013-09-01"]
        fail(FIRST, run=f"run-{number}")
        decide_all([], [FIRST], run=f"run-{number}")
        decide_all([], [FIRST], run=f"run-{number}")  # the task was tried again: one row per run
    assert len(rows()) == ROW.drift.failed_checks
    assert any("left alone until its data change" in reason for reason in rows()[-1]["decision"]["reasons"])
    with pytest.raises(AirflowSkipException, match="has been checked"):
        tasks.choose_partitions(ROW)
    assert sweep.unfinished(ROW)["partitions"] == []
    assert tasks.choose_partitions(ROW, by_hand=True)["partitions"] == ["2013-09-01"]
    with publish(join(platform().store, "predictions", ROW.model, "2013-09-01"), "predictions") as draft:
        (draft.path / "predictions.parquet").write_text("mended")
        draft.facts["rows"] = 900
    assert tasks.choose_partitions(ROW)["partitions"] == ["2013-09-01"]
    decide_all([checked(tmp_path, 0)], run="mended")
    with pytest.raises(AirflowSkipException, match="has been checked"):
        tasks.choose_partitions(ROW, by_hand=True)


def test_what_another_version_has_overtaken_is_no_failure(tmp_path):
    go_live()
    closed(FIRST)
    go_live(2)
    assert decide_all([], [FIRST]) is False
    assert rows() == []


def test_a_data_clock_that_has_gone_back_is_refused(tmp_path):
    champion = control.deployed(1).model_copy(update={"promoted_at": live.now() + DAY})
    routing = Routing(model=ROW.model, champion=champion).model_dump(mode="json")
    live.records().put(Routing.record(ROW.model), routing, 0)
    with pytest.raises(AirflowFailException, match=r"before version 1 went live.*it has gone back"):
        tasks.choose_partitions(ROW)
