"""What the gateway reads from the online store: values no older than the ttl on the data clock, else null, never a guess.

Feast does not apply a ttl when it reads, and could only apply the wall clock's, which is wrong under replay
(feast-dev/feast#6821); so the age is worked out here, from the stored event time and the caller's ``now``.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from artifacts.refs import Uri
from feature_repo.catalogue import ENTITY_KEYS, FEATURES, feature_column
from feature_repo.definitions import SERVICE, feature_store, is_applied

PRESENT = "present"
EXPIRED = "expired"
ABSENT = "absent"
AHEAD = "ahead"

MAX_ROWS = 256
Entity = tuple[str | int | None, ...]


@dataclass(frozen=True)
class OnlineFeatures:
    """What was read, in the order of the request's rows.

    ``columns``: ``<view>__<feature>`` -> one float per row, None for null. ``age_seconds``: view -> seconds from the
    stored event to ``now`` per row, None unless the status is present. ``status``: view -> "present", "expired" (age
    >= ttl), "absent" (never stored) or "ahead" (stored for a later time than ``now``, so not knowable yet) per row.
    """

    columns: Mapping[str, list[float | None]]
    age_seconds: Mapping[str, list[float | None]]
    status: Mapping[str, list[str]]


@dataclass(frozen=True)
class _Stored:
    """One entity's row of one view as it is stored: event time in seconds since 1970 (0 when absent), its features."""

    event: float
    values: tuple[float | None, ...]


class OnlineReader:
    """Reads the online store of one process; safe to share between threads.

    Before anything has been materialised every row is absent: a gateway may start first.
    """

    def __init__(self, online: str, views: Uri) -> None:
        self._online = online
        self._views = views
        self._opened = False

    def read(
        self,
        views: Sequence[str] | str,
        entity_rows: Mapping[str, Sequence[str | int | None]],
        now: dt.datetime,
        ttl: dt.timedelta,
    ) -> OnlineFeatures:
        """The newest row of each view for each of 1 to 256 entity rows; ``views`` are names, or the service's name.

        ``entity_rows`` holds one column per entity key; ``now`` is the data clock (aware). Raises ValueError for an
        unknown view, a missing or ragged column, too many rows, or a naive ``now``.
        """
        wanted = _view_names(views)
        rows = _row_count(wanted, entity_rows)
        if now.tzinfo is None:
            raise ValueError(f"now={now} has no time zone; pass the data clock's aware time")
        columns: dict[str, list[float | None]] = {}
        ages: dict[str, list[float | None]] = {}
        status: dict[str, list[str]] = {}
        for keys, names in _by_entity(wanted).items():
            entities = list(zip(*(entity_rows[key] for key in keys), strict=True))
            stored = self._stored(keys, sorted({entity for entity in entities if None not in entity}), names)
            for view in names:
                found = [stored[view].get(entity) for entity in entities]
                judged = [_judge(row, now.timestamp(), ttl.total_seconds()) for row in found]
                status[view] = [state for state, _ in judged]
                ages[view] = [age for _, age in judged]
                for place, feature in enumerate(FEATURES[view]):
                    columns[feature_column(view, feature)] = [
                        row.values[place] if row is not None and state == PRESENT else None
                        for row, state in zip(found, status[view], strict=True)
                    ]
        assert all(len(column) == rows for column in columns.values())  # noqa: S101  rows out = rows in
        return OnlineFeatures(columns, ages, status)

    def _stored(
        self, keys: Sequence[str], entities: list[Entity], views: list[str]
    ) -> dict[str, dict[Entity, _Stored]]:
        """View -> entity (the values of its keys) -> what is stored; one read for each distinct entity, however often the rows name it."""
        self._opened = self._opened or is_applied(self._online, self._views)
        if not entities or not self._opened:
            return {view: {} for view in views}
        response = (
            feature_store(self._online, self._views)
            .get_online_features(
                features=[f"{view}:{feature}" for view in views for feature in FEATURES[view]],
                entity_rows=dict(zip(keys, map(list, zip(*entities, strict=True)), strict=True)),
                full_feature_names=True,
            )
            .proto
        )
        vectors = dict(zip(response.metadata.feature_names.val, response.results, strict=True))
        return {view: _rows(entities, [vectors[feature_column(view, f)] for f in FEATURES[view]]) for view in views}


def _rows(entities: list[Entity], vectors: list[object]) -> dict[Entity, _Stored]:
    events = [stamp.seconds + stamp.nanos / 1e9 for stamp in vectors[0].event_timestamps]  # type: ignore[attr-defined]
    values = [[_number(value) for value in vector.values] for vector in vectors]  # type: ignore[attr-defined]
    return {entity: _Stored(*row) for entity, *row in zip(entities, events, zip(*values, strict=True), strict=True)}


def _number(value: object) -> float | None:
    return value.double_val if value.HasField("val") else None  # type: ignore[attr-defined]


def _judge(row: _Stored | None, now: float, ttl: float) -> tuple[str, float | None]:
    if row is None or row.event == 0:
        return ABSENT, None
    age = now - row.event
    if age < 0:
        return AHEAD, None
    return (PRESENT, age) if age < ttl else (EXPIRED, None)


def _view_names(views: Sequence[str] | str) -> tuple[str, ...]:
    if views == SERVICE:
        return tuple(FEATURES)
    names = (views,) if isinstance(views, str) else tuple(views)
    unknown = sorted(set(names) - set(FEATURES))
    if unknown or not names:
        raise ValueError(f"no such views: {unknown}; there are {list(FEATURES)} and the service '{SERVICE}'")
    return names


def _row_count(views: Sequence[str], entity_rows: Mapping[str, Sequence[str | int | None]]) -> int:
    keys = {key for view in views for key in ENTITY_KEYS[view]}
    missing = sorted(keys - set(entity_rows))
    if missing:
        raise ValueError(f"entity rows lack the columns {missing}; they have {sorted(entity_rows)}")
    counts = {key: len(entity_rows[key]) for key in sorted(keys)}
    if len(set(counts.values())) != 1:
        raise ValueError(f"the columns of the entity rows differ in length: {counts}")
    rows = next(iter(counts.values()))
    if not 1 <= rows <= MAX_ROWS:
        raise ValueError(f"{rows} entity rows; ask for 1 to {MAX_ROWS}")
    return rows


def _by_entity(views: Sequence[str]) -> dict[tuple[str, ...], list[str]]:
    groups: dict[tuple[str, ...], list[str]] = {}
    for view in views:
        groups.setdefault(ENTITY_KEYS[view], []).append(view)
    return groups
