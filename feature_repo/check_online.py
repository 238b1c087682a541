"""Step: entities are read back from the online store and compared with the newest usable rows of the views.

Both sides are taken just before ``end``, where the newest materialised window ends. What the reader returns is compared:
status, age, and every feature, as a double or as nothing. The check at the time of real requests is monitoring/skew.py.
"""

from __future__ import annotations

import datetime as dt
import sys
from collections.abc import Iterable, Mapping

import numpy as np
import pyarrow.compute as pc

from artifacts.clock import Calendar
from artifacts.refs import Uri, join, sha256
from artifacts.step import DataFault, progress, step
from artifacts.store import manifest
from feature_repo.catalogue import ENTITY_KEYS, FEATURES, VIEWS, feature_column
from feature_repo.contract import CheckOnlineSpec, ComparedView, OnlineCheckRef, OnlinePolicy
from feature_repo.materialize import DAY, EPOCH, HOUR, LONGEST_DELAY, TICK, VISIBLE, load_day, newest_rows, take_newer
from feature_repo.online import ABSENT, AHEAD, EXPIRED, MAX_ROWS, PRESENT, OnlineFeatures, OnlineReader
from feature_repo.online_rows import Entity, Stored

EXAMPLES = 3
READ_SECONDS = 10.0  # this is no request: it may wait


def check_online(spec: CheckOnlineSpec) -> OnlineCheckRef:
    """Compares up to ``policy.entities`` per view; raises DataFault when too many differ, or when nothing was compared."""
    truth = sampled(spec, offline_rows(spec.calendar, spec.views, spec.end))
    reader = OnlineReader(spec.online, READ_SECONDS)
    now = spec.end - TICK
    views = {}
    for number, (view, rows) in enumerate(truth.items()):
        progress(0.5 + number / len(truth) / 2, f"reading {len(rows)} entities of {view} back")
        views[view] = compared(view, rows, list(read_back(reader, view, list(rows), now)), now, spec.policy)
    alarms, faults = verdict(views, spec.policy)
    if faults:
        raise DataFault(f"{spec.online}: {fault}" for fault in faults)
    return OnlineCheckRef(online=spec.online, end=spec.end, views=views, alarms=tuple(alarms))


def offline_rows(calendar: Calendar, views: Uri, end: dt.datetime) -> dict[str, dict[Entity, Stored]]:
    """View -> entity -> the newest row that is visible before ``end``, of the days that hold rows younger than a ttl."""
    oldest = max(view.ttl for view in VIEWS.values()) + LONGEST_DELAY
    first, last = calendar.of(end - oldest - HOUR), calendar.of(end - HOUR - TICK)
    days = [first + n * DAY for n in range((last - first).days + 1)]
    newest: dict[str, dict[Entity, Stored]] = {view: {} for view in FEATURES}
    for number, day in enumerate(days):
        progress(number / len(days) / 2, f"reading {day}")
        uri = join(views, str(day))
        if manifest(uri) is None:
            continue
        for view, rows in load_day(uri)[1].items():
            take_newer(newest[view], newest_rows(view, rows.filter(pc.field(VISIBLE) < (end - EPOCH) // TICK)))
    return newest


def sampled(spec: CheckOnlineSpec, rows: Mapping[str, Mapping[Entity, Stored]]) -> dict[str, dict[Entity, Stored]]:
    """At most ``policy.entities`` of each view, by the seed and the view's name."""
    chosen = {}
    for view, found in rows.items():
        rng = np.random.default_rng([spec.seed, int(sha256(view.encode())[7:23], 16)])
        places = rng.permutation(len(found))[: spec.policy.entities]
        entities = sorted(found)
        chosen[view] = {entities[place]: found[entities[place]] for place in sorted(places.tolist())}
    return chosen


def read_back(
    reader: OnlineReader, view: str, entities: list[Entity], now: dt.datetime
) -> Iterable[tuple[str, float | None, tuple[float | None, ...]]]:
    """Status, age in seconds and features of each entity, as the gateway would get them."""
    for start in range(0, len(entities), MAX_ROWS):
        part = entities[start : start + MAX_ROWS]
        keys = dict(zip(ENTITY_KEYS[view], map(list, zip(*part, strict=True)), strict=True))
        found: OnlineFeatures = reader.read([view], keys, now)
        columns = [found.columns[feature_column(view, feature)] for feature in FEATURES[view]]
        yield from zip(found.status[view], found.age_seconds[view], zip(*columns, strict=True), strict=True)


def compared(
    view: str,
    truth: Mapping[Entity, Stored],
    served: list[tuple[str, float | None, tuple[float | None, ...]]],
    now: dt.datetime,
    policy: OnlinePolicy,
) -> ComparedView:
    """How many rows differ in status, age or any feature. Rows that a later window has overwritten are left out. Pure."""
    ahead, examples, differing = 0, [], 0
    for (entity, row), (status, age, values) in zip(truth.items(), served, strict=True):
        if status == AHEAD:
            ahead += 1
            continue
        if difference := _difference(view, row, (status, age, values), now, policy.relative):
            differing += 1
            examples += [f"{'+'.join(map(str, entity))}: {difference}"]
    return ComparedView(rows=len(truth) - ahead, differing=differing, ahead=ahead, examples=tuple(examples[:EXAMPLES]))


def _difference(
    view: str,
    row: Stored,
    served: tuple[str, float | None, tuple[float | None, ...]],
    now: dt.datetime,
    relative: float,
) -> str | None:
    """What differs first, in words; None when nothing does."""
    status, age, values = served
    offline_age = (now - EPOCH) // TICK - row.event
    expected = PRESENT if offline_age < VIEWS[view].ttl // TICK else EXPIRED
    if status == ABSENT and expected == EXPIRED:  # the store was first filled later than that
        return None
    if status != expected:
        return f"status is {status}, offline {expected}"
    if status != PRESENT:
        return None
    if age != offline_age / 1e6:
        return f"age is {age} s, offline {offline_age / 1e6} s"
    for feature, one, other in zip(FEATURES[view], values, row.values, strict=True):
        if not _equal(one, other, relative):
            return f"{feature} is {one!r}, offline {other!r}"
    return None


def _equal(one: float | None, other: float | None, relative: float) -> bool:
    if one is None or other is None:
        return one is other
    return one == other or abs(one - other) <= relative * max(abs(one), abs(other))


def verdict(views: Mapping[str, ComparedView], policy: OnlinePolicy) -> tuple[list[str], list[str]]:
    """Alarms and faults, a line each. A check that compared nothing is a fault (design 3.10). Pure."""
    alarms, faults = [], []
    for view, found in views.items():
        line = (
            f"{view}: {found.differing} of {found.rows} rows differ from the views, such as {'; '.join(found.examples)}"
        )
        if found.share > policy.fail_share and found.differing >= min(policy.fail_rows, found.rows):
            faults.append(f"{line}; at most {policy.fail_share:.1%} may; who else writes to this store?")
        elif found.share > policy.alarm_share:
            alarms.append(line)
        if found.ahead:
            alarms.append(
                f"{view}: {found.ahead} rows are newer than the window and were not compared; who else writes?"
            )
    if not sum(found.rows for found in views.values()):
        faults.append("not one row was compared; the views hold none, or all that is stored is newer")
    return alarms, faults


if __name__ == "__main__":
    sys.exit(step(check_online, CheckOnlineSpec))
