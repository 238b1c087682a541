from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from artifacts.refs import sha256
from monitoring.contract import (
    AgeLoss,
    Alert,
    CheckRow,
    Decision,
    DriftPolicy,
    Effect,
    Finding,
    GpuHours,
    Quality,
    RetrainRow,
    Scheduled,
    Situation,
)
from monitoring.policy import decide, is_hit, row_of, trigger_id
from monitoring.share import drifted_share
from tests.make import monitoring as make

POLICY = DriftPolicy()
DAY = dt.timedelta(days=1)
HIT, CALM, BETWEEN = 0.4, 0.05, 0.2


def clock(number: int) -> dt.datetime:
    """When the partition of day ``number`` is checked."""
    return make.noon(make.LAST + (number + 1) * DAY)


def rows(*scores: float | None) -> list[CheckRow]:
    return [make.check_row(number, score) for number, score in enumerate(scores)]


def after(
    history: list[CheckRow], retrains: tuple[RetrainRow, ...] = (), policy: DriftPolicy = POLICY, **changes: Any
) -> Decision:
    fields: dict[str, Any] = {"model": make.MODEL, "now": make.noon(history[-1].partition + DAY), "retrains": retrains}
    return decide(history, Situation(**{**fields, **changes}), policy)


# --- the hits of a check ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "hit"),
    [
        ({"score": 0.29}, False),
        ({"score": 0.30}, True),
        ({"prediction_psi": 0.19, "prediction_threshold": 0.2}, False),
        ({"prediction_psi": 0.2, "prediction_threshold": 0.2}, True),
        ({"prediction_psi": 0.5, "prediction_threshold": 0.6}, False),
        ({"outcome": "insufficient", "score": None}, False),
        ({"outcome": "incident", "score": None, "prediction_psi": 9.0}, False),
    ],
)
def test_a_check_is_a_hit_at_the_thresholds(changes: dict[str, object], hit: bool) -> None:
    found, reasons = is_hit(make.check_ref(**changes), POLICY)
    assert found is hit
    assert reasons


def quality(upper: float) -> Quality:
    return Quality(
        labelled=900,
        coverage=1,
        log_loss=0.5,
        base_log_loss=0.55,
        auc=0.7,
        skill=0.09,
        skill_at_promotion=0.15,
        difference_upper=upper,
    )


def test_only_a_confirmed_drop_in_skill_is_a_hit() -> None:
    assert is_hit(make.check_ref(quality=quality(-0.01)), POLICY)[0]
    assert not is_hit(make.check_ref(quality=quality(0.0)), POLICY)[0]
    assert row_of(make.check_ref(quality=quality(-0.01)), POLICY).quality_dropped


@pytest.mark.covers("field-reports 113")
@pytest.mark.parametrize("changes", [{"score": None}, {"score": float("nan")}, {"prediction_psi": float("nan")}])
def test_a_figure_that_is_no_number_is_never_a_pass(changes: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="no pass"):
        is_hit(make.check_ref(**changes), POLICY)


# --- the state machine --------------------------------------------------------------------------------------------


def test_debounce_needs_two_hits_of_three() -> None:
    assert after(rows(HIT)).state == "WATCH"
    assert after(rows(HIT, HIT)).state == "TRIGGERED"
    assert after(rows(HIT, CALM, HIT)).retrain
    assert not after(rows(HIT, CALM, CALM, HIT)).retrain


def test_a_partition_without_a_check_keeps_its_place_in_the_window() -> None:
    assert after([make.check_row(0, HIT), make.check_row(2, HIT)]).retrain
    assert not after([make.check_row(0, HIT), make.check_row(3, HIT)]).retrain


def test_hits_of_another_version_do_not_count() -> None:
    old = make.check_row(0, HIT, package_digest=sha256(b"older"))
    assert after([old, make.check_row(1, HIT)]).state == "WATCH"


def test_merged_windows_that_share_a_day_are_one_piece_of_evidence() -> None:
    first = make.check_row(2, HIT, first=make.LAST)
    assert not after([first, make.check_row(3, HIT, first=make.LAST + DAY)]).retrain
    assert after([first, make.check_row(5, HIT, first=make.LAST + 3 * DAY)]).retrain


