"""Which partitions nobody has trained through although they were due, worked out from the ledger alone."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

from operators.ledger import FAILED, RETRAIN, Ledger
from operators.pipelines import Pipeline
from operators.schedules import past_ticks
from operators.versions import BACKFILL

LOOK_BACK = dt.timedelta(days=7)  # decisions.md 4.6
GAP_PAUSE, GAP_TRIES = dt.timedelta(hours=6), 3


def gaps(row: Pipeline, book: Ledger, now: dt.datetime) -> tuple[dt.date, ...]:
    """Partitions that cron should have trained through in the last week and did not, newest first.

    The newest one is the daily run's own. A gap that was tried lately, or as often as may be, is left to a person.
    """
    ends = book.entries(RETRAIN, row.model)
    done = {str(entry.body["partition"]) for entry in ends if entry.body["outcome"] != FAILED}
    tried: dict[str, list[dt.datetime]] = {}
    for entry in book.entries(BACKFILL, row.model):
        tried.setdefault(str(entry.body["partition"]), []).append(entry.at)
    began = min((str(entry.body["partition"]) for entry in ends), default=None)
    if began is None:
        return ()
    ticks = past_ticks(row.schedule, now - LOOK_BACK, now)
    wanted = {day.isoformat() for tick in ticks if (day := row.calendar.newest_closed(tick)) is not None}
    newest = max(wanted, default="")
    return tuple(
        dt.date.fromisoformat(day)
        for day in sorted(wanted, reverse=True)
        if began < day < newest and day not in done and _may_be_tried(tried.get(day, []), now)
    )


def _may_be_tried(earlier: Sequence[dt.datetime], now: dt.datetime) -> bool:
    return len(earlier) < GAP_TRIES and all(now - at >= GAP_PAUSE for at in earlier)
