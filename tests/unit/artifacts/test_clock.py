from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from artifacts.clock import Calendar, DataClock, NotClosed
from artifacts.records import Records, connect
from operators.ledger import migrate

DAY = dt.timedelta(days=1)
NEW_YORK = Calendar(
    zone="America/New_York",
    close=dt.time(4),
    lateness=dt.timedelta(hours=6),
    first=dt.date(2013, 1, 1),
    last=dt.date(2013, 12, 31),
)
DAYS = st.dates(dt.date(2013, 1, 1), dt.date(2013, 12, 31))
INSTANTS = st.datetimes(dt.datetime(2012, 12, 1), dt.datetime(2014, 2, 1), timezones=st.just(dt.UTC))  # noqa: DTZ001  aware by the strategy


def utc(text: str) -> dt.datetime:
    return dt.datetime.fromisoformat(text).replace(tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("day", "starts", "hours"),
    [
        ("2013-01-15", "2013-01-15T09:00", 24),
        ("2013-03-09", "2013-03-09T09:00", 23),  # the clocks go forward in the night to 03-10
        ("2013-03-10", "2013-03-10T08:00", 24),
        ("2013-11-02", "2013-11-02T08:00", 25),  # and back in the night to 11-03
        ("2013-11-03", "2013-11-03T09:00", 24),
    ],
)
@pytest.mark.covers("decisions 3.5")
def test_a_service_day_follows_the_local_clock_over_summer_time(day: str, starts: str, hours: int) -> None:
    partition = dt.date.fromisoformat(day)
    assert NEW_YORK.starts(partition) == utc(starts)
    assert NEW_YORK.ends(partition) - NEW_YORK.starts(partition) == dt.timedelta(hours=hours)
    assert NEW_YORK.as_of(partition) == NEW_YORK.ends(partition) + dt.timedelta(hours=6)


@settings(deadline=None)  # a busy machine is no fault
@given(INSTANTS)
def test_every_instant_lies_in_exactly_the_day_it_belongs_to(instant: dt.datetime) -> None:
    day = NEW_YORK.of(instant)
    assert NEW_YORK.starts(day) <= instant < NEW_YORK.ends(day)


@settings(deadline=None)  # a busy machine is no fault
@given(DAYS)
def test_days_follow_each_other_without_gap_or_overlap(day: dt.date) -> None:
    assert NEW_YORK.ends(day) == NEW_YORK.starts(day + DAY)


@settings(deadline=None)  # a busy machine is no fault
@given(DAYS)
def test_a_day_is_closed_from_its_as_of_on_and_not_a_second_before(day: dt.date) -> None:
    at = NEW_YORK.as_of(day)
    assert NEW_YORK.newest_closed(at) == day
    assert NEW_YORK.newest_closed(at - dt.timedelta(seconds=1)) == (day - DAY if day > NEW_YORK.first else None)
    NEW_YORK.require_closed(day, at)
    with pytest.raises(NotClosed, match=f"{day} closes at"):
        NEW_YORK.require_closed(day, at - dt.timedelta(seconds=1))


def test_nothing_is_closed_before_the_first_day_and_nothing_after_the_last() -> None:
    assert NEW_YORK.newest_closed(utc("2013-01-01T12:00")) is None
    assert NEW_YORK.newest_closed(utc("2020-01-01T12:00")) == dt.date(2013, 12, 31)


@pytest.mark.parametrize(
    ("text", "says"), [("31.8.2013", "YYYY-MM-DD"), ("2012-12-31", "outside the calendar"), ("2014-01-01", "outside")]
)
def test_a_bad_partition_is_refused_with_the_fix(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        NEW_YORK.parse(text)
    assert NEW_YORK.parse("2013-08-31") == dt.date(2013, 8, 31)


def test_a_calendar_that_makes_no_sense_is_refused() -> None:
    with pytest.raises(ValidationError, match="no IANA time zone"):
        Calendar.model_validate(NEW_YORK.model_dump() | {"zone": "America/Gotham"})
    with pytest.raises(ValidationError, match="lies before first"):
        Calendar.model_validate(NEW_YORK.model_dump() | {"last": dt.date(2012, 1, 1)})


def records(folder: Path) -> Records:
    engine = connect(f"sqlite:///{folder / 'clock.db'}")
    migrate(engine)
    return Records(engine)


def test_the_replay_clock_only_goes_forward(tmp_path: Path) -> None:
    clock = DataClock("replay", records(tmp_path))
    with pytest.raises(LookupError, match="no replay has set the clock"):
        clock.now()
    clock.advance(utc("2013-08-31T10:00"))
    clock.advance(utc("2013-08-31T10:00"))
    clock.advance(utc("2013-08-31T11:00"))
    with pytest.raises(ValueError, match="cannot go back"):
        clock.advance(utc("2013-08-31T10:59"))
    assert DataClock("replay", records(tmp_path)).now() == utc("2013-08-31T11:00")


def test_the_wall_clock_cannot_be_advanced(tmp_path: Path) -> None:
    clock = DataClock("wall", records(tmp_path))
    assert abs(clock.now() - dt.datetime.now(dt.UTC)) < dt.timedelta(minutes=1)
    with pytest.raises(ValueError, match="cannot be advanced"):
        clock.advance(utc("2030-01-01T00:00"))
