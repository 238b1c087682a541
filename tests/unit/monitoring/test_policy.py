from __future__ import annotations

import datetime as dt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from artifacts.refs import sha256
from monitoring.contract import CheckRow, Decision, DriftPolicy, Quality, RetrainRow
from monitoring.policy import decide, is_hit, row_of, trigger_id
from tests.make import monitoring as make

POLICY = DriftPolicy()
DAY = dt.timedelta(days=1)
HIT, CALM, BETWEEN = 0.4, 0.05, 0.2


def clock(number: int) -> dt.datetime:
    """When the partition of day ``number`` is checked."""
    return make.noon(make.LAST + (number + 1) * DAY)


def rows(*scores: float | None) -> list[CheckRow]:
    return [make.check_row(number, score) for number, score in enumerate(scores)]


def after(history: list[CheckRow], retrains: tuple[RetrainRow, ...] = (), **changes: object) -> Decision:
    fields: dict[str, object] = {
        "retraining": False,
        "now": make.noon(history[-1].partition + DAY),
        "model": make.MODEL,
        "policy": POLICY,
    }
    return decide(history, retrains, **{**fields, **changes})  # type: ignore[arg-type]


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


@given(
    days=st.lists(st.tuples(scores, st.integers(1, 60), st.booleans(), st.booleans()), min_size=1, max_size=40),
    closed=st.booleans(),
)
def test_no_sequence_of_events_exceeds_the_budget(
    days: list[tuple[float | None, int, bool, bool]], closed: bool
) -> None:
    history: list[CheckRow] = []
    retrains: list[RetrainRow] = []
    for number, (score, hours, promoted, dropped) in enumerate(days):
        outcome = "incident" if score is None else "checked"
        history.append(make.check_row(number, score, outcome=outcome, quality_dropped=dropped))
        now = clock(number)
        running = any(row.ended_at is not None and row.ended_at > now for row in retrains)
        decision = after(
            history, tuple(retrains), now=now, retraining=running, breaker_closed_at=now if closed else None
        )
        assert decision.retrain == (decision.trigger_id is not None)
        if decision.retrain:
            retrains.append(make.retrain_row(now, ended_at=now + dt.timedelta(hours=hours), promoted=promoted))
    for row in retrains:
        inside = [other for other in retrains if row.decided_at <= other.decided_at < row.decided_at + 7 * DAY]
        assert len(inside) <= POLICY.budget


def test_a_shift_that_cannot_be_learnt_costs_two_retrains_in_thirty_days() -> None:
    retrains: list[RetrainRow] = []
    for number in range(30):
        decision = after([make.check_row(day, HIT) for day in range(number + 1)], tuple(retrains), now=clock(number))
        if decision.retrain:
            retrains.append(make.retrain_row(clock(number), promoted=False))
    assert len(retrains) == 2
    assert decision.state == "OPEN"
