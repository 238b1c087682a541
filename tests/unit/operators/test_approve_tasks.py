"""A person is asked once, about the newest version; without a yes of somebody else in time nothing is released."""

import dataclasses
import datetime as dt

import pytest
from airflow.providers.standard.exceptions import HITLTriggerEventError
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from operators import live
from operators.approvals import ANSWERED, ASKED
from operators.ask_operator import AskPerson, comment
from operators.ledger import DECISION, ledger
from operators.pipelines import pipeline
from operators.tasks import approve as tasks
from operators.tasks import release, sweep
from operators.verdicts import GATE
from operators.versions import record
from serving.contract import Routing
from tests.make import control
from training.approval import APPROVAL
from training.contract import GatePolicy

ROW = dataclasses.replace(pipeline("flight_delay"), gates=GatePolicy(tier="high"))
WHY = "the model is of the high tier, and a person agrees to each of its releases"
PARAMS = {"version": None, "rollback": False, "reason": "", "force": False}
HOUR = dt.timedelta(hours=1)


@pytest.fixture(autouse=True)
def _deployment(tmp_path, monkeypatch):
    control.deployment(tmp_path, monkeypatch)


def waiting(folder, number, partition=dt.date(2013, 8, 31), by=None, **changes):
    """A registered version whose gates ask for a person; ``by`` asked for it by hand."""
    version = control.version(folder, number, partition)
    body = {"trigger": "manual", "partition": partition.isoformat(), "reasons": ["r"]}
    decision = ledger().append(DECISION, ROW.model, body, actor=by).id if by else None
    judged = {
        "training_key": version.registered.training_key,
        "trigger": "manual" if by else "scheduled",
        "decision": decision,
        "passed": True,
        "needs_approval": WHY,
        "evaluation_uri": "file:///store/evaluation",
        "verdicts": [{"gate": "G3 floor", "status": "pass", "reason": "AUC a|b", "figures": {}}],
    }
    ledger().append(GATE, ROW.model, {**judged, **changes})
    record(ledger(), version)
    return version


def answered(asked, answer="approved", approver="grace", after=HOUR, now=None):
    at = dt.datetime.fromisoformat(asked["asked_at"])
    given = {
        "answer": answer,
        "answered_at": (at + after).isoformat() if answer else None,
        "approver": approver,
        "comment": "read the slices",
    }
    return tasks.settle(ROW, asked, given, now or at + after)


def next_release():
    version = release.next_version(ROW)
    return version.registered.version if version else None


def test_what_waits_for_a_person_is_not_released_and_wakes_nobody(tmp_path):
    waiting(tmp_path, 1)
    assert next_release() is None
    assert sweep.unfinished(ROW)["packages"] == []
    assert sweep.unfinished(ROW)["approvals"] == [1]  # its event may have been lost
    with pytest.raises(AirflowSkipException):
        release.choose_candidate(ROW, PARAMS, "run")
    for force in (False, True):
        with pytest.raises(AirflowFailException, match="with or without force: a person has to approve"):
            release.choose_candidate(ROW, {**PARAMS, "version": 1, "force": force, "reason": "r"}, "run")


def test_a_yes_of_somebody_else_lets_it_go_and_is_recorded(tmp_path):
    waiting(tmp_path, 1, by="ada")
    asked = tasks.which(ROW, None, "run")
    assert answered(asked) is True
    assert next_release() == 1
    entry = ledger().entries(ANSWERED, ROW.model)[-1]
    assert entry.actor == "grace"
    assert entry.body["verdict"]["gate"] == APPROVAL
    assert entry.body["verdict"]["reason"] == "grace agreed: read the slices"
    assert entry.body["verdict"]["figures"]["author"] == "ada"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"answer": "rejected"}, "grace refused"),
        ({"approver": "ada"}, "ada asked for this version and cannot approve it"),
        ({"approver": None}, "nobody knows who approved"),
        ({"after": 73 * HOUR}, "does not lie within 3 days"),
        ({"answer": None, "after": 72 * HOUR}, "nobody answered until"),
    ],
)
def test_anything_else_refuses_it_for_good(tmp_path, given, words):
    waiting(tmp_path, 1, by="ada")
    assert answered(tasks.which(ROW, None, "run"), **given) is False
    row = ledger().entries(release.RELEASE, ROW.model)[-1].body
    assert row["outcome"] == "refused"
    assert words in row["reasons"][0]
    assert next_release() is None
    with pytest.raises(AirflowFailException, match="may not go, with or without force"):
        release.choose_candidate(ROW, {**PARAMS, "version": 1, "force": True, "reason": "r"}, "run")
    with pytest.raises(AirflowFailException, match="waits for nobody"):
        tasks.which(ROW, 1, "again")


