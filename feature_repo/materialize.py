"""Puts what became visible in [start, end) into the online store, and never an older event over a newer one.

One exception: a row that a new build no longer has gives way to the newest that there is.

The window is explicit and half open: what becomes visible at ``end`` itself belongs to the next window. A row is visible
from its available time on, or from the end of its view's delay where that is later, so that the store always holds what
the as-of join would choose. Feast's own ``materialize`` goes by event time, so it never sees late facts
(feast-dev/feast#4133), and it needs an offline engine; here the view-day artifacts are read directly and only the writing
is Feast's.
"""

from __future__ import annotations

import datetime as dt
import sys
from collections import OrderedDict
from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from artifacts.clock import Calendar
from artifacts.refs import Digest, Uri, join
from artifacts.step import DataFault, progress, step
from artifacts.store import manifest, read
from feature_repo.catalogue import ENTITY_KEYS, FEATURES, VIEWS
from feature_repo.contract import MaterializeSpec, OnlineRef
from feature_repo.definitions import apply, feature_store, get_provider, single_writer
from feature_repo.online_rows import Entity, Mark, Stored, entity_key, feature_values, online_rows
from feature_repo.online_server import WRITE_SECONDS, reachable
from feature_repo.snapshot import OLDEST
from feature_repo.tables import VIEW_SCHEMAS, schema_problems

DAY = dt.timedelta(days=1)
HOUR = dt.timedelta(hours=1)
NONE = dt.timedelta(0)
TICK = dt.timedelta(microseconds=1)
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
DAYS_KEPT = 4  # a replayed hour touches two service days; the rest is slack for late facts
LONGEST_DELAY = max(view.delay for view in VIEWS.values())

VISIBLE = "visible"
"""A column beside those of a view: when the row may be used, in microseconds since 1970."""