def test_watch_is_left_after_two_checks_below_the_lower_share() -> None:
    assert after(rows(HIT, CALM)).state == "WATCH"
    assert after(rows(HIT, CALM, BETWEEN, CALM)).state == "WATCH"
    assert after(rows(HIT, CALM, CALM)).state == "STABLE"
    assert after(rows(BETWEEN, BETWEEN)).state == "STABLE"


def test_one_urgent_check_is_enough() -> None:
    assert after([make.check_row(0, 0.6, quality_dropped=True)]).retrain
    assert not after([make.check_row(0, 0.59, quality_dropped=True)]).retrain
    assert not after([make.check_row(0, 0.6)]).retrain


def test_a_broken_feed_never_starts_a_retrain() -> None:
    broken = [make.check_row(number, None, outcome="incident") for number in range(10)]
    assert after([*rows(HIT, HIT), *[make.check_row(2, None, outcome="incident")]]).state == "DATA_INCIDENT"
    assert not any(after(broken[: number + 1]).retrain for number in range(10))


def test_a_check_that_could_not_be_run_is_neither_a_pass_nor_a_hit() -> None:
    failed = make.check_row(2, None, outcome="failed", reasons=("killed by SIGKILL",))
    said = after([*rows(HIT, HIT), failed])
    assert (said.state, said.retrain) == ("CHECK_FAILED", False)
    assert "killed by SIGKILL" in said.reasons
    assert after([*rows(HIT), make.check_row(1, None, outcome="failed"), make.check_row(2, HIT)]).retrain


def test_the_third_window_that_is_too_small_alerts() -> None:
    small = [make.check_row(number, None, outcome="insufficient") for number in range(3)]
    assert after(small[:2]).state == after(small).state == "INSUFFICIENT_DATA"
    assert not any("alert" in reason for reason in after(small[:2]).reasons)
    assert any("alert" in reason for reason in after(small).reasons)


def test_while_a_retrain_runs_its_evidence_is_merged() -> None:
    decision = after(rows(HIT, HIT), retraining=True)
    assert (decision.state, decision.retrain, decision.suppressed_by) == ("RETRAINING", False, "single flight")
    assert decision.trigger_id is None
    open_decision = make.retrain_row(clock(1), ended_at=None, promoted=None)
    assert after(rows(HIT, HIT), (open_decision,)).state == "RETRAINING"


def test_the_cool_down_counts_from_the_end_of_the_retrain() -> None:
    retrain = make.retrain_row(clock(0), ended_at=clock(1))
    assert after(rows(HIT, HIT), (retrain,), now=clock(2) - dt.timedelta(minutes=1)).suppressed_by == "cool-down"
    assert after(rows(HIT, HIT), (retrain,), now=clock(2)).retrain


def test_the_budget_is_kept_and_frees_itself() -> None:
    two = (make.retrain_row(clock(0)), make.retrain_row(clock(3)))
    late = [make.check_row(number, HIT) for number in range(8)]
    spent = after(late[:6], two)
    assert (spent.state, spent.suppressed_by) == ("COOLDOWN", "budget")
    assert after(late, two, now=clock(7)).retrain


def test_two_retrains_without_effect_open_the_breaker_until_it_is_closed() -> None:
    vain = (make.retrain_row(clock(0), promoted=False), make.retrain_row(clock(1), promoted=False))
    late = [make.check_row(number, HIT) for number in range(40)]
    decision = after(late, vain, now=clock(200))
    assert (decision.state, decision.suppressed_by) == ("OPEN", "breaker")
    assert after(late, vain, now=clock(200), breaker_closed_at=clock(100)).retrain
    assert after(late, (*vain, make.retrain_row(clock(20))), now=clock(200)).retrain


def test_a_promotion_that_leaves_the_drift_is_without_effect() -> None:
    def promoted(number: int, left: float) -> RetrainRow:
        return make.retrain_row(clock(number), score_before=0.4, score_after=left)

    late = [make.check_row(number, HIT) for number in range(40)]
    assert after(late, (promoted(0, 0.3), promoted(1, 0.21)), now=clock(60)).state == "OPEN"
    assert after(late, (promoted(0, 0.3), promoted(1, 0.20)), now=clock(60)).retrain


