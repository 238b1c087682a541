import datetime as dt

import pytest

from artifacts.clock import NotClosed
from operators.partitions import resolve, same_weekdays
from operators.pipelines import NEW_YORK

NOW = dt.datetime(2013, 9, 10, 15, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("typed", "decided", "expected"),
    [
        ("2013-08-31", "2013-09-08", dt.date(2013, 8, 31)),
        (None, "2013-09-08", dt.date(2013, 9, 8)),
        (None, None, dt.date(2013, 9, 9)),
    ],
    ids=["typed wins", "then the decision", "then the newest closed"],
)
@pytest.mark.covers("field-reports 35")
def test_order(typed, decided, expected):
    assert resolve(typed, decided, NEW_YORK, NOW) == expected


def test_a_partition_that_is_no_date_says_how_to_write_it():
    with pytest.raises(ValueError, match=r"'yesterday' is no date; write it as YYYY-MM-DD"):
        resolve("yesterday", None, NEW_YORK, NOW)


def test_a_day_outside_the_calendar_is_refused():
    with pytest.raises(ValueError, match="outside the calendar"):
        resolve("2012-12-31", None, NEW_YORK, NOW)


def test_an_open_day_is_refused_with_the_time_at_which_it_closes():
    with pytest.raises(NotClosed, match="closes at 2013-09-11T14:00Z"):
        resolve("2013-09-10", None, NEW_YORK, NOW)


def test_nothing_closed_yet():
    with pytest.raises(NotClosed, match="wait for the first day"):
        resolve(None, None, NEW_YORK, dt.datetime(2013, 1, 1, 12, tzinfo=dt.UTC))


def test_same_weekdays_leave_exceptions_out():
    labour_day = dt.date(2013, 9, 2)
    days = same_weekdays(labour_day + dt.timedelta(days=7), NEW_YORK)
    assert len(days) == 7
    assert labour_day not in days
    assert all(day.weekday() == 0 for day in days)
