"""The past as the replay needs it: who asked what when, which labels became known when, when features became visible.

Read from the day artifacts of lake and views; nothing here knows the data clock.
"""

from __future__ import annotations

import datetime as dt
import functools
import itertools
from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc

from artifacts.refs import join
from artifacts.store import manifest, read
from feature_repo.materialize import VISIBLE, load_day
from feature_repo.tables import INSTANT, RAW_SCHEMAS, read_table
from serving.contract import Feedback, ReplaySpec
from serving.past import Asked, past

DAY = dt.timedelta(days=1)
HOUR = dt.timedelta(hours=1)
LABELS_BACK = 2  # service days before the span whose labels may become known in it


class History:
    """Requests and labels of the lake, and instants of the views, by service day; each day is read once."""

    def __init__(self, spec: ReplaySpec) -> None:
        self._lake, self._views, self._calendar = spec.lake, spec.views, spec.calendar
        self._past = past(spec)
        self._tables = functools.lru_cache(maxsize=8)(self._read)

    def requests(self, start: dt.datetime, end: dt.datetime) -> list[Asked]:
        """The requests with T in [start, end), in order of time."""
        days = map(self._tables, self._days(start, end, before=self._past.back, after=self._past.ahead))
        found = {asked.request_id: asked for asked in self._past.requests(days, start, end)}
        return sorted(found.values(), key=lambda asked: (asked.at, asked.request_id))

    def labels(self, start: dt.datetime, end: dt.datetime) -> list[Feedback]:
        """The labels that became known in [start, end), in order of time."""
        days = map(self._tables, self._days(start, end, before=LABELS_BACK, after=0))
        return sorted(self._past.labels(days, start, end), key=lambda label: (label.known_at, label.request_id))

    def instants(self, start: dt.datetime, end: dt.datetime) -> set[dt.datetime]:
        """When rows of the views became visible in [start, end): available, and past their view's delay."""
        found: set[dt.datetime] = set()
        for day in self._days(start, end, before=1, after=0):
            uri = join(self._views, day.isoformat())
            if manifest(uri) is None:
                continue
            for table in load_day(uri)[1].values():
                found.update(pc.unique(table[VISIBLE].cast(INSTANT)).to_pylist())
        return {instant for instant in found if start <= instant < end}

    def _days(self, start: dt.datetime, end: dt.datetime, *, before: int, after: int) -> Iterable[dt.date]:
        """The service days that touch [start, end), some more on either side, those outside the calendar left out."""
        day, last = self._calendar.of(start) - before * DAY, self._calendar.of(end) + after * DAY
        while day <= last:
            if day >= self._calendar.first and (self._calendar.last is None or day <= self._calendar.last):
                yield day
            day += DAY

    def _read(self, day: dt.date) -> dict[str, pa.Table]:
        artifact = read(join(self._lake, day.isoformat()))
        return {name: read_table(artifact, name, RAW_SCHEMAS[name]) for name in self._past.tables}


def slots(
    start: dt.datetime, end: dt.datetime, instants: Iterable[dt.datetime]
) -> list[tuple[dt.datetime, dt.datetime]]:
    """[start, end) cut at every whole hour and at every given instant inside it."""
    hour = start.replace(minute=0, second=0, microsecond=0) + HOUR
    cuts = {start, *(instant for instant in instants if start < instant < end)}
    while hour < end:
        cuts.add(hour)
        hour += HOUR
    edges = [*sorted(cuts), end]
    return list(itertools.pairwise(edges))
