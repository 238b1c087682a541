from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators.jobs.budget import Budget, Standing, admission, estimate, used
from operators.jobs.metering import Usage, meter, month, run_type, statement
from tests.make.jobs import gpu_job, torch_job

NOON = dt.datetime(2013, 9, 1, 12, tzinfo=dt.UTC)
BUDGET = Budget(tenant="flights", hours=100)


def usage(uid: str, hours: float, *, ago: dt.timedelta = dt.timedelta(0), **changes: Any) -> Usage:
    job = gpu_job(nodes=1, processes_per_node=1)
    begun = meter(job, "fit-a1", uid, NOON, "scheduled")
    ended = NOON + dt.timedelta(hours=hours)
    return Usage(
        **{**begun.model_dump(), "at": NOON - ago, "ended": ended, "seconds": hours * 3600, **changes},
    )


def standing(used_hours: float, reserved_hours: float = 0) -> Standing:
    return Standing(budget=BUDGET, used=used_hours * 3600, reserved=reserved_hours * 3600)


@pytest.mark.parametrize(
    ("gone", "wanted", "verdict"),
    [
        (standing(0), 10, "admit"),
        (standing(60, 10), 9, "admit"),
        (standing(60, 10), 10, "warn"),
        (standing(90, 5), 5, "warn"),
        (standing(90, 5), 6, "queue"),
        (standing(0), 101, "never"),
    ],
)
def test_eighty_percent_warns_and_a_full_budget_queues(gone: Standing, wanted: float, verdict: str) -> None:
    found = admission(gone, wanted * 3600)
    assert found.verdict == verdict
    assert "flights" in found.reason
    assert "100 gpu-hours" in found.reason


@given(st.floats(0, 200), st.floats(0, 50), st.floats(0, 200), st.floats(0, 50))
def test_more_usage_never_admits_more(gone: float, reserved: float, wanted: float, more: float) -> None:
    order = ["admit", "warn", "queue", "never"]
    before, after = (admission(standing(one, reserved), wanted * 3600).verdict for one in (gone, gone + more))
    assert order.index(after) >= order.index(before)


def test_the_window_rolls_and_only_the_tenants_billable_units_count() -> None:
    usages = [
        usage("a", 2),
        usage("b", 3, ago=dt.timedelta(days=6, hours=23)),
        usage("old", 5, ago=dt.timedelta(days=7)),
        usage("ours", 7, code="S401"),
        usage("other", 11, tenant="weather"),
        usage("cores", 13, unit="core"),
    ]
    assert used(BUDGET, usages, NOON) == 5 * 3600


def test_an_estimate_is_the_median_of_its_like_and_else_what_was_declared() -> None:
    job = gpu_job(nodes=1, processes_per_node=2, estimate_hours=2)
    two = [usage("a", 1), usage("b", 2)]
    assert estimate(job, two) == 2 * 2 * 3600
    assert estimate(job, [*two, usage("c", 9), usage("d", 50, code="C201")]) == 2 * 3600
    assert estimate(torch_job(model="other", estimate_hours=1), [*two, usage("c", 9)]) == 2 * 3600


def test_the_statement_adds_up_and_does_not_bill_the_platforms_faults() -> None:
    text = statement([usage("a", 1), usage("b", 2), usage("c", 4, code="S401"), usage("d", 8, tenant="weather")])
    assert text.splitlines() == [
        "tenant,model,run_type,outcome,unit,pods,unit_hours,billed_hours",
        "flights,(all),,,gpu,3,7.0000,3.0000",
        "flights,flight_delay,scheduled,S401,gpu,1,4.0000,0.0000",
        "flights,flight_delay,scheduled,completed,gpu,2,3.0000,3.0000",
        "weather,(all),,,gpu,1,8.0000,8.0000",
        "weather,flight_delay,scheduled,completed,gpu,1,8.0000,8.0000",
    ]


def test_a_month_is_a_month_of_the_data_clock() -> None:
    inside, before = usage("a", 1), usage("b", 1, ago=dt.timedelta(days=1))
    assert month([inside, before], 2013, 9) == (inside,)
    assert month([inside, before], 2013, 8) == (before,)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ({"dag": "retrain__m", "run": "scheduled__2013-09-01"}, "scheduled"),
        ({"dag": "retrain__m", "run": "manual__2013-09-01"}, "manual"),
        ({"dag": "retrain__m", "run": "asset_triggered__2013-09-01"}, "drift"),
        ({"dag": "backfill__m", "run": "asset_triggered__2013-09-01"}, "backfill"),
    ],
)
def test_a_run_says_why_it_is(words: dict[str, str], why: str) -> None:
    assert run_type(words) == why
