"""When a view's feed was behind: judged by its hours, not by single entities."""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from monitoring.contract import DriftPolicy
from monitoring.measure import _clock_went_back, _stale_views, behind
from monitoring.windows import Window

HOUR = 3600.0
DAY = dt.date(2013, 9, 1)
BEGIN = dt.datetime(2013, 9, 1, 8, tzinfo=dt.UTC)


def window(ages: list[float | None], per_hour: int = 10, **columns: Any) -> Window:
    """One request after the other, ``per_hour`` of them in each hour."""
    at = [BEGIN + dt.timedelta(hours=number // per_hour) for number in range(len(ages))]
    fields = {"at": pa.array(at, pa.timestamp("us", "UTC")), "age__origin": pa.array(ages, pa.float64()), **columns}
    return Window(pa.table(fields), (DAY,), np.zeros(len(ages), dtype=np.int64))


@pytest.mark.parametrize(
    ("ages", "share"),
    [
        ([60.0, np.nan, 26 * HOUR, 60.0], 0.0),  # one young row says that the feed of its hour was there
        ([np.nan, 26 * HOUR, 60.0, 60.0], 0.5),
        ([np.nan] * 4, 1.0),
        ([25 * HOUR] * 4, 0.0),
    ],
)
def test_an_hour_is_behind_when_nobody_got_a_young_row(ages: list[float], share: float) -> None:
    assert behind(np.array([1, 1, 2, 2]), np.array(ages), 25 * HOUR) == share


def test_a_view_that_stood_still_is_named_and_new_entities_are_not() -> None:
    policy = DriftPolicy()
    [line] = _stale_views(window([None] * 10 + [60.0] * 90), policy)
    assert line == "view 'origin' had no row younger than 25 h in the hours of 10.0% of requests; materialise it again"
    assert _stale_views(window([None if number % 5 == 0 else 60.0 for number in range(100)]), policy) == ()
    assert _stale_views(window([None] * 10 + [60.0] * 90), DriftPolicy(stale_share=0.1)) == ()


def test_a_log_without_ages_says_nothing_of_views() -> None:
    bare = window([60.0] * 10)
    table = bare.table.drop_columns(["age__origin", "at"])
    assert _stale_views(Window(table, bare.partitions, bare.day), DriftPolicy()) == ()


def test_rows_from_after_the_request_are_a_clock_that_went_back() -> None:
    [line] = _clock_went_back(window([-5.0] * 10 + [60.0] * 90), 0.05)
    assert line.startswith("view 'origin' is younger than the request in 10.0% of requests")
    assert _stale_views(window([-5.0] * 100), DriftPolicy()) == ()  # the other line says it
