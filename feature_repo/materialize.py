"""Puts what became available in [start, end) into the online store, and never an older event over a newer one.

The window is on available time, explicit and half open: what becomes available at ``end`` itself belongs to the next
window. Feast's own ``materialize`` goes by event time, so it never sees late facts (feast-dev/feast#4133), and it needs
an offline engine; here the view-day artifacts are read directly and only the writing is Feast's.
"""

from __future__ import annotations

import datetime as dt
import sys
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from artifacts.clock import Calendar
from artifacts.refs import Digest, Uri, join
from artifacts.step import DataFault, progress, step
from artifacts.store import manifest, read
from feature_repo.catalogue import ENTITY_KEYS, FEATURES
from feature_repo.contract import MaterializeSpec, OnlineRef
from feature_repo.definitions import EntityKey, FeatureView, Value, apply, feature_store, get_provider, single_writer
from feature_repo.tables import VIEW_SCHEMAS

DAY = dt.timedelta(days=1)
HOUR = dt.timedelta(hours=1)
TICK = dt.timedelta(microseconds=1)
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
DAYS_KEPT = 4  # a replayed hour touches two service days; the rest is slack for late facts

Entity = tuple[str | int, ...]
"""The values of a view's keys, in the order of the catalogue."""
Row = tuple[int, int, tuple[float | None, ...]]
"""Event time and available time in microseconds since 1970, then the features in the catalogue's order."""


@dataclass(frozen=True)
class _Rows:
    """One view of one day in memory: columns of equal length."""

    entities: list[Entity]
    event: np.ndarray
    available: np.ndarray
    features: list[list[float | None]]

    def within(self, start: int, end: int) -> Iterator[tuple[Entity, Row]]:
        """The entity and row of everything that became available in [start, end)."""
        for place in np.flatnonzero((self.available >= start) & (self.available < end)).tolist():
            values = tuple(column[place] for column in self.features)
            yield self.entities[place], (int(self.event[place]), int(self.available[place]), values)


class Materializer:
    """Writes window after window to one online store; keeps the store open and the last days' rows in memory."""

    def __init__(self, calendar: Calendar, views: Uri, online: str) -> None:
        self._calendar = calendar
        self._views = views
        self._online = online
        self._days: OrderedDict[dt.date, tuple[Digest, dict[str, _Rows]]] = OrderedDict()
        apply(online, views)
        self._store = feature_store(online, views)
        self._provider = get_provider(self._store.config)
        self._feature_views = {view: self._store.get_feature_view(view) for view in FEATURES}

    def write(self, start: dt.datetime, end: dt.datetime) -> OnlineRef:
        """Writes the newest row per entity of what became available in [start, end); returns the rows written per view.

        Raises DataFault when a day of the window has no artifact, when an artifact is not laid out as a view, and
        when a window longer than a day holds no row at all. A single empty view is an alarm in the reference.
        """
        if end <= start:
            raise DataFault([f"start={start:%Y-%m-%dT%H:%MZ} does not lie before end={end:%Y-%m-%dT%H:%MZ}"])
        newest = self._newest(start, end)
        empty = [view for view, rows in newest.items() if not rows] if end - start > DAY else []
        window = f"[{start:%Y-%m-%dT%H:%MZ}, {end:%Y-%m-%dT%H:%MZ})"
        if len(empty) == len(FEATURES):
            raise DataFault([
                f"{self._views}: no row of any view became available in {window}; build the views of these hours first"
            ])
        with single_writer(self._online, self._views):
            rows = {view: self._put(self._feature_views[view], found) for view, found in newest.items()}
        alarms = tuple(f"{view}: no row became available in {window}" for view in empty)
        return OnlineRef(online=self._online, start=start, end=end, rows=rows, alarms=alarms)

    def _newest(self, start: dt.datetime, end: dt.datetime) -> dict[str, dict[Entity, Row]]:
        """View -> entity -> its newest row of the window, by event time, then by available time."""
        newest: dict[str, dict[Entity, Row]] = {view: {} for view in FEATURES}
        first, last = _microseconds(start), _microseconds(end)
        days = self._window_days(start, end)
        for number, day in enumerate(days):
            progress(number / len(days), f"reading {day}")
            for view, rows in self._day(day).items():
                kept = newest[view]
                for entity, row in rows.within(first, last):
                    if entity not in kept or row[:2] >= kept[entity][:2]:
                        kept[entity] = row
        return newest

    def _window_days(self, start: dt.datetime, end: dt.datetime) -> list[dt.date]:
        """The service days that may hold rows of the window; those before it only hold late facts and may be missing."""
        earliest = self._calendar.of(start - HOUR - self._calendar.lateness)
        needed = max(self._calendar.of(start - HOUR), self._calendar.first)
        last = min(self._calendar.of(end - HOUR - TICK), self._calendar.last or dt.date.max)
        days = [earliest + n * DAY for n in range((last - earliest).days + 1)]
        there = {day for day in days if manifest(join(self._views, str(day))) is not None}
        missing = [day for day in days if day >= needed and day not in there]
        if missing:
            raise DataFault([
                f"{join(self._views, str(day))}: nothing has been published for this day; build its hours first"
                for day in missing
            ])
        return sorted(there)

    def _day(self, day: dt.date) -> dict[str, _Rows]:
        uri = join(self._views, str(day))
        found = manifest(uri)
        kept = self._days.get(day)
        if kept is None or found is None or kept[0] != found.digest:
            artifact = read(uri)
            kept = (
                artifact.manifest.digest,
                {v: _load(v, pq.read_table(artifact.file(f"{v}.parquet"))) for v in FEATURES},
            )
            self._days[day] = kept
        self._days.move_to_end(day)
        while len(self._days) > DAYS_KEPT:
            self._days.popitem(last=False)
        return kept[1]

    def _put(self, view: FeatureView, rows: dict[Entity, Row]) -> int:
        """Writes the rows whose event is not older than what is stored; returns how many were written."""
        if not rows:
            return 0
        config = self._store.config
        keys = {
            entity: EntityKey(join_keys=list(ENTITY_KEYS[view.name]), entity_values=[_proto(key) for key in entity])
            for entity in sorted(rows)
        }
        stored = self._provider.online_read(config, view, list(keys.values()), [FEATURES[view.name][0]])
        batch = []
        for (entity, key), (stamp, _) in zip(keys.items(), stored, strict=True):
            event, available, values = rows[entity]
            if stamp is None or _instant(event) >= stamp:
                batch.append((key, _protos(view.name, values), _instant(event), _instant(available)))
        if batch:
            self._provider.online_write_batch(config, view, batch, None)
        return len(batch)