def test_the_same_evidence_gives_the_same_trigger() -> None:
    first, again = after(rows(HIT, HIT)), after(rows(HIT, HIT), now=clock(4))
    assert first.trigger_id == again.trigger_id == trigger_id(make.MODEL, make.LIVE, make.LAST + DAY, POLICY)
    assert after(rows(HIT, HIT, HIT)).trigger_id != first.trigger_id


def test_after_a_pause_of_ten_days_only_the_newest_partition_triggers() -> None:
    history = rows(*[HIT] * 10)
    decisions = [after(history[: n + 1], newest=history[-1].partition, now=clock(10)) for n in range(10)]
    assert [decision.retrain for decision in decisions] == [False] * 9 + [True]
    assert {decision.suppressed_by for decision in decisions[1:9]} == {"superseded"}


# --- labels and alerts --------------------------------------------------------------------------------


def dropped(number: int, back: int, score: float = 0.05, **changes: Any) -> CheckRow:
    """A check whose labels of the ``back`` days before it confirm a drop."""
    labels = (make.LAST + (number - back) * DAY, make.LAST + (number - 1) * DAY)
    row = make.check_row(number, score, quality_dropped=True, labels=labels, **changes)
    return row.model_copy(update={"hit": True, "quality_only": score < 0.3})


def test_labels_that_two_checks_share_count_once() -> None:
    assert after([dropped(0, 6), dropped(1, 6), dropped(2, 6)]).state == "WATCH"
    calm = make.check_row(1, CALM, labels=(make.LAST, make.LAST))
    assert after([dropped(0, 3), calm, dropped(3, 3)]).retrain
    assert after([dropped(0, 3), dropped(2, 3)]).state == "WATCH"


def test_a_drop_and_a_drift_are_two_pieces_of_evidence() -> None:
    assert after([make.check_row(0, HIT), dropped(1, 6)]).retrain
    assert after([dropped(0, 6), make.check_row(1, HIT)]).retrain


def test_an_alert_from_outside_is_a_hit_of_its_day_and_is_debounced_like_one() -> None:
    alerts = tuple(Alert(partition=make.LAST + day * DAY, words="p99 of predictions") for day in range(2))
    one = after(rows(CALM), alerts=alerts)
    assert (one.state, one.retrain) == ("WATCH", False)
    two = after(rows(CALM, CALM), alerts=alerts)
    assert two.retrain
    assert "alert from outside: p99 of predictions" in two.reasons
    broken = [make.check_row(0), make.check_row(1, None, outcome="incident")]
    assert after(broken, alerts=alerts).state == "DATA_INCIDENT"


def test_enough_new_labels_are_due_without_drift() -> None:
    policy = DriftPolicy(feedback_rows=1000)
    assert after(rows(CALM), policy=policy, new_labels=999).state == "STABLE"
    decision = after(rows(CALM), policy=policy, new_labels=1000)
    assert (decision.retrain, decision.cause) == (True, "labels")
    assert not after(rows(CALM), new_labels=10**6).retrain


# --- what holds it back -------------------------------------------------------------------------------------------


def test_a_data_gate_that_has_not_passed_is_an_incident_whatever_the_checks_say() -> None:
    decision = after(rows(HIT, HIT), failed_gate=("raw_day: 120 flights, at least 200 are expected",))
    assert (decision.state, decision.retrain) == ("DATA_INCIDENT", False)
    assert decision.reasons[1] == "raw_day: 120 flights, at least 200 are expected"


def test_a_scheduled_run_of_the_same_partition_covers_the_trigger() -> None:
    now = clock(1)
    soon = Scheduled(at=now + dt.timedelta(hours=6), partition=make.LAST + DAY)
    covered = after(rows(HIT, HIT), scheduled=soon)
    assert (covered.state, covered.suppressed_by) == ("WATCH", "schedule")
    assert covered.reasons[0] == "will be covered by the scheduled run of 2013-09-01 at 2013-09-02T22:00Z"
    later = soon.model_copy(update={"at": now + dt.timedelta(hours=7)})
    assert after(rows(HIT, HIT), scheduled=later).retrain
    assert after(rows(HIT, HIT), scheduled=soon.model_copy(update={"partition": make.LAST})).retrain
    assert after(rows(HIT, HIT), scheduled=soon.model_copy(update={"at": now - DAY})).retrain


