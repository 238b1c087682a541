"""Checks become ledger rows and at most one decision, whatever the order and number of the events."""

import dataclasses
import datetime as dt
import sys

import pytest
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from artifacts.clock import DataClock
from artifacts.refs import file_uri, join, sha256
from artifacts.step import Failure
from artifacts.store import publish, write_bytes
from monitoring.policy import decide
from operators import live
from operators.ledger import DECISION, ledger
from operators.pipelines import pipeline
from operators.plans import checks as specs
from operators.plans import watch as plans
from operators.settings import platform
from operators.tasks import release, sweep
from operators.tasks import watch as tasks
from operators.versions import record
from serving.contract import Routing
from tests.make import control
from tests.make import monitoring as make
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


@pytest.mark.covers("drift input 6")
def test_a_data_clock_that_has_gone_back_is_refused(tmp_path):
    champion = control.deployed(1).model_copy(update={"promoted_at": live.now() + DAY})
    routing = Routing(model=ROW.model, champion=champion).model_dump(mode="json")
    live.records().put(Routing.record(ROW.model), routing, 0)
    with pytest.raises(AirflowFailException, match=r"before version 1 went live.*it has gone back"):
        tasks.choose_partitions(ROW)


def retrained(number, *, promoted, scores=None, trigger="drift", cause="drift"):
    """A decision, its run's end, its version's release, and the scores of the checks before and after it."""
    book, package = ledger(), control.package(number).digest
    body = {"trigger": trigger, "cause": cause, "partition": "2013-09-02", "reasons": ["drift"]}
    if scores:
        body["check"] = scored(number, scores[0], "another version").id
    decision = book.append(DECISION, ROW.model, body, unique=sha256(f"decision {number}".encode()))
    book.close_decision(decision, "trained", {"package": package})
    book.append(release.RELEASE, ROW.model, {"package": package, "outcome": "promoted" if promoted else "refused"})
    if promoted:
        said = {"decision": decision.id, "rollback": False, "package": package}
        book.append(release.PROMOTION, ROW.model, said)
    if scores:
        scored(number, scores[1], package)
    later(4)
    return decision


def scored(number, score, package):
    digest = package if package.startswith("sha256") else sha256(package.encode())
    row = make.check_row(number, score, package_digest=digest)
    return ledger().append(tasks.DRIFT, ROW.model, {"package_digest": digest, "row": row.model_dump(mode="json")})


def remembered():
    book = ledger()
    ends, said = book.closures(ROW.model), book.entries(release.RELEASE, ROW.model)
    return plans.retrains(
        book.entries(DECISION, ROW.model), ends, said, book.entries(tasks.DRIFT, ROW.model), ROW.drift
    )


def later(days):
    DataClock("replay", live.records()).advance(live.now() + days * DAY)


@pytest.mark.covers("field-reports 29")
def test_a_drift_retrain_is_remembered_with_its_evidence_and_what_came_of_it(tmp_path):
    go_live()
    decide_all([checked(tmp_path, n, score=0.4) for n in range(2)])
    decision = drift_decisions()[0]
    assert (decision.body["cause"], decision.unique) == ("drift", remembered()[0].trigger_id)
    assert (remembered()[0].score_before, remembered()[0].score_after) == (0.4, None)
    package = control.package(2).digest
    ledger().close_decision(decision, "trained", {"package": package})
    decide_all([checked(tmp_path, 2, score=0.15, package=2)], package=2)
    assert remembered()[0].score_after == 0.15


def test_a_score_that_did_not_ask_is_not_held_against_the_retrain(tmp_path):
    """Predictions moved while the features' score was low: that the score did not fall says nothing of the retrain."""
    go_live()
    decide_all([checked(tmp_path, n, score=0.05, prediction=0.4) for n in range(2)])
    assert drift_decisions()
    assert remembered()[0].score_before is None


@pytest.mark.parametrize(("after", "state"), [(0.39, "OPEN"), (0.1, "TRIGGERED")])
def test_drifts_own_promotion_closes_no_breaker_unless_it_helped(tmp_path, after, state):
    go_live()
    retrained(2, promoted=False)
    retrained(3, promoted=True, scores=(0.4, after))
    later(7)
    decide_all([checked(tmp_path, n, score=0.4) for n in range(2)])
    assert rows()[-1]["decision"]["state"] == state