class Materializer:
    """Writes window after window to one online store; keeps the store open and the last days' rows in memory."""

    def __init__(self, calendar: Calendar, views: Uri, online: str) -> None:
        self._calendar = calendar
        self._views = views
        self._online = online
        self._days: OrderedDict[dt.date, tuple[Digest, dict[str, pa.Table]]] = OrderedDict()
        self._rows = online_rows(online, WRITE_SECONDS)
        apply(online, views)
        self._store = feature_store(online, views)
        self._provider = get_provider(self._store.config)
        self._feature_views = {view: self._store.get_feature_view(view) for view in FEATURES}

    def write(self, start: dt.datetime, end: dt.datetime, lookback: dt.timedelta = NONE) -> OnlineRef:
        """Writes the newest row per entity of what became visible in [start, end); returns the rows written per view.

        Rows that became visible up to ``lookback`` before ``start`` are looked at again: a late record may have changed
        them, or taken them away, when their day was built anew. Those that say what is stored already are not written. A view of which the
        store holds nothing, since it was lost, replaced or is new, is filled with all that has not expired by ``start``.
        Of a window longer than any row lives the beginning is not read: nobody could be given a row of it.

        Raises DataFault when a day of the window has no artifact, when an artifact is not laid out as a view, and
        when a window longer than a day holds no row at all; OnlineUnavailable when the store does not answer. A view
        without rows in such a window, or an hour without rows of any view, is an alarm in the reference.
        """
        if end <= start:
            raise DataFault([f"start={start:%Y-%m-%dT%H:%MZ} does not lie before end={end:%Y-%m-%dT%H:%MZ}"])
        newest, fresh = self._newest(max(start, end - OLDEST), end, lookback)
        alarms = self._alarms(fresh, start, end)
        if lookback:
            self._refill(newest, start)
        with single_writer(self._online):
            window = (start - lookback - EPOCH) // TICK, (end - EPOCH) // TICK
            rows = {view: self._put(view, found, window) for view, found in newest.items()}
        return OnlineRef(online=self._online, start=start, end=end, rows=rows, alarms=alarms)

    def _alarms(self, fresh: set[str], start: dt.datetime, end: dt.datetime) -> tuple[str, ...]:
        """What is missing from a window that is long enough to hold it; raises DataFault when that is everything."""
        window = f"[{start:%Y-%m-%dT%H:%MZ}, {end:%Y-%m-%dT%H:%MZ})"
        empty = [view for view in FEATURES if view not in fresh]
        if len(empty) == len(FEATURES):
            nothing = f"no row of any view became available in {window}"
            if end - start > DAY:
                raise DataFault([f"{self._views}: {nothing}; build the views of these hours first"])
            return (nothing,) if end - start >= HOUR else ()
        return tuple(f"{view}: no row became available in {window}" for view in empty) if end - start > DAY else ()

    def _newest(
        self, start: dt.datetime, end: dt.datetime, lookback: dt.timedelta
    ) -> tuple[dict[str, dict[Entity, Stored]], set[str]]:
        """View -> entity -> its newest row, by event time, then by available time; and the views with rows since ``start``."""
        first, begin, last = ((at - EPOCH) // TICK for at in (start - lookback, start, end))
        newest: dict[str, dict[Entity, Stored]] = {view: {} for view in FEATURES}
        fresh: set[str] = set()
        days = self._window_days(start, end, lookback)
        for number, day in enumerate(days):
            progress(number / len(days), f"reading {day}")
            for view, rows in self._day(day).items():
                visible = rows[VISIBLE].to_numpy()
                within = np.flatnonzero((visible >= first) & (visible < last))
                take_newer(newest[view], newest_rows(view, rows.take(pa.array(within))))
                if (visible[within] >= begin).any():
                    fresh.add(view)
        return newest, fresh

    def _refill(self, newest: dict[str, dict[Entity, Stored]], start: dt.datetime) -> None:
        """Adds the rows before the window to the views of which no entity of the window is stored."""
        blank = [view for view, rows in newest.items() if not self._rows.marks(view, rows)]
        older = self._newest(start, start, OLDEST)[0] if blank else {}
        for view in blank:
            rows = older[view]
            take_newer(rows, newest[view])
            newest[view] = rows

    def _window_days(self, start: dt.datetime, end: dt.datetime, lookback: dt.timedelta) -> list[dt.date]:
        """The service days that may hold rows of the window.

        Those before it only hold late facts and may be missing; so may the day after the calendar's last, which holds the
        hours in which late facts of that one arrive.
        """
        earliest = self._calendar.of(start - HOUR - self._calendar.lateness - LONGEST_DELAY - lookback)
        needed = max(self._calendar.of(start - HOUR), self._calendar.first)
        last = self._calendar.of(end - HOUR - TICK)
        days = [earliest + n * DAY for n in range((last - earliest).days + 1)]
        there = {day for day in days if manifest(join(self._views, str(day))) is not None}
        must = min(last, self._calendar.last or last)
        missing = [day for day in days if needed <= day <= must and day not in there]
        if missing:
            raise DataFault([
                f"{join(self._views, str(day))}: nothing has been published for this day; build its hours first"
                for day in missing
            ])
        return sorted(there)

    def _day(self, day: dt.date) -> dict[str, pa.Table]:
        uri = join(self._views, str(day))
        found = manifest(uri)
        kept = self._days.get(day)
        if kept is None or found is None or kept[0] != found.digest:
            kept = load_day(uri)
            self._days[day] = kept
        self._days.move_to_end(day)
        while len(self._days) > DAYS_KEPT:
            self._days.popitem(last=False)
        return kept[1]

    def _put(self, view: str, rows: dict[Entity, Stored], window: tuple[int, int]) -> int:
        """Writes the rows that are news to the store, or take the place of one that is gone; returns how many did."""
        if not rows:
            return 0
        stored = self._rows.marks(view, rows)
        batch = [
            (entity_key(view, entity), feature_values(view, row), _instant(row.event), _instant(row.available))
            for entity, row in sorted(rows.items())
            if entity not in stored
            or is_news(row.mark, stored[entity])
            or is_gone(view, row.mark, stored[entity], window)
        ]
        if batch:
            with reachable(self._online):
                self._provider.online_write_batch(self._store.config, self._feature_views[view], batch, None)
        return len(batch)


def load_day(uri: Uri) -> tuple[Digest, dict[str, pa.Table]]:
    """The digest of a view-day artifact and its rows per view, with VISIBLE; raises DataFault for another layout."""
    artifact = read(uri)
    loaded, problems = {}, []
    for view, schema in VIEW_SCHEMAS.items():
        table = pq.read_table(artifact.file(f"{view}.parquet"))
        place = f"{uri}/{view}.parquet"
        found = schema_problems(place, table.schema, schema) or [
            f"{place}: {key}: null in {table[key].null_count} rows, a row without its key is nobody's; build the day again"
            for key in ENTITY_KEYS[view]
            if table[key].null_count
        ]
        problems += found
        if not found:
            loaded[view] = _with_visible(view, table.select(schema.names))
    if problems:
        raise DataFault(problems)
    return artifact.manifest.digest, loaded


def _with_visible(view: str, table: pa.Table) -> pa.Table:
    usable = pc.add(table["event_time"].cast(pa.int64()), VIEWS[view].delay // TICK)
    return table.append_column(VISIBLE, pc.max_element_wise(usable, table["available_time"].cast(pa.int64())))


def newest_rows(view: str, table: pa.Table) -> dict[Entity, Stored]:
    """The newest row of each entity, by event time, then by available time; at equal clocks the one that lies last."""
    event, available = (table[name].cast(pa.int64()).to_numpy() for name in ("event_time", "available_time"))
    order = np.lexsort((available, event))
    entities = list(zip(*(table[key].to_pylist() for key in ENTITY_KEYS[view]), strict=True))
    newest = {entities[place]: place for place in order.tolist()}
    chosen = table.select(FEATURES[view]).take(pa.array(list(newest.values()), pa.int64()))
    values = zip(*(column.to_pylist() for column in chosen.columns), strict=True)
    return {
        entity: Stored(int(event[place]), int(available[place]), row)
        for (entity, place), row in zip(newest.items(), values, strict=True)
    }


def take_newer(kept: dict[Entity, Stored], found: Mapping[Entity, Stored]) -> None:
    """Puts the rows of a later table over those kept, entity by entity, unless they are older by event or available time."""
    for entity, row in found.items():
        old = kept.get(entity)
        if old is None or (row.event, row.available) >= (old.event, old.available):
            kept[entity] = row


def is_news(mark: Mark, stored: Mark) -> bool:
    """Whether a row goes over another one: it is newer by event time, then by available time, or the same told anew."""
    return mark[:2] > stored[:2] or (mark[:2] == stored[:2] and mark != stored)


def is_gone(view: str, newest: Mark, stored: Mark, window: tuple[int, int]) -> bool:
    """Whether the views no longer have the stored row: it became visible in the window, whose newest row is an older one."""
    visible = max(stored[0] + VIEWS[view].delay // TICK, stored[1])
    return window[0] <= visible < window[1] and newest[:2] < stored[:2]


def _instant(microseconds: int) -> dt.datetime:
    return EPOCH + microseconds * TICK


def materialize(spec: MaterializeSpec) -> OnlineRef:
    """Brings one window of one repo's views into the online store (design 3.8, decisions.md 3.11)."""
    return Materializer(spec.calendar, spec.views, spec.online).write(spec.start, spec.end, spec.lookback)


if __name__ == "__main__":
    sys.exit(step(materialize, MaterializeSpec))
