"""The band of a day's volume: the rule of gate G1, its exceptions, and when it may be left out."""

from __future__ import annotations

import datetime as dt

import pytest

from artifacts.clock import Calendar
from feature_repo.contract import CheckPolicy
from feature_repo.expectations.daily import band

POLICY = CheckPolicy()
HOLIDAY = dt.date(2013, 7, 4)
CALENDAR = Calendar(
    zone="America/New_York",
    close=dt.time(4),
    lateness=dt.timedelta(hours=6),
    first=dt.date(2013, 1, 1),
    last=dt.date(2013, 12, 31),
    exceptions=(HOLIDAY,),
)
LATER = dt.date(2013, 6, 3)


def test_a_band_lies_around_the_median_and_one_odd_day_does_not_move_it() -> None:
    found = band(LATER, (900, 1000, 5000), CALENDAR, POLICY)
    assert (found.least, found.most, found.none) == (500, 2000, "")


@pytest.mark.parametrize(("rows", "inside"), [(499, False), (500, True), (2000, True), (2001, False)])
def test_both_ends_of_the_band_belong_to_it(rows: int, inside: bool) -> None:
    found = band(LATER, (1000,) * 8, CALENDAR, POLICY)
    assert found.least is not None
    assert found.most is not None
    assert (found.least <= rows <= found.most) is inside


@pytest.mark.parametrize(("day", "allowed"), [("2013-02-25", True), ("2013-02-26", False)])
def test_too_short_a_history_is_allowed_in_the_first_eight_weeks_only(day: str, allowed: bool) -> None:
    found = band(dt.date.fromisoformat(day), (1000, 1000), CALENDAR, POLICY)
    assert found.least is None
    assert found.allowed is allowed
    assert "fewer than 3 same weekdays are known" in found.none


def test_a_set_that_begins_later_counts_its_weeks_from_its_own_first_day() -> None:
    assert not band(LATER, (), CALENDAR, POLICY).allowed
    assert band(LATER, (), CALENDAR, POLICY, first=dt.date(2013, 5, 1)).allowed


def test_a_declared_exception_is_not_judged() -> None:
    found = band(HOLIDAY, (1000,) * 8, CALENDAR, POLICY)
    assert (found.least, found.most, found.allowed) == (None, None, True)
    assert found.none == "a declared exception of the calendar"