@pytest.mark.parametrize(("trigger", "cause"), [("scheduled", None), ("manual", None), ("drift", "staleness")])
def test_a_promotion_that_drift_had_not_asked_for_closes_the_breaker(tmp_path, trigger, cause):
    go_live()
    retrained(2, promoted=False)
    retrained(3, promoted=False)
    results = [checked(tmp_path, n, score=0.4) for n in range(2)]
    assert decide_all(results) is False
    assert rows()[-1]["decision"]["state"] == "OPEN"
    retrained(4, promoted=True, trigger=trigger, cause=cause or "drift")
    later(7)
    assert decide_all([checked(tmp_path, n, score=0.4) for n in (2, 3)]) is True


def test_a_rollback_does_not_close_the_breaker():
    decisions = [retrained(2, promoted=False)]
    said = {"decision": None, "rollback": True, "package": control.package(1).digest}
    ledger().append(release.PROMOTION, ROW.model, said)
    assert plans.breaker_closed_at(ledger().entries(release.PROMOTION, ROW.model), decisions) is None


def asked_gate(day, run, kind):
    """A check of a raw day's data as the features DAG leaves it in ledger and store."""
    lake = ROW.repo.lake(platform().store)
    folder = join(platform().store, "steps", f"validate-{run}")
    with publish(join(lake, day.isoformat()), "raw_day") as draft:
        (draft.path / "rows.parquet").write_text(run)
    spec = specs.raw_days(ROW.repo, platform().store, [day], "file:///pending")
    write_bytes(join(folder, "spec.json"), spec.model_dump_json().encode())
    words = {"module": "feature_repo.validate", "dag": "features__flights", "run": run, "folder": folder}
    key = sha256(run.encode())
    number = ledger().begin_attempt(key, words)
    if kind != "done":
        write_bytes(join(folder, "failure.json"), Failure(kind=kind, reason="AA: 0 rows").model_dump_json().encode())
    ledger().finish_attempt(key, number, "done" if kind == "done" else "refused", {"reason": "AA: 0 rows"})


def test_data_that_the_gate_has_refused_hold_a_retrain_back(tmp_path):
    go_live()
    asked_gate(FIRST + DAY, "first", "bad_data")
    assert decide_all([checked(tmp_path, n, score=0.4) for n in range(2)]) is False
    assert rows()[-1]["decision"]["state"] == "DATA_INCIDENT"
    assert "raw_day: AA: 0 rows" in rows()[-1]["decision"]["reasons"]


@pytest.mark.parametrize(("day", "second"), [(FIRST + DAY, "done"), (FIRST + DAY, "try_again"), (FIRST, None)])
def test_what_was_mended_or_could_not_be_asked_or_is_about_another_day_holds_nothing(tmp_path, day, second):
    go_live()
    asked_gate(day, "first", "bad_data")
    if second:
        asked_gate(day, "second", second)
    assert decide_all([checked(tmp_path, n, score=0.4) for n in range(2)]) is True


def test_the_policy_hears_how_old_the_live_version_is(tmp_path, monkeypatch):
    record(ledger(), control.version(tmp_path, 1))
    go_live()
    heard = []
    monkeypatch.setattr(
        tasks, "decide", lambda checks, situation, policy: heard.append(situation) or decide(checks, situation, policy)
    )
    decide_all([checked(tmp_path, 0)])
    assert heard[0].trained_through == dt.date(2013, 8, 30)
    assert heard[0].scheduled is None


# --- what comes from outside ---------------------------------------------------------------------------------------


def alert(day, number=0):
    body = {"partition": day.isoformat(), "words": "the pager went off"}
    return ledger().append(tasks.ALERT, ROW.model, body, unique=f"alert {day} {number}")


def labelled(day, rows):
    with publish(join(platform().store, "feedback", ROW.model, day.isoformat()), "feedback") as draft:
        (draft.path / "feedback.parquet").write_text(f"{day} {rows}")
        draft.facts["rows"] = rows


def with_policy(monkeypatch, **changes):
    policy = ROW.drift.model_copy(update=changes)
    monkeypatch.setattr(sys.modules[__name__], "ROW", dataclasses.replace(ROW, drift=policy))


