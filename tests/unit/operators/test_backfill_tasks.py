"""A backfill trains through a partition of the past, holds nothing up, and is never released."""

import datetime as dt

import pytest
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from artifacts.settings import settings
from operators import live
from operators.gaps import GAP_PAUSE, GAP_TRIES, gaps
from operators.ledger import DECISION, ledger
from operators.pipelines import pipeline
from operators.plans.retrain import Ask
from operators.rollout import Refused, choose
from operators.settings import platform
from operators.tasks import release
from operators.tasks import retrain as tasks
from operators.tasks.backfill import resolve_backfill
from operators.versions import BACKFILL, record, versions
from serving.contract import Routing
from tests.make import control

ROW = pipeline("flight_delay")
NOW = dt.datetime(2013, 9, 10, 18, tzinfo=dt.UTC)  # the daily run of 09-09 began at 15:30
NO_PARAMS = {"partition": None, "reason": "", "force": False}
HOUR = dt.timedelta(hours=1)


@pytest.fixture(autouse=True)
def _deployment(tmp_path, monkeypatch):
    control.deployment(tmp_path, monkeypatch, NOW)


@pytest.fixture
def cron(monkeypatch):
    """Cron keeps to the wall's clock; the ledger's rows are given their instants."""
    monkeypatch.setenv("PERENNIAL_CLOCK", "wall")
    for cached in (settings, platform):
        cached.cache_clear()


def ended(day, outcome="trained", at=NOW):
    ledger().append(tasks.RETRAIN, ROW.model, {"partition": day, "outcome": outcome, "run_id": day}, at=at)


def found(now=NOW):
    return [day.isoformat() for day in gaps(ROW, ledger(), now)]


def ask(run_id="run", **params):
    return Ask.model_validate(resolve_backfill(ROW, {**NO_PARAMS, **params}, "manual", run_id, "ada"))


@pytest.mark.covers("field-reports 43")
def test_a_day_that_failed_stops_no_later_one_and_is_found_newest_first(cron):
    for day in ("2013-09-02", "2013-09-04", "2013-09-07"):
        ended(day)
    ended("2013-09-06", "failed")
    ended("2013-09-03", "refused")
    assert found() == ["2013-09-08", "2013-09-06", "2013-09-05"]  # 09-09 is the daily run's own


def test_what_lies_before_the_first_training_or_a_week_back_is_no_gap(cron):
    assert found() == []
    ended("2013-09-06")
    assert found() == ["2013-09-08", "2013-09-07"]
    ended("2013-08-20")
    assert found() == ["2013-09-08", "2013-09-07", "2013-09-05", "2013-09-04", "2013-09-03"]


def test_where_no_cron_promises_a_daily_run_nothing_is_missing(cron, monkeypatch):
    ended("2013-09-02")
    monkeypatch.setenv("PERENNIAL_SCHEDULE", "off")
    platform.cache_clear()
    assert found() == []
    monkeypatch.delenv("PERENNIAL_SCHEDULE")
    monkeypatch.setenv("PERENNIAL_CLOCK", "replay")
    platform.cache_clear()
    assert found() == []


@pytest.mark.covers("field-reports 42")
def test_a_gap_is_claimed_before_the_work_and_tried_three_times_with_a_pause(cron):
    ended("2013-09-07")
    assert found() == ["2013-09-08"]
    for number in range(GAP_TRIES):
        at = NOW + number * GAP_PAUSE
        assert found(at) == ["2013-09-08"]
        ledger().append(BACKFILL, ROW.model, {"partition": "2013-09-08"}, at=at)
        assert found(at + GAP_PAUSE - HOUR) == []
    assert found(NOW + GAP_TRIES * GAP_PAUSE) == []


