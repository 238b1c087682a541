"""What wakes the DAGs: cron as the platform allows it, and assets always."""

from __future__ import annotations

import datetime as dt
from itertools import takewhile
from typing import Any

from airflow.sdk import Asset, AssetAny, AssetOrTimeSchedule, CronTriggerTimetable
from croniter import croniter

from operators.settings import platform


def timetable(expression: str, zone: str = "UTC") -> CronTriggerTimetable | None:
    """The cron timetable of a row, or None when ``PERENNIAL_SCHEDULE`` is off; it never runs for a tick that has passed."""
    setting = platform().schedule
    if setting == "off":
        return None
    return CronTriggerTimetable(expression if setting == "on" else setting, timezone=zone, run_immediately=False)


def cron(expression: str) -> CronTriggerTimetable | None:
    """A schedule of cron alone."""
    return timetable(expression)


def cron_or(expression: str, *assets: Asset) -> Any:
    """A schedule of cron and of assets, any one of which wakes; the assets alone when cron is off."""
    when, any_of = timetable(expression), AssetAny(*assets)
    return AssetOrTimeSchedule(timetable=when, assets=any_of) if when else any_of


def past_ticks(expression: str, since: dt.datetime, until: dt.datetime) -> tuple[dt.datetime, ...]:
    """When cron should have woken a row within (since, until] (UTC), oldest first; none where no cron keeps to the data clock."""
    setting = platform().schedule
    if setting == "off" or platform().clock == "replay":
        return ()
    ticks = croniter(expression if setting == "on" else setting, since.astimezone(dt.UTC))
    return tuple(takewhile(lambda tick: tick <= until, iter(lambda: ticks.get_next(dt.datetime), None)))


def next_tick(expression: str, after: dt.datetime) -> dt.datetime | None:
    """When cron wakes a row next (UTC); None without cron, and under the replay clock, for which no tick is ahead."""
    setting = platform().schedule
    if setting == "off" or platform().clock == "replay":
        return None
    ticks = croniter(expression if setting == "on" else setting, after.astimezone(dt.UTC))
    found: dt.datetime = ticks.get_next(dt.datetime)
    return found
