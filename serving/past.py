"""The requests and labels of past service days, one class per kind of question. Pure: tables of the lake in, values out.

They are those of feature_repo/labelled.py, met one by one: the same ids, the same instants, the same labels.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from artifacts.clock import Calendar
from feature_repo.contract import NextObservation
from serving.contract import Feedback, ReplaySpec, RequestInput

HOUR = dt.timedelta(hours=1)
ROW_ID = "flight_id"

Day = Mapping[str, pa.Table]


@dataclass(frozen=True)
class Asked:
    """One request of the past: its id, the instant T at which it was asked, its inputs by name."""

    request_id: str
    at: dt.datetime
    inputs: Mapping[str, Any]


class Past(Protocol):
    """What a replay asks of a question: the lake's tables, and service days ``back`` and ``ahead`` of a span that tell of its requests."""

    @property
    def tables(self) -> tuple[str, ...]: ...

    @property
    def back(self) -> int: ...

    @property
    def ahead(self) -> int: ...

    def requests(self, days: Iterable[Day], start: dt.datetime, end: dt.datetime) -> Iterable[Asked]:
        """The requests with T in [start, end), of each id the newest last."""

    def labels(self, days: Iterable[Day], start: dt.datetime, end: dt.datetime) -> Iterable[Feedback]:
        """The labels that became known in [start, end)."""


def past(spec: ReplaySpec) -> Past:
    """The past that the spec's question looks at."""
    if isinstance(spec.question, NextObservation):
        return Observations(spec.question, spec.calendar)
    return Flights(spec.serving.request, spec.lead, spec.late_minutes)


@dataclass(frozen=True)
class Flights:
    """Every scheduled flight, asked ``lead`` before it leaves; late by ``late`` minutes, cancelled or diverted is 1."""

    wanted: Sequence[RequestInput]
    lead: dt.timedelta
    late: float
    tables: tuple[str, ...] = ("schedule", "departure", "arrival")
    back: int = 0
    ahead: int = 1

    def requests(self, days: Iterable[Day], start: dt.datetime, end: dt.datetime) -> Iterable[Asked]:
        """By schedule row, the newest known at T last."""
        for day in days:
            for row in day["schedule"].sort_by("available_time").to_pylist():
                at = row["scheduled_departure"] - self.lead
                if start <= at < end and row["available_time"] <= at:
                    yield Asked(row[ROW_ID], at, {item.name: sent(row[item.name]) for item in self.wanted})

    def labels(self, days: Iterable[Day], start: dt.datetime, end: dt.datetime) -> Iterable[Feedback]:
        """At the actual arrival, or as soon as it was cancelled."""
        for day in days:
            cancelled = day["departure"].filter(pc.field("cancelled"))
            found = [(row, 1) for row in known(cancelled, start, end)]
            found += [
                (row, int(row["diverted"] or row["arrival_delay"] >= self.late))
                for row in known(day["arrival"], start, end)
            ]
            for row, label in found:
                yield Feedback(request_id=row[ROW_ID], label=label, known_at=row["available_time"])


@dataclass(frozen=True)
class Observations:
    """Every hour at every station that has reported, asked ``question.notice`` before it; the label is the reading."""

    question: NextObservation
    calendar: Calendar
    tables: tuple[str, ...] = ("weather",)
    back: int = 1
    ahead: int = 0

    def requests(self, days: Iterable[Day], start: dt.datetime, end: dt.datetime) -> Iterable[Asked]:
        """Hour by hour, whether or not an observation comes."""
        seen: dict[str, dt.datetime] = {}
        for row in (row for day in days for row in day["weather"].select(["origin", "available_time"]).to_pylist()):
            seen[row["origin"]] = min(seen.get(row["origin"], row["available_time"]), row["available_time"])
        hour = (start + self.question.notice).replace(minute=0, second=0, microsecond=0)
        while (at := hour - self.question.notice) < end:
            if at >= start and self._in_calendar(at):
                for station in sorted(station for station, first in seen.items() if first <= at):
                    yield Asked(self._named(station, hour), at, {"origin": station, "hour": sent(hour)})
            hour += HOUR

    def labels(self, days: Iterable[Day], start: dt.datetime, end: dt.datetime) -> Iterable[Feedback]:
        """When the report was out."""
        for day in days:
            for row in known(day["weather"], start, end):
                if (value := row[self.question.value]) is not None:
                    name = self._named(row["origin"], row["event_time"])
                    yield Feedback(request_id=name, label=value, known_at=row["available_time"])

    def _in_calendar(self, at: dt.datetime) -> bool:
        day = self.calendar.of(at)
        return day >= self.calendar.first and (self.calendar.last is None or day <= self.calendar.last)

    def _named(self, station: str, hour: dt.datetime) -> str:
        return f"{station}-{hour:%Y-%m-%dT%HZ}"


def known(table: pa.Table, start: dt.datetime, end: dt.datetime) -> list[dict[str, Any]]:
    """The rows that became available in [start, end)."""
    available = pc.field("available_time")
    return table.filter((available >= start) & (available < end)).to_pylist()


def sent(value: Any) -> Any:
    """A value as a caller sends it: times as ISO text in UTC."""
    return value.strftime("%Y-%m-%dT%H:%M:%SZ") if isinstance(value, dt.datetime) else value
