"""Promotion, refusal and rollback change the routing record by compare-and-set and leave their reasons in the ledger."""

import datetime as dt

import pytest
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from artifacts.refs import file_uri
from artifacts.store import write_bytes
from operators import live
from operators.calls import release as calls
from operators.ledger import ledger
from operators.payload import Skip
from operators.pipelines import pipeline
from operators.plans.release import Candidate
from operators.settings import platform
from operators.tasks import release as tasks
from operators.tasks import sweep
from operators.versions import record
from serving.contract import JudgementRef
from tests.make import control

ROW = pipeline("flight_delay")
PARAMS = {"version": None, "rollback": False, "reason": "", "force": False}
OLD, NEW = dt.date(2013, 8, 31), dt.date(2013, 9, 8)


@pytest.fixture(autouse=True)
def _deployment(tmp_path, monkeypatch):
    control.deployment(tmp_path, monkeypatch)


def judged(folder, status, *reasons):
    found = JudgementRef(
        uri="file:///judgement", digest=control.package(9).digest, model=ROW.model, candidate="c", champion=None, kind="shadow",
        status=status, reasons=reasons, figures={},
    )  # fmt: skip
    uri = file_uri(folder / f"judgement-{status}.json")
    write_bytes(uri, found.model_dump_json().encode())
    return {"result": uri, "key": found.digest}


def registered(folder, number, partition=OLD):
    version = control.version(folder, number, partition)
    record(ledger(), version)
    return version


def settle(candidate, judgement, problem=None):
    return tasks.settle(ROW, candidate, judgement, lambda *_: problem)


def run(folder, status="pass", *reasons, problem=None, **params):
    candidate = Candidate.model_validate(tasks.choose_candidate(ROW, {**PARAMS, **params}, "run"))
    return settle(candidate, None if candidate.rollback else judged(folder, status, *reasons), problem)


def live_version():
    champion = live.routing(ROW.model)[0].champion
    return champion.version if champion else None


def test_evidence_promotes_and_the_ledger_says_from_what_to_what(tmp_path):
    registered(tmp_path, 1)
    registered(tmp_path, 2, NEW)
    assert run(tmp_path)["promoted"]
    assert live_version() == 2
    promotion = ledger().entries(tasks.PROMOTION, ROW.model)[-1].body
    assert promotion["from"] is None
    assert promotion["to"]["name"] == "flight_delay_v2"


@pytest.mark.parametrize("status", ["fail", "inconclusive"])
def test_without_good_evidence_traffic_stays(tmp_path, status):
    registered(tmp_path, 1)
    assert not run(tmp_path, status, "log loss 0.9 against 0.5")["promoted"]
    assert live_version() is None
    row = ledger().entries(tasks.RELEASE, ROW.model)[-1].body
    assert (row["outcome"], row["reasons"]) == ("refused", ["log loss 0.9 against 0.5"])


def test_an_event_without_a_waiting_version_is_no_work(tmp_path):
    registered(tmp_path, 1)
    run(tmp_path)
    with pytest.raises(AirflowSkipException, match="has been judged"):
        tasks.choose_candidate(ROW, PARAMS, "run")


def test_a_run_that_another_one_overtook_is_superseded(tmp_path):
    registered(tmp_path, 1)
    slow = Candidate.model_validate(tasks.choose_candidate(ROW, PARAMS, "run"))
    registered(tmp_path, 2, NEW)
    run(tmp_path)
    assert not settle(slow, judged(tmp_path, "pass"))["promoted"]
    assert live_version() == 2
    assert ledger().entries(tasks.RELEASE, ROW.model)[-1].body["outcome"] == "superseded"


def test_a_version_that_does_not_answer_any_more_gets_no_traffic(tmp_path):
    registered(tmp_path, 1)
    run(tmp_path)
    registered(tmp_path, 2, NEW)
    candidate = Candidate.model_validate(tasks.choose_candidate(ROW, PARAMS, "run"))
    settled = settle(candidate, judged(tmp_path, "pass"), "Triton has restarted")
    assert live_version() == 1
    row = ledger().entries(tasks.RELEASE, ROW.model)[-1].body
    assert (row["version"], row["outcome"]) == (2, "failed")
    assert "NOT_ANSWERING: Triton has restarted; traffic was not changed" in row["reasons"][0]
    with pytest.raises(AirflowFailException, match="NOT_ANSWERING"):
        tasks.end(ROW, candidate, settled)
    assert len(ledger().entries(tasks.RELEASE, ROW.model)) == 2  # the end does not write it once more
    assert sweep.unfinished(ROW)["packages"] == [2]
    assert run(tmp_path)["promoted"]


def test_a_previous_version_that_does_not_answer_is_not_gone_back_to(tmp_path):
    for number, partition in ((1, OLD), (2, NEW)):
        registered(tmp_path, number, partition)
        run(tmp_path)
    assert not run(tmp_path, problem="dead", rollback=True, reason="latency")["promoted"]
    assert live_version() == 2