def test_the_newest_gap_is_taken_and_claimed(monkeypatch):
    monkeypatch.setattr("operators.tasks.backfill.gaps", lambda *_: (dt.date(2013, 9, 8), dt.date(2013, 9, 5)))
    assert ask().partition == dt.date(2013, 9, 8)
    claim = ledger().entries(BACKFILL, ROW.model)[-1]
    assert (claim.body["partition"], claim.actor) == ("2013-09-08", "ada")


def test_an_event_without_a_gap_is_no_work():
    with pytest.raises(AirflowSkipException, match="no partition of 'flight_delay' is missing"):
        ask()


@pytest.mark.covers("field-reports 32")
def test_a_backfill_by_hand_needs_a_reason_and_takes_the_day_that_was_typed():
    with pytest.raises(AirflowFailException, match="reason: is empty"):
        ask(partition="2013-09-01")
    with pytest.raises(AirflowFailException, match="2013-09-10"):
        ask(partition="2013-09-10", reason="r")
    taken = ask(partition="2013-09-01", reason="r")
    assert (taken.partition, taken.trigger, taken.decision, taken.salt) == (dt.date(2013, 9, 1), BACKFILL, None, "")
    assert ask(run_id="other", partition="2013-09-01", reason="r", force=True).salt


def test_a_backfill_opens_no_decision_and_closes_nobody_elses():
    body = {"trigger": "drift", "partition": "2013-09-01", "reasons": ["r"]}
    decision = ledger().append(DECISION, ROW.model, body)
    taken = ask(partition="2013-09-08", reason="r")
    tasks.close(taken, "trained", {"version": 2})
    assert [entry.id for entry in ledger().open_decisions(ROW.model)] == [decision.id]
    assert tasks.end(ROW, taken) is False


def test_a_backfill_whose_task_failed_ends_in_red_and_is_written_once():
    taken = ask(partition="2013-09-08", reason="r")
    with pytest.raises(AirflowFailException, match="failed"):
        tasks.end(ROW, taken)
    assert tasks.end(ROW, taken) is False
    assert [entry.body["outcome"] for entry in ledger().entries(tasks.RETRAIN, ROW.model)] == ["failed"]


def test_a_partition_that_has_a_version_is_not_trained_again(tmp_path):
    record(ledger(), control.version(tmp_path, 1, dt.date(2013, 9, 8)))
    with pytest.raises(AirflowSkipException, match="version 1 has been trained through 2013-09-08 already"):
        ask(partition="2013-09-08", reason="r")
    assert ledger().entries(tasks.RETRAIN, ROW.model)[-1].body["outcome"] == "ALREADY_FRESH"
    assert ask(run_id="other", partition="2013-09-08", reason="r", force=True).partition == dt.date(2013, 9, 8)


@pytest.mark.covers("field-reports 32")
def test_a_backfill_is_never_released_not_even_by_force(tmp_path):
    newer = dt.date(2013, 9, 8)
    record(ledger(), control.version(tmp_path, 1, newer, trigger=BACKFILL))
    params = {"version": None, "rollback": False, "reason": "", "force": False}
    with pytest.raises(AirflowSkipException):
        release.choose_candidate(ROW, params, "run")
    with pytest.raises(AirflowFailException, match="is a backfill for 2013-09-08, and those are never released"):
        release.choose_candidate(ROW, {**params, "version": 1, "force": True, "reason": "r"}, "run")
    with pytest.raises(Refused):
        choose(versions(ledger(), ROW.model), Routing(model=ROW.model), (), 1, NOW, HOUR, force=True)
    assert live.routing(ROW.model)[0].champion is None


def test_a_backfilled_version_that_a_daily_run_asks_for_becomes_its_own(tmp_path):
    backfilled = control.version(tmp_path, 1, trigger=BACKFILL)
    record(ledger(), backfilled)
    record(ledger(), backfilled.model_copy(update={"trigger": "scheduled", "decision": 7}))
    record(ledger(), backfilled)
    kept = versions(ledger(), ROW.model)
    assert [(one.trigger, one.decision, one.registered) for one in kept] == [("scheduled", 7, backfilled.registered)]