def test_the_cool_down_is_as_long_as_trainings_and_labels_need() -> None:
    retrain = (make.retrain_row(clock(0), ended_at=clock(1)),)
    late = rows(*[HIT] * 6)
    assert after(late[:2], retrain, now=clock(2)).retrain
    assert after(late[:2], retrain, now=clock(2), training_p95=dt.timedelta(hours=13)).suppressed_by == "cool-down"
    assert after(late[:2], retrain, now=clock(2), label_delay=2 * DAY).suppressed_by == "cool-down"


def test_the_budget_of_gpu_hours_is_kept() -> None:
    spent = GpuHours(drift=8, weekly=50, expected=2.5)
    decision = after(rows(HIT, HIT), gpu=spent)
    assert (decision.state, decision.suppressed_by) == ("COOLDOWN", "GPU budget")
    assert after(rows(HIT, HIT), gpu=GpuHours(drift=8, weekly=50, expected=2)).retrain


def test_a_retrain_that_is_not_worth_it_waits_for_the_schedule() -> None:
    policy = DriftPolicy(retrain_cost=0.1)
    tomorrow = Scheduled(at=clock(2), partition=make.LAST + 2 * DAY)
    history = [make.check_row(0, HIT, excess=0.02), make.check_row(1, HIT, excess=0.02)]
    waits = after(history, policy=policy, scheduled=tomorrow)
    assert (waits.suppressed_by, waits.state) == ("cost", "WATCH")
    assert "a retrain 0.100" in waits.reasons[0]
    worse = [*history[:1], make.check_row(1, HIT, excess=0.2)]
    assert after(worse, policy=policy, scheduled=tomorrow).retrain


def test_a_stale_model_is_due_without_drift_and_passes_the_same_rules() -> None:
    policy = DriftPolicy(retrain_cost=0.1)
    stale: dict[str, Any] = {
        "ageing": AgeLoss(days=(10,), excess=(0.01,)), "trained_through": make.LAST - 30 * DAY, "policy": policy,
    }  # fmt: skip
    decision = after(rows(CALM), **stale)
    assert (decision.state, decision.cause) == ("TRIGGERED", "staleness")
    assert decision.reasons[0].startswith("stale: trained through 2013-08-01, 31 days ago")
    assert after(rows(CALM), **{**stale, "trained_through": make.LAST - 5 * DAY}).state == "STABLE"
    assert after(rows(CALM), (make.retrain_row(clock(0)),), **stale).state == "COOLDOWN"
    assert after(rows(CALM), retraining=True, **stale).state == "RETRAINING"
    small = [make.check_row(0, None, outcome="insufficient")]
    assert after(small, **stale).cause == "staleness"
    assert after(small).state == "INSUFFICIENT_DATA"
    broken = [make.check_row(0, None, outcome="incident")]
    assert not after(broken, **stale).retrain


def test_the_breaker_is_about_drift_and_leaves_age_to_its_own_rule() -> None:
    vain = tuple(make.retrain_row(clock(-40 + number), promoted=False) for number in range(2))
    stale: dict[str, Any] = {
        "ageing": AgeLoss(days=(10,), excess=(0.01,)), "trained_through": make.LAST - 60 * DAY,
        "policy": DriftPolicy(retrain_cost=0.1),
    }  # fmt: skip
    assert after(rows(HIT, HIT), vain).suppressed_by == "breaker"
    assert after(rows(CALM), vain, **stale).cause == "staleness"
    refused = tuple(make.retrain_row(clock(-40 + number), promoted=False, cause="staleness") for number in range(2))
    assert after(rows(HIT, HIT), refused).retrain


def test_a_stale_model_whose_retrain_was_refused_is_due_again_only_after_another_cost() -> None:
    policy = DriftPolicy(retrain_cost=0.1)
    stale: dict[str, Any] = {
        "ageing": AgeLoss(days=(10,), excess=(0.01,)), "trained_through": make.LAST - 60 * DAY, "policy": policy,
    }  # fmt: skip
    tried = [make.retrain_row(clock(-days), promoted=False, cause="staleness") for days in (9, 12)]
    assert after(rows(CALM), (tried[0],), **stale).state == "STABLE"
    assert after(rows(CALM), (tried[1],), **stale).cause == "staleness"


