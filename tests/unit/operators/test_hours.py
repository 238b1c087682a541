import datetime as dt

import pytest
from airflow.sdk.exceptions import AirflowSkipException

from feature_repo.contract import LATE_DAYS, OnlineRef
from operators.pipelines import FLIGHTS
from operators.plans.features import (
    Built,
    Hours,
    HoursRefused,
    check_online,
    closed_days,
    earlier_days,
    hours,
    ingest,
    materialize,
)
from operators.tasks.features import choose_hours
from tests.make import control

FIRST = FLIGHTS.calendar.starts(FLIGHTS.calendar.first)
NOW = dt.datetime(2013, 9, 1, 14, 20, tzinfo=dt.UTC)


def test_a_first_run_begins_with_the_calendar_and_ends_with_the_last_closed_hour():
    asked = hours(FLIGHTS, Built(), NOW, None, None, replay=False)
    assert asked
    assert (asked.start, asked.end) == (FIRST, NOW.replace(minute=0))


def test_a_later_run_goes_on_and_an_hour_without_news_is_no_work():
    built = Built(built_to=NOW.replace(minute=0) - dt.timedelta(hours=1))
    asked = hours(FLIGHTS, built, NOW, None, None, replay=False)
    assert asked
    assert asked.end - asked.start == dt.timedelta(hours=1)
    assert hours(FLIGHTS, Built(built_to=NOW.replace(minute=0)), NOW, None, None, replay=False) is None


@pytest.mark.covers("field-reports 61")
def test_only_a_replay_may_run_ahead_of_the_clock():
    with pytest.raises(HoursRefused, match="has not closed; the data clock says 2013-09-01T14:20Z"):
        hours(FLIGHTS, Built(), NOW, "2013-08-31", "2013-09-02", replay=False)
    asked = hours(FLIGHTS, Built(), NOW, "2013-08-31", "2013-09-02", replay=True)
    assert asked
    assert asked.end == dt.datetime(2013, 9, 2, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("start", "end", "words"),
    [
        ("soon", None, "from: 'soon' is no time"),
        ("2012-01-01", None, "before the calendar's first hour"),
        ("2013-08-31", "2013-08-30", "does not lie after"),
    ],
)
def test_bad_hours_say_what_is_wrong(start, end, words):
    with pytest.raises(HoursRefused, match=words):
        hours(FLIGHTS, Built(), NOW, start, end, replay=False)


def test_materialisation_follows_the_data_clock_not_the_build():
    asked = hours(FLIGHTS, Built(), NOW, "2013-08-31", "2013-09-20", replay=True)
    assert asked
    spec = materialize(FLIGHTS, "file:///store", "online", asked, Built())
    assert spec
    assert (spec.start, spec.end) == (asked.start, NOW)
    ahead = asked.model_copy(update={"start": NOW + dt.timedelta(hours=1)})
    assert materialize(FLIGHTS, "file:///store", "online", ahead, Built(materialized_to=NOW)) is None


def test_hours_that_are_built_again_reach_the_store_again():
    built = Built(built_to=NOW.replace(minute=0), materialized_to=NOW)
    asked = hours(FLIGHTS, built, NOW, "2013-08-20", "2013-08-21", replay=False)
    assert asked
    spec = materialize(FLIGHTS, "file:///store", "online", asked, built)
    assert spec
    assert (spec.start, spec.end) == (asked.start, NOW)


def test_a_gap_is_refused_since_nothing_would_ever_fill_it():
    built = Built(built_to=dt.datetime(2013, 2, 1, tzinfo=dt.UTC))
    with pytest.raises(HoursRefused, match="would leave a gap: hours are built to 2013-02-01T00:00Z"):
        hours(FLIGHTS, built, NOW, "2013-03-01", None, replay=False)


def test_hours_end_with_the_calendar():
    asked = hours(FLIGHTS, Built(), dt.datetime(2026, 1, 1, tzinfo=dt.UTC), None, None, replay=False)
    assert asked
    assert asked.end == FLIGHTS.calendar.as_of(dt.date(2013, 12, 31))


def test_a_window_looks_back_as_far_as_late_records_change_rows():
    asked = hours(FLIGHTS, Built(), NOW, "2013-09-01", None, replay=False)
    assert asked
    spec = materialize(FLIGHTS, "file:///store", "online", asked, Built(materialized_to=NOW - dt.timedelta(hours=1)))
    assert spec
    assert (spec.start, spec.end, spec.lookback) == (asked.start, NOW, dt.timedelta(days=LATE_DAYS))


def test_each_hour_reads_another_sample_back():
    def spec(end):
        return check_online(FLIGHTS, "file:///store", OnlineRef(online="online", start=FIRST, end=end, rows={}))

    assert spec(NOW) == spec(NOW)
    assert spec(NOW).end == NOW
    assert spec(NOW).seed != spec(NOW + dt.timedelta(hours=1)).seed


