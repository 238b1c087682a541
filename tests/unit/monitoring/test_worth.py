from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from monitoring.contract import AgeLoss, CheckRow, DriftPolicy, Effect, Scheduled, Situation
from monitoring.worth import accumulated, excess_at, expected_loss, not_worth_it, staleness
from tests.make import monitoring as make

CURVE = AgeLoss(days=(10, 20), excess=(0.01, 0.03))
POLICY = DriftPolicy(retrain_cost=0.1)
NOW = make.noon(make.LAST)


def situation(age: int = 0, **changes: Any) -> Situation:
    fields: dict[str, Any] = {
        "model": make.MODEL,
        "now": NOW,
        "trained_through": make.LAST - age * make.DAY,
        "ageing": CURVE,
    }
    return Situation(**{**fields, **changes})


def scheduled(days: float) -> Scheduled:
    return Scheduled(at=NOW + days * make.DAY, partition=make.LAST)


def row(excess: float | None = None) -> CheckRow:
    return make.check_row(0, 0.4, excess=excess)


@pytest.mark.parametrize(("age", "loss"), [(0, 0), (5, 0.005), (10, 0.01), (15, 0.02), (20, 0.03), (400, 0.03)])
def test_the_loss_by_age_is_straight_between_the_points(age: int, loss: float) -> None:
    assert excess_at(CURVE, age) == pytest.approx(loss)


def test_a_curve_that_dips_below_zero_is_noise() -> None:
    noisy = AgeLoss(days=(7, 14), excess=(-0.002, 0.01))
    assert excess_at(noisy, 7) == 0
    assert accumulated(noisy, 30) > accumulated(noisy, 14) > accumulated(noisy, 7) == 0


@pytest.mark.parametrize(
    ("days", "excess", "said"),
    [((7, 7), (0.1, 0.2), "must rise"), ((0, 7), (0.1, 0.2), "must rise"), ((7,), (0.1, 0.2), "one for each"), ((7,), (float("nan"),), "no number")],
)  # fmt: skip
def test_a_curve_that_is_none_is_refused(days: tuple[int, ...], excess: tuple[float, ...], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        AgeLoss(days=days, excess=excess)


def test_a_model_is_stale_when_its_loss_adds_up_to_a_retrain() -> None:
    first = next(age for age in range(100) if staleness(situation(age), POLICY))
    assert accumulated(CURVE, first - 1) < 0.1 <= accumulated(CURVE, first)
    assert f"{first} days ago" in staleness(situation(first), POLICY)[0]
    assert not staleness(situation(first), DriftPolicy())
    assert not staleness(situation(first, ageing=None), POLICY)
    assert not staleness(situation(trained_through=None), POLICY)


def test_adding_up_to_the_cost_is_the_cheapest_spacing_when_loss_grows_evenly() -> None:
    even = AgeLoss(days=(1000,), excess=(1.0,))
    spacing = next(age for age in range(1, 1000) if accumulated(even, age) >= 0.1)
    cost = {each: (0.1 + accumulated(even, each)) / each for each in range(1, 200)}
    assert abs(spacing - min(cost, key=cost.__getitem__)) <= 1


@given(curve=st.lists(st.floats(-1, 1), min_size=1, max_size=6), age=st.integers(0, 60), more=st.integers(0, 60))
def test_more_age_never_argues_for_less(curve: list[float], age: int, more: int) -> None:
    given_curve = AgeLoss(days=tuple(range(7, 7 * len(curve) + 1, 7)), excess=tuple(curve))
    due = [bool(staleness(situation(days, ageing=given_curve), POLICY)) for days in (age, age + more)]
    assert due[0] <= due[1]


def test_the_expected_loss_is_the_largest_known_figure() -> None:
    helped = Effect(
        decided_at=NOW,
        promoted=True,
        drift_improved=None,
        quality_improved=True,
        gain=0.05,
        helped=True,
        reasons=("x",),
    )
    assert expected_loss(row(), situation(10)) == pytest.approx(0.01)
    assert expected_loss(row(0.04), situation(10)) == 0.04
    assert expected_loss(row(0.04), situation(10, effects=(helped,))) == 0.05
    assert expected_loss(row(), situation(ageing=None)) is None


def test_a_retrain_that_costs_more_than_waiting_is_not_worth_it() -> None:
    why = not_worth_it(row(0.04), situation(ageing=None, scheduled=scheduled(1)), POLICY)
    assert why == "waiting 1.0 days for the schedule costs about 0.040 log loss x days (0.040 a day), a retrain 0.100"
    assert not_worth_it(row(0.04), situation(ageing=None, scheduled=scheduled(3)), POLICY) is None


@pytest.mark.parametrize("missing", ["cost", "schedule", "loss"])
def test_without_cost_data_the_other_rules_decide(missing: str) -> None:
    policy = DriftPolicy() if missing == "cost" else POLICY
    given_situation = situation(ageing=None, scheduled=None if missing == "schedule" else scheduled(1))
    assert not_worth_it(row(None if missing == "loss" else 0.01), given_situation, policy) is None


def test_a_scheduled_run_of_the_past_costs_no_waiting() -> None:
    assert (
        not_worth_it(row(0.04), situation(scheduled=scheduled(-dt.timedelta(hours=1) / make.DAY)), POLICY) is not None
    )