def test_a_clock_that_goes_back_decides_nothing() -> None:
    decided = (make.retrain_row(clock(5)),)
    decision = after(rows(HIT, HIT), decided, now=clock(1))
    assert (decision.state, decision.suppressed_by) == ("COOLDOWN", "clock")
    assert decision.reasons[0] == (
        "the data clock shows 2013-09-02T16:00Z and has gone back: a retrain was decided at 2013-09-06T16:00Z; nothing is "
        "decided until the clock has passed that"
    )


def test_evidence_that_was_answered_is_not_answered_again() -> None:
    first = after(rows(HIT, HIT))
    done = make.retrain_row(clock(1), trigger_id=first.trigger_id)
    again = after(rows(HIT, HIT), (done,), now=clock(9))
    assert (again.retrain, again.suppressed_by) == (False, "identity")


def test_a_policy_that_is_mostly_wrong_asks_for_more_and_says_so() -> None:
    vain = tuple(
        Effect(
            decided_at=clock(-40 + number), promoted=False, drift_improved=None, quality_improved=None, gain=None,
            helped=False, reasons=("not promoted",),
        )
        for number in range(6)
    )  # fmt: skip
    barely = [make.check_row(number, 0.32, share_only=True) for number in range(2)]
    assert after(barely).retrain
    decision = after(barely, effects=vain)
    assert (decision.retrain, decision.trigger_share) == (False, pytest.approx(0.35))
    assert "trigger share is 0.35 instead of 0.30" in decision.reasons[-1]
    assert after([make.check_row(number, 0.36, share_only=True) for number in range(2)], effects=vain).retrain
    assert after([make.check_row(number, 0.32) for number in range(2)], effects=vain).retrain


def test_the_row_of_a_check_knows_what_its_hit_rests_on() -> None:
    finding = Finding(feature="a", kind="drift", score=0.4, threshold=0.2, weight=0.4, words="a: moved")
    warned = finding.model_copy(update={"feature": "b", "kind": "warn", "weight": 0.1})
    by_share = row_of(make.check_ref(score=0.4, findings=(finding, warned)), POLICY)
    assert (by_share.share_only, by_share.quality_only) == (True, False)
    assert (by_share.drifted, by_share.warned) == ({"a": 0.4}, {"b": 0.1})
    assert by_share.reasons[1] == "moved most: a: moved; a: moved"
    fell = quality(-0.01).model_copy(update={"first": make.LAST, "last": make.LAST})
    by_labels = row_of(make.check_ref(quality=fell), POLICY)
    assert (by_labels.share_only, by_labels.quality_only) == (False, True)
    assert by_labels.labels == (make.LAST, make.LAST)
    assert by_labels.excess == pytest.approx(0.06 * 0.55)


# --- properties ---------------------------------------------------------------------------------------------------

scores = st.one_of(st.none(), st.floats(0, 1))


@st.composite
def histories(draw: st.DrawFn) -> list[CheckRow]:
    found = []
    for number, score in enumerate(draw(st.lists(scores, min_size=1, max_size=8))):
        outcome = "checked" if score is not None else draw(st.sampled_from(["insufficient", "incident", "failed"]))
        found.append(make.check_row(number, score, outcome=outcome, quality_dropped=draw(st.booleans())))
    return found


@given(history=histories(), place=st.integers(0, 7), more=st.floats(0, 1))
def test_more_drift_never_argues_for_less(history: list[CheckRow], place: int, more: float) -> None:
    row = history[place % len(history)]
    worse = max(row.score or 0.0, more)
    raised = make.check_row(0, worse, partition=row.partition, quality_dropped=row.quality_dropped)
    if row.outcome != "checked":
        raised = row
    changed = [raised if other is row else other for other in history]
    assert after(changed).retrain >= after(history).retrain


FEATURES = ("a", "b", "c", "d")


@st.composite
def findings(draw: st.DrawFn) -> dict[str, str]:
    return {name: draw(st.sampled_from(["ok", "warn", "drift"])) for name in FEATURES}