def test_the_question_comes_last_and_is_about_what_goes_in_front(tmp_path):
    registered(tmp_path, 1)
    candidate = Candidate.model_validate(tasks.choose_candidate(ROW, PARAMS, "run"))
    asked = []

    def ask(server, name, package):
        asked.append((server.http, name, package.digest, ledger().entries()[-1].kind, live_version()))

    tasks.settle(ROW, candidate, judged(tmp_path, "pass"), ask)
    assert asked == [(platform().triton_http, "flight_delay_v1", control.package(1).digest, tasks.INTENT, None)]
    tasks.settle(ROW, candidate, judged(tmp_path, "pass"), ask)
    assert len(asked) == 1  # what is in front already is not asked again


def test_rollback_needs_a_reason_and_goes_back(tmp_path):
    registered(tmp_path, 1)
    run(tmp_path)
    with pytest.raises(AirflowFailException, match="reason: is empty"):
        run(tmp_path, rollback=True)
    with pytest.raises(AirflowFailException, match="no previous version"):
        run(tmp_path, rollback=True, reason="latency")
    registered(tmp_path, 2, NEW)
    run(tmp_path)
    run(tmp_path, rollback=True, reason="latency")
    assert live_version() == 1
    assert ledger().entries(tasks.PROMOTION, ROW.model)[-1].body["rollback"] is True


def test_a_retry_after_the_switch_finds_it_done(tmp_path):
    """The task died between the routing record and its own success: the second try must not undo or refuse it."""
    registered(tmp_path, 1)
    candidate = Candidate.model_validate(tasks.choose_candidate(ROW, PARAMS, "run"))
    first = settle(candidate, judged(tmp_path, "pass"))
    assert settle(candidate, judged(tmp_path, "pass")) == first == {"promoted": True, "version": 1}
    assert len(ledger().entries(tasks.PROMOTION, ROW.model)) == 1
    assert [entry.body["outcome"] for entry in ledger().entries(tasks.RELEASE, ROW.model)] == ["promoted"]


def test_a_retried_rollback_does_not_swap_back(tmp_path):
    registered(tmp_path, 1)
    run(tmp_path)
    registered(tmp_path, 2, NEW)
    run(tmp_path)
    back = Candidate.model_validate(
        tasks.choose_candidate(ROW, {**PARAMS, "rollback": True, "reason": "latency"}, "run")
    )
    settle(back, None)
    settle(back, None)
    assert live_version() == 1


def test_nothing_that_is_routed_is_ever_unloaded(tmp_path):
    for number, partition in ((1, OLD), (2, NEW)):
        registered(tmp_path, number, partition)
        run(tmp_path)
    call = calls.unstage(ROW)
    assert isinstance(call.spec(settled={"promoted": False, "version": 2}), Skip)
    assert isinstance(call.spec(settled={"promoted": False, "version": 1}), Skip)
    assert isinstance(call.spec(settled={"promoted": True, "version": 2}), Skip)
    registered(tmp_path, 3, NEW)
    run(tmp_path)
    assert call.spec(settled={"promoted": True, "version": 3}).name == "flight_delay_v1"
    assert call.spec(settled={"promoted": False, "version": 4}).name == "flight_delay_v4"


def test_force_releases_an_older_version(tmp_path):
    registered(tmp_path, 2, NEW)
    run(tmp_path)
    registered(tmp_path, 3, OLD)
    assert run(tmp_path, version=3, force=True, reason="the new one is wrong")["promoted"]
    assert live_version() == 3


def test_a_failed_run_is_written_and_tried_again_at_most_three_times(tmp_path):
    registered(tmp_path, 1)
    for _ in range(tasks.FAILED_LIMIT):
        candidate = Candidate.model_validate(tasks.choose_candidate(ROW, PARAMS, "run"))
        with pytest.raises(AirflowFailException, match="traffic was not changed"):
            tasks.end(ROW, candidate, None)
    with pytest.raises(AirflowSkipException):
        tasks.choose_candidate(ROW, PARAMS, "run")


def test_a_version_that_came_meanwhile_is_looked_for_at_the_end(tmp_path):
    registered(tmp_path, 1)
    candidate = Candidate.model_validate(tasks.choose_candidate(ROW, PARAMS, "run"))
    registered(tmp_path, 2, NEW)
    settled = settle(candidate, judged(tmp_path, "pass"))
    assert tasks.end(ROW, candidate, settled) is True


def test_sweep_finishes_a_promotion_that_a_crash_cut(tmp_path, monkeypatch):
    registered(tmp_path, 1)
    candidate = Candidate.model_validate(tasks.choose_candidate(ROW, PARAMS, "run"))
    book = ledger()
    append = book.append

    def crash(kind, *rest, **words):
        if kind == tasks.PROMOTION:
            raise KeyboardInterrupt
        return append(kind, *rest, **words)

    monkeypatch.setattr(book, "append", crash)
    with pytest.raises(KeyboardInterrupt):
        settle(candidate, judged(tmp_path, "pass"))
    monkeypatch.setattr(book, "append", append)
    assert live_version() == 1
    assert ledger().entries(tasks.PROMOTION, ROW.model) == ()
    assert sweep.project(ROW) is True
    assert ledger().entries(tasks.PROMOTION, ROW.model)[-1].body["finished_by"] == "sweep"
    assert sweep.project(ROW) is False
