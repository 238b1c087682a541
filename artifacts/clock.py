"""The data clock and the calendar of partitions: which day is closed, and what time it is for the data.

Every age, ttl, budget, cool-down and as_of uses the data clock; time-outs use the monotonic clock. Under
``PERENNIAL_CLOCK=replay`` the data clock is a record that only the replay tool advances.
"""

from __future__ import annotations

import datetime as dt
from typing import Literal
from zoneinfo import ZoneInfo

from pydantic import AwareDatetime, BaseModel, field_validator, model_validator

from artifacts.records import Conflict, Records

CLOCK_RECORD = "clock"


class NotClosed(LookupError):
    """The partition's day has not closed on the data clock; wait, or ask for an earlier one."""


class Calendar(BaseModel, frozen=True, extra="forbid"):
    """When a daily partition begins, ends and may be trusted.

    A partition is named by its local date. Day D runs from ``close`` local time on D to ``close`` on D + 1, and is
    closed once the data clock has passed its end by ``lateness``, the time that late records are waited for.
    """

    zone: str
    close: dt.time
    lateness: dt.timedelta
    first: dt.date
    last: dt.date | None = None
    exceptions: tuple[dt.date, ...] = ()

    @field_validator("zone")
    @classmethod
    def _known_zone(cls, value: str) -> str:
        try:
            ZoneInfo(value)
        except (KeyError, ValueError) as error:
            raise ValueError(f"'{value}' is no IANA time zone, such as 'America/New_York'") from error
        return value

    @field_validator("exceptions")
    @classmethod
    def _sorted(cls, value: tuple[dt.date, ...]) -> tuple[dt.date, ...]:
        return tuple(sorted(set(value)))  # a key is made of this, so its order must not depend on the process

    @model_validator(mode="after")
    def _ordered(self) -> Calendar:
        if self.last is not None and self.last < self.first:
            raise ValueError(f"last={self.last} lies before first={self.first}")
        return self

    def parse(self, text: str) -> dt.date:
        """The partition that a text names; raises ValueError with the fix when it names none."""
        try:
            day = dt.date.fromisoformat(text)
        except ValueError as error:
            raise ValueError(f"partition '{text}' is no date; write it as YYYY-MM-DD, such as {self.first}") from error
        if day < self.first or (self.last is not None and day > self.last):
            raise ValueError(f"partition {day} lies outside the calendar ({self.first} to {self.last or 'today'})")
        return day

    def starts(self, partition: dt.date) -> dt.datetime:
        """The UTC instant at which a partition begins."""
        return dt.datetime.combine(partition, self.close, ZoneInfo(self.zone)).astimezone(dt.UTC)

    def ends(self, partition: dt.date) -> dt.datetime:
        """The UTC instant at which a partition ends (exclusive)."""
        return self.starts(partition + dt.timedelta(days=1))

    def as_of(self, partition: dt.date) -> dt.datetime:
        """Knowledge cut-off of a partition: its end plus lateness. A function of the partition, never of the run."""
        return self.ends(partition) + self.lateness

    def of(self, instant: dt.datetime) -> dt.date:
        """The partition that an instant belongs to."""
        day = instant.astimezone(ZoneInfo(self.zone)).date()
        return day if instant >= self.starts(day) else day - dt.timedelta(days=1)

    def newest_closed(self, now: dt.datetime) -> dt.date | None:
        """The newest partition that is closed at ``now``, or None when none is."""
        day = self.of(now)
        while self.as_of(day) > now:
            day -= dt.timedelta(days=1)
        if self.last is not None:
            day = min(day, self.last)
        return day if day >= self.first else None

    def require_closed(self, partition: dt.date, now: dt.datetime) -> None:
        """Raises NotClosed with the time at which the partition will be closed."""
        if self.as_of(partition) > now:
            raise NotClosed(
                f"partition {partition} closes at {self.as_of(partition):%Y-%m-%dT%H:%MZ}; the data clock says {now:%Y-%m-%dT%H:%MZ}"
            )


class ClockValue(BaseModel, frozen=True):
    """What the replay clock's record holds."""

    now: AwareDatetime


class DataClock:
    """What time it is for the data."""

    def __init__(self, kind: Literal["wall", "replay"], records: Records) -> None:
        self._kind = kind
        self._records = records

    def now(self) -> dt.datetime:
        """The data clock's time, UTC; raises LookupError when a replay has not set it yet."""
        if self._kind == "wall":
            return dt.datetime.now(dt.UTC)
        record = self._records.get(CLOCK_RECORD)
        if record.version == 0:
            raise LookupError(
                "PERENNIAL_CLOCK=replay, but no replay has set the clock; run `python -m serving.replay` or `make demo`"
            )
        return ClockValue.model_validate(record.value).now

    def advance(self, to: dt.datetime) -> None:
        """Moves the replay clock forward; an earlier time than it shows is refused (ValueError)."""
        if self._kind == "wall":
            raise ValueError("the wall clock cannot be advanced; set PERENNIAL_CLOCK=replay")
        while True:
            record = self._records.get(CLOCK_RECORD)
            if record.version and ClockValue.model_validate(record.value).now > to:
                raise ValueError(
                    f"the data clock shows {record.value['now']} and cannot go back to {to:%Y-%m-%dT%H:%M:%SZ}"
                )
            try:
                self._records.put(CLOCK_RECORD, ClockValue(now=to).model_dump(mode="json"), record.version)
            except Conflict:
                continue
            return