def of_findings(number: int, kinds: dict[str, str]) -> CheckRow:
    weights = {name: 0.1 + 0.1 * place for place, name in enumerate(FEATURES)}
    scores = {"ok": 0.01, "warn": 0.12, "drift": 0.25}
    found = [
        Finding(
            feature=name, kind=kind, score=scores[kind], threshold=POLICY.psi_drift, weight=weights[name], words="-"
        )
        for name, kind in kinds.items()
    ]  # fmt: skip
    return make.check_row(number, drifted_share(found), share_only=True)


@given(history=st.lists(findings(), min_size=1, max_size=6), place=st.integers(0, 5), feature=st.sampled_from(FEATURES))
def test_a_feature_more_never_argues_for_less(history: list[dict[str, str]], place: int, feature: str) -> None:
    louder = {"ok": "warn", "warn": "drift", "drift": "drift"}
    at = place % len(history)
    more = [
        {**kinds, feature: louder[kinds[feature]]} if number == at else kinds for number, kinds in enumerate(history)
    ]
    before, then = (after([of_findings(*each) for each in enumerate(all_)]) for all_ in (history, more))
    assert then.retrain >= before.retrain


events = st.tuples(
    scores, st.integers(1, 60), st.booleans(), st.booleans(), st.integers(-3 * 24, 3 * 24), st.booleans()
)


@given(days=st.lists(events, min_size=1, max_size=40), closed=st.booleans())
def test_no_sequence_of_events_exceeds_the_budget(days: list[Any], closed: bool) -> None:
    """Whatever the scores, lengths of training, outcomes, alerts, and jumps of the clock in hours, forth and back."""
    history: list[CheckRow] = []
    retrains: list[RetrainRow] = []
    asked: set[str] = set()
    for number, (score, hours, promoted, fell, jump, alerted) in enumerate(days):
        outcome = "incident" if score is None else "checked"
        history.append(make.check_row(number, score, outcome=outcome, quality_dropped=fell))
        now = clock(number) + dt.timedelta(hours=jump)
        running = any(row.ended_at is not None and row.decided_at <= now < row.ended_at for row in retrains)
        alerts = (Alert(partition=history[-1].partition, words="from outside"),) if alerted else ()
        known = {"now": now, "retraining": running, "breaker_closed_at": now if closed else None, "alerts": alerts}
        decision = after(history, tuple(retrains), **known)
        assert decision.reasons
        assert decision.retrain == (decision.trigger_id is not None) == (decision.state == "TRIGGERED")
        assert after(history, tuple(retrains), **known) == decision
        if decision.retrain:
            assert decision.trigger_id not in asked
            asked.add(str(decision.trigger_id))
            retrains.append(
                make.retrain_row(
                    now,
                    ended_at=now + dt.timedelta(hours=hours),
                    promoted=promoted,
                    trigger_id=decision.trigger_id,
                )
            )
    for row in retrains:
        inside = [other for other in retrains if row.decided_at <= other.decided_at < row.decided_at + 7 * DAY]
        assert len(inside) <= POLICY.budget


@given(history=histories(), hours=st.integers(0, 200))
def test_the_same_evidence_twice_is_one_run(history: list[CheckRow], hours: int) -> None:
    first = after(history)
    if not first.retrain:
        return
    decided = make.noon(history[-1].partition + DAY)
    done = make.retrain_row(decided, ended_at=decided + DAY, trigger_id=first.trigger_id)
    again = after(history, (done,), now=decided + dt.timedelta(hours=hours))
    assert not again.retrain
    assert again.suppressed_by in {"cool-down", "identity"}


@given(history=histories())
def test_what_blocks_is_never_undone_by_evidence(history: list[CheckRow]) -> None:
    assert not after(history, retraining=True).retrain
    assert not after(history, failed_gate=("late",)).retrain
    assert not after(history, newest=history[-1].partition + DAY).retrain
    vain = tuple(make.retrain_row(clock(-30 + number), promoted=False) for number in range(2))
    assert not after(history, vain).retrain


def test_a_shift_that_cannot_be_learnt_costs_two_retrains_in_thirty_days() -> None:
    retrains: list[RetrainRow] = []
    for number in range(30):
        decision = after([make.check_row(day, HIT) for day in range(number + 1)], tuple(retrains), now=clock(number))
        if decision.retrain:
            retrains.append(make.retrain_row(clock(number), promoted=False))
    assert len(retrains) == 2
    assert decision.state == "OPEN"
