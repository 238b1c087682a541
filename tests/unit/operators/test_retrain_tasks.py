"""What a run of ``retrain`` is asked for, worked out from stored state: doubled, late and lost events do no harm."""

import dataclasses
import datetime as dt
import json

import pytest
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException
from airflow.utils.types import DagRunType

from artifacts.refs import file_uri, key_digest, sha256
from artifacts.store import ArtifactCorrupt, publish, read, write_bytes
from operators import live
from operators.ledger import ledger
from operators.pipelines import pipeline
from operators.plans import retrain as retrain_plans
from operators.plans import watch as plans
from operators.plans.retrain import Ask
from operators.tasks import retrain as tasks
from operators.verdicts import GATE
from operators.versions import record, versions
from serving.contract import Routing
from tests.make import control, gates
from training.approval import APPROVAL
from training.contract import GatePolicy
from training.gate import GATES

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
    return ledger().append("decision", ROW.model, body, unique=sha256(partition.encode()))


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


@pytest.mark.covers("field-reports 27", "field-reports 29")
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
    ends = plans.retrains(ledger().entries("decision", ROW.model), ledger().closures(ROW.model), (), (), ROW.drift)
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


@pytest.mark.covers("field-reports 27")
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


def judged(row, tmp_path, evidence=None, asked=None, **changes):
    """``judge`` on evidence that lies in the store, as the steps leave it."""
    evidence = evidence or first_evidence(tmp_path, **changes)

    def kept(name, value):
        write_bytes(file_uri(tmp_path / f"{name}.json"), value.model_dump_json().encode())
        return {"result": file_uri(tmp_path / f"{name}.json")}

    validations = [kept(f"validation-{number}", one) for number, one in enumerate(evidence.validations)]
    rest = [kept(name, getattr(evidence, name)) for name in ("candidate", "final", "evaluation")]
    return tasks.judge(row, asked or ask("scheduled"), validations, *rest)


def first_evidence(tmp_path, **changes):
    first = gates.slices(gain=None, known=None)
    uri = file_uri(tmp_path / "evaluation")
    with publish(uri, "evaluation") as draft:
        (draft.path / "evaluation.json").write_text(json.dumps({"slices": [one.model_dump() for one in first]}))
    validations = tuple(gates.validation_ref(suite=suite) for suite in ROW.gates.suites)
    evaluation = gates.first_evaluation(uri=uri, digest=draft.manifest.digest)
    return gates.gate_evidence(**{
        "evaluation": evaluation,
        "validations": validations,
        "champion_partition": None,
        **changes,
    })


def test_a_first_release_that_needs_a_person_does_not_pass_by_itself(tmp_path):
    assert "gate" in judged(ROW, tmp_path)
    careful = dataclasses.replace(ROW, gates=ROW.gates.model_copy(update={"first_release": "approval"}))
    entry = ledger().get(judged(careful, tmp_path)["gate"])
    assert entry.body["needs_approval"].startswith("first release of this model")
    assert APPROVAL not in [verdict["gate"] for verdict in entry.body["verdicts"]]
    assert ledger().entries(tasks.RETRAIN, ROW.model) == ()  # it goes on to be packaged


def test_every_verdict_is_in_an_artifact_whose_digest_the_ledger_holds(tmp_path):
    entry = ledger().get(judged(ROW, tmp_path)["gate"])
    kept = json.loads(read(entry.body["verdicts_uri"], entry.body["verdicts_digest"]).file("verdicts.json").read_text())
    assert [each["gate"] for each in kept["verdicts"]] == [*GATES, APPROVAL]
    assert kept["verdicts"] == [{**each, "digest": key_digest(each)} for each in entry.body["verdicts"]]
    assert kept["inputs"]["dataset"] == entry.body["dataset"] == gates.dataset_ref().digest
    assert GatePolicy.model_validate(kept["policy"]) == ROW.gates
    again = ledger().get(judged(ROW, tmp_path)["gate"])
    assert again.body["verdicts_digest"] == entry.body["verdicts_digest"]


def test_an_evaluation_that_was_altered_judges_nobody(tmp_path):
    evidence = first_evidence(tmp_path)
    next((tmp_path / "evaluation").glob("attempt-*/evaluation.json")).write_text(json.dumps({"slices": []}))
    with pytest.raises(ArtifactCorrupt):
        judged(ROW, tmp_path, evidence)


def test_the_fourth_seed_on_the_same_data_is_refused_by_what_the_ledger_remembers(tmp_path):
    for seed in range(3):
        look = gates.look(seed).model_dump(mode="json")
        ledger().append(GATE, ROW.model, {**look, "passed": False, "reasons": []})
    ledger().append(GATE, ROW.model, {"passed": False, "reasons": ["an entry from before looks were counted"]})
    with pytest.raises(AirflowSkipException, match="another seed is no new evidence"):
        judged(ROW, tmp_path)


