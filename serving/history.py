"""The past as the replay needs it: who asked what when, which labels became known when, when features became visible.

Read from the day artifacts of lake and views; nothing here knows the data clock.
"""

from __future__ import annotations

import datetime as dt
import functools
import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from artifacts.refs import join
from artifacts.store import manifest, read
from feature_repo.materialize import VISIBLE, load_day
from feature_repo.tables import INSTANT, RAW_SCHEMAS, read_table
from serving.contract import Feedback, ReplaySpec

DAY = dt.timedelta(days=1)
HOUR = dt.timedelta(hours=1)
ROW_ID = "flight_id"
WANTED_TABLES = ("schedule", "departure", "arrival")


@dataclass(frozen=True)
class Asked:
    """One request of the past: its id, the instant T at which it was asked, its inputs by name."""

    request_id: str
    at: dt.datetime
    inputs: Mapping[str, Any]


class History:
    """Requests and labels of the lake, and instants of the views, by service day; each day is read once."""

    def __init__(self, spec: ReplaySpec) -> None:
        self._lake, self._views, self._calendar = spec.lake, spec.views, spec.calendar
        self._wanted, self._lead, self._late = spec.serving.request, spec.lead, spec.late_minutes
        self._tables = functools.lru_cache(maxsize=8)(self._read)

    def requests(self, start: dt.datetime, end: dt.datetime) -> list[Asked]:
        """The requests with T in [start, end), in order of time."""
        found: dict[str, Asked] = {}
        for day in self._days(start, end, before=0, after=1):
            for row in self._tables(day)["schedule"].sort_by("available_time").to_pylist():
                at = row["scheduled_departure"] - self._lead
                if start <= at < end and row["available_time"] <= at:  # of a restated row the newest known at T
                    inputs = {item.name: _sent(row[item.name]) for item in self._wanted}
                    found[row[ROW_ID]] = Asked(row[ROW_ID], at, inputs)
        return sorted(found.values(), key=lambda asked: (asked.at, asked.request_id))

    def labels(self, start: dt.datetime, end: dt.datetime) -> list[Feedback]:
        """The labels that became known in [start, end), in order of time."""
        found = []
        for day in self._days(start, end, before=2, after=0):
            tables = self._tables(day)
            cancelled = tables["departure"].filter(pc.field("cancelled"))
            found += [(row[ROW_ID], row["available_time"], 1) for row in _known(cancelled, start, end)]
            found += [
                (row[ROW_ID], row["available_time"], int(row["diverted"] or row["arrival_delay"] >= self._late))
                for row in _known(tables["arrival"], start, end)
            ]
        labels = [Feedback(request_id=name, label=label, known_at=at) for name, at, label in found]
        return sorted(labels, key=lambda label: (label.known_at, label.request_id))

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
        return {name: read_table(artifact, name, RAW_SCHEMAS[name]) for name in WANTED_TABLES}


def _known(table: pa.Table, start: dt.datetime, end: dt.datetime) -> list[dict[str, Any]]:
    available = pc.field("available_time")
    return table.filter((available >= start) & (available < end)).to_pylist()


def _sent(value: Any) -> Any:
    """A value as a caller sends it: times as ISO text in UTC."""
    return value.strftime("%Y-%m-%dT%H:%M:%SZ") if isinstance(value, dt.datetime) else value


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