def _load(view: str, table: pa.Table) -> _Rows:
    """The columns of one view's Parquet file; raises DataFault with a line per column that is missing or mistyped."""
    keys = ENTITY_KEYS[view]
    wanted = {key: VIEW_SCHEMAS[view].field(key).type for key in keys}
    wanted |= {**dict.fromkeys(("event_time", "available_time"), pa.timestamp("us", tz="UTC"))}
    wanted |= dict.fromkeys(FEATURES[view], pa.float64())
    faults = []
    for name, kind in wanted.items():
        if name not in table.column_names:
            faults.append(f"{view}.parquet: column '{name}' is missing")
        elif table.schema.field(name).type != kind:
            faults.append(f"{view}.parquet: column '{name}' is {table.schema.field(name).type}, not {kind}")
    if faults:
        raise DataFault(faults)
    return _Rows(
        entities=list(zip(*(table[key].to_pylist() for key in keys), strict=True)),
        event=table["event_time"].cast(pa.int64()).to_numpy(),
        available=table["available_time"].cast(pa.int64()).to_numpy(),
        features=[table[feature].to_pylist() for feature in FEATURES[view]],
    )


def _proto(key: str | int) -> Value:
    return Value(string_val=key) if isinstance(key, str) else Value(int64_val=key)


def _protos(view: str, values: tuple[float | None, ...]) -> dict[str, Value]:
    return {
        feature: Value() if value is None else Value(double_val=value)
        for feature, value in zip(FEATURES[view], values, strict=True)
    }


def _microseconds(instant: dt.datetime) -> int:
    return (instant - EPOCH) // TICK


def _instant(microseconds: int) -> dt.datetime:
    return EPOCH + microseconds * TICK


def materialize(spec: MaterializeSpec) -> OnlineRef:
    """Brings one window of one repo's views into the online store (design 3.8, decisions.md 3.11)."""
    return Materializer(spec.calendar, spec.views, spec.online).write(spec.start, spec.end)


if __name__ == "__main__":
    sys.exit(step(materialize, MaterializeSpec))
