"""What a run of ``retrain`` is asked for, worked out from stored state: doubled, late and lost events do no harm."""

import dataclasses
import datetime as dt

import pytest
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException
from airflow.utils.types import DagRunType

from artifacts.refs import file_uri
from artifacts.store import write_bytes
from operators import live
from operators.ledger import ledger
from operators.pipelines import pipeline
from operators.plans import watch as plans
from operators.plans.retrain import Ask
from operators.tasks import retrain as tasks
from serving.contract import Routing
from tests.make import control, gates
from training.contract import GatePolicy

ROW = pipeline("flight_delay")
NOW = dt.datetime(2013, 9, 10, 15, tzinfo=dt.UTC)
NO_PARAMS = {"partition": None, "reason": "", "force": False}


@pytest.fixture(autouse=True)
def _deployment(tmp_path, monkeypatch):
    control.deployment(tmp_path, monkeypatch, NOW)


def ask(run_type="asset_triggered", run_id="run", **params):
    return Ask.model_validate(tasks.resolve_ask(ROW, {**NO_PARAMS, **params}, run_type, run_id, "somebody"))


def decide(partition="2013-09-08"):
    body = {"trigger": "drift", "partition": partition, "reasons": ["prediction PSI 0.4 above 0.2"]}
    return ledger().append("decision", ROW.model, body, unique=f"trigger-{partition}")


def test_a_drift_run_takes_the_partition_of_the_open_decision():
    decision = decide()
    found = ask()
    assert (found.partition, found.trigger, found.decision) == (dt.date(2013, 9, 8), "drift", decision.id)
    assert found.reason == "prediction PSI 0.4 above 0.2"


def test_the_run_type_may_be_airflows_enumeration():
    decide()
    assert ask(DagRunType.ASSET_TRIGGERED).trigger == "drift"
    assert ask(DagRunType.SCHEDULED, "other").trigger == "scheduled"


def test_a_run_that_failed_before_it_knew_its_decision_does_not_wake_itself():
    decide()
    assert tasks.end(ROW, None) is False


def test_the_event_delivered_twice_trains_once():
    decide()
    tasks.close(ask(), "trained", {"version": 2})
    with pytest.raises(AirflowSkipException, match="the event came twice, or late"):
        ask(run_id="second")


def test_one_run_answers_all_open_decisions_up_to_its_partition():
    decide("2013-09-06")
    decide("2013-09-08")
    tasks.close(ask(), "trained", {"version": 2})
    assert ledger().open_decisions(ROW.model) == ()


def test_a_failed_run_leaves_older_decisions_open():
    first = decide("2013-09-06")
    decide("2013-09-08")
    tasks.close(ask(), "failed", {})
    assert [entry.id for entry in ledger().open_decisions(ROW.model)] == [first.id]


def test_a_scheduled_run_takes_the_newest_closed_day():
    assert ask("scheduled").partition == dt.date(2013, 9, 9)


def test_a_run_by_hand_needs_a_reason_and_a_date():
    with pytest.raises(AirflowFailException, match="reason: is empty"):
        ask("manual")
    with pytest.raises(AirflowFailException, match=r"'31\.8\.' is no date"):
        ask("manual", partition="31.8.", reason="because")
    assert ask("manual", partition="2013-08-31", reason="because").partition == dt.date(2013, 8, 31)


def test_force_salts_the_key():
    plain, forced = ask("manual", reason="r", run_id="a"), ask("manual", reason="r", force=True, run_id="b")
    assert plain.salt == ""
    assert forced.salt == str(forced.decision)


def test_a_version_that_is_live_is_not_made_again_and_the_ledger_says_so():
    champion = control.deployed(2, dt.date(2013, 9, 8))
    live.records().put(
        Routing.record(ROW.model), Routing(model=ROW.model, champion=champion).model_dump(mode="json"), 0
    )
    decide()
    with pytest.raises(AirflowSkipException, match="is live already"):
        ask()
    assert ledger().entries(tasks.RETRAIN, ROW.model)[-1].body["outcome"] == "ALREADY_FRESH"
    assert ledger().open_decisions(ROW.model) == ()


def test_a_version_that_is_trained_but_not_live_is_judged_again():
    decide()
    assert ask().partition == dt.date(2013, 9, 8)  # the steps are found by their keys; nothing is live yet


def test_the_end_of_a_failed_run_closes_its_decision_and_fails():
    decide()
    found = ask()
    with pytest.raises(AirflowFailException, match="failed"):
        tasks.end(ROW, found)
    assert ledger().open_decisions(ROW.model) == ()
    assert tasks.end(ROW, found) is False


def test_a_failed_run_that_is_cleared_and_ends_well_is_no_longer_a_failure():
    decision = decide()
    found = ask()
    with pytest.raises(AirflowFailException, match="failed"):
        tasks.end(ROW, found)
    tasks.close(found, "trained", {"version": 2})
    assert ledger().closures(ROW.model)[decision.id].body["outcome"] == "trained"
    assert tasks.end(ROW, found) is False
    ends = plans.retrains(ledger().entries("decision", ROW.model), ledger().closures(ROW.model), ())
    assert [(end.promoted, end.ended_at) for end in ends] == [(None, NOW)]  # the breaker waits for its release


def test_a_drift_run_that_is_cleared_from_its_start_takes_its_decision_again():
    decision = decide()
    with pytest.raises(AirflowFailException, match="failed"):
        tasks.end(ROW, ask(run_id="first"))
    assert ask(run_id="first").decision == decision.id
    with pytest.raises(AirflowSkipException, match="the event came twice, or late"):
        ask(run_id="another")
    tasks.close(ask(run_id="first"), "trained", {})
    with pytest.raises(AirflowSkipException, match="the event came twice, or late"):
        ask(run_id="first")


def test_work_that_came_meanwhile_is_looked_for_at_the_end():
    decide("2013-09-06")
    found = ask()
    decide("2013-09-08")
    tasks.close(found, "trained", {})
    assert tasks.end(ROW, found) is True


def test_features_that_never_come_fail_with_a_word_for_it():
    found = ask("scheduled")
    wait = dt.timedelta(hours=2)
    assert tasks.features_ready(ROW, found, dt.timedelta(0), wait) is False
    with pytest.raises(AirflowFailException, match="FEATURES_NOT_READY"):
        tasks.features_ready(ROW, found, wait * 2, wait)
    live.records().put(ROW.repo.progress_record, {"built_to": "2013-09-10T08:00:00Z"}, 0)
    assert tasks.features_ready(ROW, found, dt.timedelta(0), wait) is True


def test_a_first_release_that_needs_a_person_does_not_pass_by_itself(tmp_path):
    evidence = gates.gate_evidence(evaluation=gates.first_evaluation(), champion_partition=None)

    def kept(name, value):
        write_bytes(file_uri(tmp_path / f"{name}.json"), value.model_dump_json().encode())
        return {"result": file_uri(tmp_path / f"{name}.json")}

    validations = [kept(f"validation-{number}", one) for number, one in enumerate(evidence.validations)]
    rest = [kept(name, getattr(evidence, name)) for name in ("candidate", "final", "evaluation")]
    asked = ask("scheduled")
    assert "gate" in tasks.judge(ROW, asked, validations, *rest)
    careful = dataclasses.replace(ROW, gates=GatePolicy(first_release="approval"))
    with pytest.raises(AirflowSkipException, match="a person has to approve: first release"):
        tasks.judge(careful, asked, validations, *rest)
    assert ledger().entries(tasks.RETRAIN, ROW.model)[-1].body["outcome"] == "refused"