def test_an_hour_reads_the_days_of_its_windows_and_says_what_is_built_and_what_has_closed():
    asked = hours(FLIGHTS, Built(built_to=NOW.replace(minute=0) - dt.timedelta(hours=1)), NOW, None, None, replay=False)
    assert asked
    spec = ingest(FLIGHTS, "file:///store", asked)
    assert (spec.first, spec.last) == (dt.date(2013, 8, 20), dt.date(2013, 9, 1))
    assert (spec.built_to, spec.closed_to) == (asked.start, asked.end)


def asked(start: str, end: str, now: str) -> Hours:
    return Hours(start=start, end=end, now=now)


@pytest.mark.parametrize(
    ("start", "end", "now", "days"),
    [
        ("2013-09-01T13:00Z", "2013-09-01T14:00Z", "2013-09-01T14:20Z", ["2013-08-31"]),  # 10:00 in New York
        ("2013-09-01T12:00Z", "2013-09-01T13:00Z", "2013-09-01T13:20Z", []),
        ("2013-09-01T14:00Z", "2013-09-01T15:00Z", "2013-09-01T15:20Z", []),
        ("2013-08-29T14:00Z", "2013-09-01T14:00Z", "2013-09-01T14:20Z", ["2013-08-29", "2013-08-30", "2013-08-31"]),
        ("2013-01-01T09:00Z", "2013-01-01T10:00Z", "2013-01-01T10:20Z", []),  # no day has closed yet
        # one day built again, long after it closed
        ("2013-05-01T08:00Z", "2013-05-02T08:00Z", "2013-09-01T14:20Z", ["2013-04-30", "2013-05-01"]),
        # ahead of the clock, in a replay
        ("2013-08-31T14:00Z", "2013-09-03T14:00Z", "2013-09-01T14:00Z", ["2013-08-31", "2013-09-01", "2013-09-02"]),
        # the day with 25 hours
        ("2013-11-04T14:00Z", "2013-11-04T15:00Z", "2013-11-04T15:20Z", ["2013-11-03"]),
    ],
)
def test_each_day_is_checked_by_the_run_in_which_it_closes(start: str, end: str, now: str, days: list[str]) -> None:
    assert [str(day) for day in closed_days(FLIGHTS, asked(start, end, now))] == days


@pytest.mark.parametrize(
    ("start", "end", "now", "first", "last"),
    [
        ("2013-09-01T13:00Z", "2013-09-01T14:00Z", "2013-09-01T14:20Z", "2013-08-20", "2013-08-30"),
        ("2013-09-01T14:00Z", "2013-09-01T15:00Z", "2013-09-01T15:20Z", "2013-08-20", "2013-08-31"),
        ("2013-01-03T15:00Z", "2013-01-03T16:00Z", "2013-01-03T16:20Z", "2013-01-01", "2013-01-02"),
    ],
)
def test_the_days_that_closed_before_and_that_a_run_reads(
    start: str, end: str, now: str, first: str, last: str
) -> None:
    found = earlier_days(FLIGHTS, asked(start, end, now))
    assert (str(found[0]), str(found[-1])) == (first, last)
    assert not set(found) & set(closed_days(FLIGHTS, asked(start, end, now)))


def test_no_day_has_closed_before_a_history_begins() -> None:
    assert earlier_days(FLIGHTS, asked("2013-01-01T09:00Z", "2013-01-01T10:00Z", "2013-01-01T10:20Z")) == ()


def test_hourly_runs_leave_no_day_out_and_check_none_twice() -> None:
    first = dt.datetime(2013, 10, 30, 0, tzinfo=dt.UTC)
    hour = dt.timedelta(hours=1)
    found = []
    for number in range(9 * 24):
        end = first + number * hour
        found += closed_days(FLIGHTS, Hours(start=end - hour, end=end, now=end + dt.timedelta(minutes=5)))
    assert found == [dt.date(2013, 10, 29) + n * dt.timedelta(days=1) for n in range(len(found))]
    assert len(found) == 9


@pytest.mark.parametrize("replay", [True, False])
def test_a_clock_that_has_gone_back_is_refused(replay):
    built = Built(built_to=NOW, materialized_to=NOW)
    with pytest.raises(HoursRefused, match="2013-09-01T14:20Z has been reached already: it has gone back"):
        hours(FLIGHTS, built, NOW - dt.timedelta(hours=1), None, None, replay=replay)


def test_views_that_a_replay_has_built_ahead_are_no_sign_of_a_clock_that_went_back():
    built = Built(built_to=NOW + dt.timedelta(days=18), materialized_to=NOW)
    assert hours(FLIGHTS, built, NOW, None, None, replay=True) is None
    with pytest.raises(HoursRefused, match="it has gone back"):
        hours(FLIGHTS, built, NOW, None, None, replay=False)


def test_a_repo_whose_calendar_has_not_begun_has_nothing_to_do(tmp_path, monkeypatch):
    control.deployment(tmp_path, monkeypatch, FIRST + dt.timedelta(minutes=20))
    with pytest.raises(AirflowSkipException, match="no hour has closed since 2013-01-01T"):
        choose_hours(FLIGHTS, {"from": None, "to": None})
