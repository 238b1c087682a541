"""Promotion, refusal and rollback change the routing record by compare-and-set and leave their reasons in the ledger."""

import datetime as dt
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

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
from serving.contract import Canary, JudgementRef, Routing
from tests.make import control
from training.contract import AliasRef

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


@pytest.mark.covers("field-reports 124")
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


def test_what_a_canary_has_is_not_unloaded_either(tmp_path):
    for number, partition in ((1, OLD), (2, NEW)):
        registered(tmp_path, number, partition)
        run(tmp_path)
    routing, version = live.routing(ROW.model)
    trial = Canary(candidate=control.deployed(3, NEW), share=0.05)
    after = routing.model_copy(update={"canary": trial})
    live.records().put(Routing.record(ROW.model), after.model_dump(mode="json"), version)
    assert isinstance(calls.unstage(ROW).spec(settled={"promoted": False, "version": 3}), Skip)


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


def chosen(**params):
    return Candidate.model_validate(tasks.choose_candidate(ROW, {**PARAMS, **params}, "run", "ada"))


@pytest.mark.parametrize("slow", [1, 2])
@pytest.mark.covers("bad evidence: two promotions")
def test_of_two_promotions_at_once_the_newer_version_stays(tmp_path, slow):
    """Both have read the same routing record; the compare-and-set lets one of them through, the other decides again."""
    candidates = {}
    for number, partition in ((1, OLD), (2, NEW)):
        registered(tmp_path, number, partition)
        candidates[number] = chosen(version=number, reason="r")

    def overtaken(*_):
        settle(candidates[3 - slow], judged(tmp_path, "pass"))

    tasks.settle(ROW, candidates[slow], judged(tmp_path, "pass"), overtaken)
    assert live_version() == 2
    rows = ledger().entries(tasks.PROMOTION, ROW.model)
    assert [row.body["routing_version"] for row in rows] == [1, 2] if slow == 2 else [1]
    if slow == 1:
        assert ledger().entries(tasks.RELEASE, ROW.model)[-1].body["outcome"] == "superseded"


@pytest.mark.covers("bad evidence: two promotions")
def test_promotions_in_many_threads_leave_one_row_per_routing_version(tmp_path):
    numbers = range(1, 5)
    for number in numbers:
        registered(tmp_path, number, OLD + number * dt.timedelta(days=1))
    candidates = [chosen(version=number, reason="r") for number in numbers]
    judgement, together = judged(tmp_path, "pass"), Barrier(len(candidates))

    def one(candidate):
        waited = []

        def ask(*_):  # once each: all of them have read the same routing record
            if not waited:
                waited.append(together.wait(30))

        return tasks.settle(ROW, candidate, judgement, ask)

    with ThreadPoolExecutor(len(candidates)) as pool:
        settled = list(pool.map(one, candidates))
    assert live_version() == 4
    written = [row.body["routing_version"] for row in ledger().entries(tasks.PROMOTION, ROW.model)]
    assert sorted(written) == list(range(1, live.routing(ROW.model)[1] + 1))
    assert len(written) == sum(one["promoted"] for one in settled)


@pytest.mark.covers("bad evidence: clock skew")
def test_an_instant_that_runs_ahead_promotes_no_older_partition(tmp_path):
    """A machine whose clock is a year ahead registers an old partition: the partition counts first."""
    registered(tmp_path, 2, NEW)
    run(tmp_path)
    late = control.version(tmp_path, 3, OLD)
    ahead = late.registered.model_copy(update={"created_at": late.registered.created_at + dt.timedelta(days=365)})
    record(ledger(), late.model_copy(update={"registered": ahead}))
    with pytest.raises(AirflowSkipException, match="older than the live one"):
        tasks.choose_candidate(ROW, PARAMS, "run")
    with pytest.raises(AirflowFailException, match="superseded"):
        tasks.choose_candidate(ROW, {**PARAMS, "version": 3, "reason": "r"}, "run")


@pytest.mark.covers("field-reports 78")
def test_the_ledger_has_who_why_from_to_and_the_evidence_of_each_promotion(tmp_path):
    for number, partition in ((2, NEW), (3, OLD)):
        registered(tmp_path, number, partition)
        settle(chosen(version=number, force=number == 3, reason="the new one is wrong"), judged(tmp_path, "pass"))
    entry = ledger().entries(tasks.PROMOTION, ROW.model)[-1]
    assert (entry.actor, entry.body["reason"], entry.body["force"]) == ("ada", "the new one is wrong", True)
    assert (entry.body["from"]["version"], entry.body["to"]["version"]) == (2, 3)
    assert entry.body["evidence"] == control.package(9).digest
    assert ledger().verify() == []


def test_force_without_a_reason_is_refused(tmp_path):
    registered(tmp_path, 1)
    with pytest.raises(AirflowFailException, match="reason: is empty"):
        chosen(version=1, force=True)


@pytest.mark.covers("field-reports 79")
def test_a_rollback_stages_the_previous_version_again_and_judges_nobody(tmp_path):
    for number, partition in ((1, OLD), (2, NEW)):
        registered(tmp_path, number, partition)
        run(tmp_path)
    back = chosen(rollback=True, reason="latency").model_dump(mode="json")
    staged = calls.stage(ROW).spec(candidate=back)
    assert (staged.name, staged.package.digest) == ("flight_delay_v1", control.package(1).digest)
    assert isinstance(calls.judge(ROW).spec(candidate=back, staged={}), Skip)
    assert isinstance(calls.challenge(ROW).spec(candidate=back), Skip)
    settle(Candidate.model_validate(back), None)
    entry = ledger().entries(tasks.PROMOTION, ROW.model)[-1]
    assert (entry.body["rollback"], entry.body["reason"], entry.actor) == (True, "latency", "ada")
    assert (entry.body["from"]["version"], entry.body["to"]["version"]) == (2, 1)
    with pytest.raises(AirflowSkipException):  # what was rolled back does not come again by itself
        tasks.choose_candidate(ROW, PARAMS, "run")


def test_aliases_are_the_routing_record_and_the_challenger_only_while_it_is_judged(tmp_path):
    for number, partition in ((1, OLD), (2, NEW)):
        registered(tmp_path, number, partition)
        candidate = chosen()
        named = calls.challenge(ROW).spec(candidate=candidate.model_dump(mode="json"))
        assert (named.champion, named.challenger) == (live_version(), number)
        settle(candidate, judged(tmp_path, "pass"))
    after = calls.alias(ROW).spec(settled={})
    assert (after.champion, after.previous, after.challenger) == (2, 1, None)
    assert (after.package_digest, after.previous_digest) == (control.package(2).digest, control.package(1).digest)


def test_an_alias_that_was_moved_by_hand_is_a_row_of_the_ledger(tmp_path):
    results = []
    for number, overruled in enumerate([(), ("champion=4",)]):
        uri = file_uri(tmp_path / f"alias-{number}.json")
        found = AliasRef(model=ROW.model, champion=2, previous=1, overruled=overruled)
        write_bytes(uri, found.model_dump_json().encode())
        results.append({"result": uri, "key": "k"})
    assert tasks.note_overruled(ROW, "run", [None, results[0]]) == ()
    for _ in range(2):
        assert tasks.note_overruled(ROW, "run", results) == ("champion=4",)
    assert [row.body["aliases"] for row in ledger().entries(tasks.OVERRULED, ROW.model)] == [["champion=4"]]
