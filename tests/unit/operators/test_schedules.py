"""Which tick of cron is ahead, and of which clock."""

import datetime as dt

import pytest

from artifacts.settings import settings
from operators.pipelines import pipeline
from operators.schedules import next_tick, past_ticks
from operators.settings import platform
from operators.tasks.situation import scheduled

ROW = pipeline("flight_delay")
AFTERNOON = dt.datetime(2013, 9, 10, 14, 5, tzinfo=dt.UTC)


@pytest.fixture
def schedule(monkeypatch):
    def set_to(word, clock="wall"):
        monkeypatch.setenv("PERENNIAL_SCHEDULE", word)
        monkeypatch.setenv("PERENNIAL_CLOCK", clock)
        settings.cache_clear()
        platform.cache_clear()

    yield set_to
    monkeypatch.undo()
    settings.cache_clear()
    platform.cache_clear()


def test_the_rows_own_cron_or_one_for_all(schedule):
    schedule("on")
    assert next_tick("30 15 * * *", AFTERNOON) == AFTERNOON.replace(hour=15, minute=30)
    assert next_tick("5 14 * * *", AFTERNOON) == AFTERNOON + dt.timedelta(days=1)
    schedule("0 20 * * *")
    assert next_tick("30 15 * * *", AFTERNOON) == AFTERNOON.replace(hour=20, minute=0)


@pytest.mark.parametrize(("word", "clock"), [("off", "wall"), ("on", "replay")])
def test_no_tick_is_ahead_without_cron_or_under_a_replay(schedule, word, clock):
    schedule(word, clock)
    assert next_tick("30 15 * * *", AFTERNOON) is None
    assert scheduled(ROW, AFTERNOON) is None


def test_the_next_retrain_resolves_the_day_that_is_closed_by_then(schedule):
    schedule("on")
    run = scheduled(ROW, AFTERNOON)
    assert (run.at, run.partition) == (AFTERNOON.replace(hour=15, minute=30), dt.date(2013, 9, 9))
    before_dawn = dt.datetime(2013, 9, 10, 3, tzinfo=dt.UTC)
    assert scheduled(ROW, before_dawn).partition == dt.date(2013, 9, 9)  # it will close before the tick


def test_ticks_that_have_passed_are_those_of_the_time_between(schedule):
    schedule("on")
    day = dt.timedelta(days=1)
    found = past_ticks("30 15 * * *", AFTERNOON - 3 * day, AFTERNOON)
    assert [f"{tick:%m-%d %H:%M}" for tick in found] == ["09-07 15:30", "09-08 15:30", "09-09 15:30"]
    last = dt.datetime(2013, 9, 9, 15, 30, tzinfo=dt.UTC)
    assert past_ticks("30 15 * * *", last - day, last) == (last,)


@pytest.mark.parametrize(("word", "clock"), [("off", "wall"), ("on", "replay")])
def test_a_clock_that_cron_does_not_keep_to_has_no_ticks(schedule, word, clock):
    schedule(word, clock)
    assert past_ticks("30 15 * * *", AFTERNOON - dt.timedelta(days=3), AFTERNOON) == ()