def test_a_version_that_went_live_while_it_was_judged_again_is_not_refused(tmp_path):
    evidence = first_evidence(tmp_path)
    live_now = control.version(tmp_path, 3)
    same = live_now.registered.model_copy(update={"training_key": evidence.candidate.training_key})
    record(ledger(), live_now.model_copy(update={"registered": same}))
    routing = Routing(model=ROW.model, champion=control.deployed(3))
    live.records().put(Routing.record(ROW.model), routing.model_dump(mode="json"), 0)
    with pytest.raises(AirflowSkipException, match="version 3 went live while this run was judging it again"):
        judged(ROW, tmp_path, evidence)
    assert ledger().entries(tasks.RETRAIN, ROW.model)[-1].body["outcome"] == "ALREADY_FRESH"
    assert ledger().entries(GATE, ROW.model) == ()


@pytest.mark.covers("field-reports 36")
def test_what_was_typed_is_said_before_any_work(caplog):
    with caplog.at_level("INFO", logger="perennial.retrain"):
        ask("manual", partition="2013-08-31", reason="a new column")
    assert caplog.messages == [
        "flight_delay: trains through service day 2013-08-31 (America/New_York, ends 2013-09-01T08:00Z), rows from 2013-01-08 on, "
        "as known at 2013-09-01T14:00Z; manual: a new column"
    ]


@pytest.mark.covers("field-reports 26", "field-reports 34")
def test_two_runs_of_one_event_want_the_same_version_and_close_one_decision(tmp_path):
    """Two schedulers, or a DAG that was paused: both runs begin before either has ended."""
    decision = decide()
    first, second = ask(run_id="first"), ask(run_id="second")
    data, code = gates.dataset_ref(), sha256(b"code")
    assert retrain_plans.training_key(ROW, first, data, code) == retrain_plans.training_key(ROW, second, data, code)
    assert first.decision == second.decision == decision.id
    for one in (first, second):
        tasks.close(one, "trained", {"version": 2})
        assert tasks.end(ROW, one) is False
    assert len(ledger().entries(tasks.RETRAIN, ROW.model)) == 1
    with pytest.raises(AirflowSkipException, match="the event came twice"):
        ask(run_id="third")


@pytest.mark.covers("field-reports 39")
def test_a_run_that_is_cleared_after_its_good_end_finds_its_child_there(tmp_path):
    taken = ask("scheduled")
    version = control.version(tmp_path, 2, taken.partition)
    for _ in range(2):
        assert ask("scheduled").decision == taken.decision
        record(ledger(), version)
        tasks.close(taken, "trained", {"version": 2})
    assert len(ledger().entries(tasks.RETRAIN, ROW.model)) == 1
    assert [one.registered.version for one in versions(ledger(), ROW.model)] == [2]
    routing = Routing(model=ROW.model, champion=control.deployed(2, taken.partition))
    live.records().put(Routing.record(ROW.model), routing.model_dump(mode="json"), 0)
    with pytest.raises(AirflowSkipException, match="is live already; nothing to do"):
        ask("scheduled")


def test_force_and_another_decision_give_another_key():
    data, code = gates.dataset_ref(), sha256(b"code")
    asks = [
        ask("manual", reason="r", force=force, run_id=f"{force}{number}")
        for force in (False, True)
        for number in (1, 2)
    ]
    keys = [retrain_plans.training_key(ROW, one, data, code) for one in asks]
    assert keys[0] == keys[1]
    assert len(set(keys)) == 3
    forced = ledger().get(asks[-1].decision)
    assert (forced.body["force"], forced.body["reasons"], forced.actor) == (True, ["r"], "somebody")


def test_a_backfill_is_gated_without_the_champion_who_knows_its_days(tmp_path):
    routing = Routing(model=ROW.model, champion=control.deployed(3, dt.date(2013, 9, 8)))
    live.records().put(Routing.record(ROW.model), routing.model_dump(mode="json"), 0)
    record(ledger(), control.version(tmp_path, 3, dt.date(2013, 9, 8)))
    careful = dataclasses.replace(ROW, gates=ROW.gates.model_copy(update={"first_release": "approval", "tier": "high"}))
    taken = Ask(model=ROW.model, partition=gates.PARTITION, trigger="backfill", reason="r", run_id="b")
    entry = ledger().get(judged(careful, tmp_path, asked=taken)["gate"])
    said = {verdict["gate"]: (verdict["status"], verdict["reason"]) for verdict in entry.body["verdicts"]}
    assert said["G4 champion"] == ("skipped", "a backfill replaces nobody: there is nobody to compare with")
    assert said[APPROVAL] == ("pass", "automatic: a backfill is never released")