def test_an_alert_is_a_hit_of_its_day_and_passes_the_same_policy(tmp_path):
    go_live()
    alert(FIRST)
    assert decide_all([checked(tmp_path, 0)]) is False
    assert rows()[-1]["decision"]["state"] == "WATCH"
    assert "alert from outside: the pager went off" in rows()[-1]["decision"]["reasons"]
    assert decide_all([checked(tmp_path, 1, score=0.4)]) is True
    assert len(drift_decisions()) == 1


def test_alerts_alone_about_one_day_decide_nothing_however_many(tmp_path):
    go_live()
    for number in range(5):
        alert(FIRST, number)
    assert decide_all([checked(tmp_path, n) for n in range(3)]) is False


@pytest.mark.covers("field-reports 27")
def test_an_alert_about_a_checked_day_has_it_decided_anew_once_though_its_event_was_lost(tmp_path):
    go_live()
    closed(FIRST, FIRST + DAY)
    decide_all([checked(tmp_path, 0), checked(tmp_path, 1, score=0.4)])
    assert drift_decisions() == []
    alert(FIRST)
    assert sweep.unfinished(ROW)["unheard"] == ["1 alerts about checked days"]
    asked = tasks.choose_partitions(ROW)
    assert (asked["partitions"], asked["again"]) == (["2013-09-02"], True)
    again = [checked(tmp_path, 1, score=0.4)]
    for _ in range(2):  # the task was tried again
        assert tasks.decide_all(ROW, asked, again, "run") is True
    assert len(drift_decisions()) == 1
    assert [row["partition"] for row in rows()] == ["2013-09-01", "2013-09-02", "2013-09-02"]
    assert sweep.unfinished(ROW)["unheard"] == []
    with pytest.raises(AirflowSkipException, match="has been checked"):
        tasks.choose_partitions(ROW)


@pytest.mark.parametrize("day", [FIRST + 2 * DAY, FIRST - 2 * DAY])
def test_an_alert_about_a_day_to_come_or_long_gone_has_nothing_decided_anew(tmp_path, day):
    go_live()
    closed(FIRST, FIRST + DAY)
    decide_all([checked(tmp_path, 0), checked(tmp_path, 1)])
    alert(day)
    with pytest.raises(AirflowSkipException, match="has been checked"):
        tasks.choose_partitions(ROW)


def test_an_alert_waits_for_a_check_that_failed(tmp_path):
    go_live()
    closed(FIRST)
    for number in range(ROW.drift.failed_checks):
        fail(FIRST, run=f"run-{number}")
        decide_all([], [FIRST], run=f"run-{number}")
    alert(FIRST)
    with pytest.raises(AirflowSkipException, match="has been checked"):
        tasks.choose_partitions(ROW)


def test_enough_new_labels_start_a_check_and_pass_the_same_policy(tmp_path, monkeypatch):
    with_policy(monkeypatch, feedback_rows=1000)
    record(ledger(), control.version(tmp_path, 1))  # trained through 2013-08-30
    go_live()
    closed(FIRST)
    labelled(FIRST - 2 * DAY, 5000)  # known when the version was trained
    labelled(FIRST, 900)
    assert decide_all([checked(tmp_path, 0)]) is False
    assert rows()[-1]["heard"]["labels"] == 900
    labelled(FIRST, 1800)  # the log was compacted again: further labels have come in
    with pytest.raises(AirflowSkipException, match="has been checked"):
        tasks.choose_partitions(ROW)
    labelled(FIRST, 1900)
    asked = tasks.choose_partitions(ROW)
    assert tasks.decide_all(ROW, asked, [checked(tmp_path, 0)], "run") is True
    assert drift_decisions()[0].body["cause"] == "labels"
    assert drift_decisions()[0].body["reasons"] == ["1900 rows were labelled since training (due at 1000)"]


def test_labels_of_before_a_retrain_that_was_tried_are_not_new(tmp_path, monkeypatch):
    with_policy(monkeypatch, feedback_rows=1000)
    record(ledger(), control.version(tmp_path, 1))
    go_live()
    labelled(FIRST, 5000)
    decision = ledger().append(DECISION, ROW.model, {"trigger": "drift", "cause": "labels", "partition": str(FIRST)})
    ledger().close_decision(decision, "refused", {})
    later(2)
    assert decide_all([checked(tmp_path, 1)]) is False
    assert rows()[-1]["heard"]["labels"] == 0