def test_the_first_answer_stays_and_is_written_once(tmp_path):
    waiting(tmp_path, 1)
    asked = tasks.which(ROW, None, "run")
    assert answered(asked, "rejected") is False
    assert answered(asked) is False
    assert len(ledger().entries(ANSWERED, ROW.model)) == len(ledger().entries(release.RELEASE, ROW.model)) == 1


def test_what_cron_or_drift_asked_for_anybody_may_approve(tmp_path):
    waiting(tmp_path, 1, by=None)
    asked = tasks.which(ROW, None, "run")
    assert asked["author"] is None
    assert answered(asked, approver=None) is True


def test_the_question_has_the_reason_the_verdicts_and_the_evidence(tmp_path):
    waiting(tmp_path, 1, by="ada")
    asked = tasks.which(ROW, None, "run")
    assert asked["subject"] == "Release flight_delay version 1?"
    assert WHY in asked["body"]
    assert "ada cannot approve it" in asked["body"]
    assert "| G3 floor | pass | AUC a\\|b |" in asked["body"]
    assert "file:///store/evaluation" in asked["body"]


def test_each_version_is_asked_about_once_and_the_time_runs_from_the_first_question(tmp_path):
    waiting(tmp_path, 1)
    first = tasks.which(ROW, None, "run")
    assert sweep.unfinished(ROW)["approvals"] == []
    assert tasks.which(ROW, None, "run") == first  # the run was cleared
    with pytest.raises(AirflowSkipException, match="nobody has to be asked"):
        tasks.which(ROW, None, "other")
    waiting(tmp_path, 2, dt.date(2013, 9, 8))
    assert tasks.which(ROW, None, "other")["version"] == 2
    assert tasks.which(ROW, 1, "by hand")["asked_at"] == first["asked_at"]
    assert len(ledger().entries(ASKED, ROW.model)) == 2


def test_a_version_older_than_the_live_one_is_not_asked_about(tmp_path):
    waiting(tmp_path, 1)
    newer = Routing(model=ROW.model, champion=control.deployed(2, dt.date(2013, 9, 8)))
    live.records().put(Routing.record(ROW.model), newer.model_dump(mode="json"), 0)
    with pytest.raises(AirflowSkipException):
        tasks.which(ROW, None, "run")


def test_a_policy_that_is_automatic_asks_nobody(tmp_path):
    waiting(tmp_path, 1, needs_approval=None)
    with pytest.raises(AirflowSkipException, match="the policy is automatic"):
        tasks.which(ROW, None, "run")
    assert next_release() == 1


def test_a_rollback_waits_for_no_question(tmp_path):
    waiting(tmp_path, 3, dt.date(2013, 9, 8))
    record(ledger(), control.version(tmp_path, 1))
    routing = Routing(model=ROW.model, champion=control.deployed(2, dt.date(2013, 9, 1)), previous=control.deployed(1))
    live.records().put(Routing.record(ROW.model), routing.model_dump(mode="json"), 0)
    chosen = release.choose_candidate(ROW, {**PARAMS, "rollback": True, "reason": "latency"}, "run")
    assert chosen["version"] == 1


def event(**changes):
    given = {
        "chosen_options": ["Approve"],
        "params_input": {"comment": "fine"},
        "responded_at": dt.datetime(2013, 9, 1, tzinfo=dt.UTC),
        "responded_by_user": {"id": "7", "name": "grace"},
    }
    return {**given, **changes}


def operator():
    return AskPerson(task_id="ask", subject="s", body="b", params=comment())


@pytest.mark.parametrize(
    ("changes", "answer", "approver"),
    [
        ({}, "approved", "grace"),
        ({"chosen_options": ["Reject"]}, "rejected", "grace"),
        ({"responded_by_user": None}, "approved", None),
        ({"responded_by_user": {"id": "7", "name": ""}}, "approved", "7"),
    ],
)
def test_airflows_answer_becomes_ours(changes, answer, approver):
    found = operator().execute_complete({}, event(**changes))
    assert (found["answer"], found["approver"], found["comment"]) == (answer, approver, "fine")
    assert found["answered_at"] == "2013-09-01T00:00:00+00:00"


def test_silence_is_an_answer_and_an_error_is_none():
    assert operator().execute_complete({}, {"error": "e", "error_type": "timeout"})["answer"] is None
    with pytest.raises(HITLTriggerEventError):
        operator().execute_complete({}, {"error": "e", "error_type": "validation"})
