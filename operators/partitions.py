"""The one partition resolver: which day a run is for. Pure, but for the values that it is given.

Runs that an asset wakes carry no logical date, so nothing here reads one: what was typed wins, then the open decision
that woke the run, then the newest day that is closed on the data clock.
"""

from __future__ import annotations

import datetime as dt

from artifacts.clock import Calendar, NotClosed


def resolve(typed: str | None, decided: str | None, calendar: Calendar, now: dt.datetime) -> dt.date:
    """The partition of a run; raises ValueError or NotClosed with what to do when there is none."""
    for text in (typed, decided):
        if text:
            partition = calendar.parse(text)
            calendar.require_closed(partition, now)
            return partition
    newest = calendar.newest_closed(now)
    if newest is None:
        raise NotClosed(
            f"no partition from {calendar.first} on is closed at {now:%Y-%m-%dT%H:%MZ} on the data clock; wait for the first day to close"
        )
    return newest


def same_weekdays(partition: dt.date, calendar: Calendar, weeks: int = 8) -> tuple[dt.date, ...]:
    """The last ``weeks`` same weekdays before a partition, declared exceptions left out (decisions.md, gate G1)."""
    days = (partition - dt.timedelta(days=7 * week) for week in range(1, weeks + 1))
    return tuple(day for day in days if day >= calendar.first and day not in calendar.exceptions)
