"""What the gateway reads from the online store: values no older than the ttl on the data clock, else null, never a guess.

Feast does not apply a ttl when it reads, and could only apply the wall clock's, which is wrong under replay
(feast-dev/feast#6821); so the age is worked out here, from the stored event time, the caller's ``now`` and the view's ttl
in the catalogue, which is also the ttl of the training sets.
"""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from feature_repo.catalogue import ENTITY_KEYS, FEATURES, VIEWS, feature_column
from feature_repo.definitions import SERVICE
from feature_repo.online_rows import READ_SECONDS, Entity, Stored, online_rows
from feature_repo.online_server import OnlineUnavailable

PRESENT = "present"
EXPIRED = "expired"
ABSENT = "absent"
AHEAD = "ahead"
UNAVAILABLE = "unavailable"

MAX_ROWS = 256
PAUSE_SECONDS = 1.0  # a store that is away is asked once a second: waiting for it may not hold up the answers
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
TICK = dt.timedelta(microseconds=1)


@dataclass(frozen=True)
class OnlineFeatures:
    """What was read, in the order of the request's rows.

    ``columns``: ``<view>__<feature>`` -> one float per row, None for null. ``age_seconds``: view -> seconds from the
    stored event to ``now`` per row, None unless the status is present. ``status``: view -> "present", "expired" (age
    >= ttl), "absent" (never stored), "ahead" (stored for a later time than ``now``, so not knowable yet) or
    "unavailable" (the store did not answer) per row.
    """

    columns: Mapping[str, list[float | None]]
    age_seconds: Mapping[str, list[float | None]]
    status: Mapping[str, list[str]]


class OnlineReader:
    """Reads the online store of one process; safe to share between threads.

    Before anything has been materialised every row is absent: a gateway may start first. A server gets ``seconds`` per
    read; after one that failed the store is left alone for ``PAUSE_SECONDS`` on the ``monotonic`` clock, and every read
    says so at once.
    """

    def __init__(
        self, online: str, seconds: float = READ_SECONDS, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._rows = online_rows(online, seconds)
        self._monotonic = monotonic
        self._failure: tuple[float, str] | None = None

    def read(
        self, views: Sequence[str] | str, entity_rows: Mapping[str, Sequence[str | int | None]], now: dt.datetime
    ) -> OnlineFeatures:
        """The newest row of each view for each of 1 to 256 entity rows; ``views`` are names, or the service's name.

        ``entity_rows`` holds one column per entity key, of the catalogue's type or None; ``now`` is the data clock
        (aware). Raises ValueError for an unknown view, a missing or ragged column, a key of another type, too many rows
        or a naive ``now``; OnlineUnavailable when the store does not answer.
        """
        wanted = _view_names(views)
        rows = _row_count(wanted, entity_rows)
        if now.tzinfo is None:
            raise ValueError(f"now={now} has no time zone; pass the data clock's aware time")
        entities = {view: list(zip(*(entity_rows[key] for key in ENTITY_KEYS[view]), strict=True)) for view in wanted}
        stored = self._read({view: list(dict.fromkeys(e for e in entities[view] if None not in e)) for view in wanted})
        instant = (now - EPOCH) // TICK
        columns: dict[str, list[float | None]] = {}
        ages: dict[str, list[float | None]] = {}
        status: dict[str, list[str]] = {}
        for view in wanted:
            found = [stored[view].get(entity) for entity in entities[view]]
            judged = [_judge(row, instant, VIEWS[view].ttl) for row in found]
            status[view] = [state for state, _ in judged]
            ages[view] = [age for _, age in judged]
            for place, feature in enumerate(FEATURES[view]):
                columns[feature_column(view, feature)] = [
                    row.values[place] if row is not None and state == PRESENT else None
                    for row, state in zip(found, status[view], strict=True)
                ]
        assert all(len(column) == rows for column in columns.values())  # noqa: S101  rows out = rows in
        return OnlineFeatures(columns, ages, status)

    def _read(self, asked: Mapping[str, list[Entity]]) -> dict[str, dict[Entity, Stored]]:
        if self._failure is not None and self._monotonic() < self._failure[0]:
            raise OnlineUnavailable(self._failure[1])
        try:
            found = self._rows.read(asked)
        except OnlineUnavailable as error:
            self._failure = (self._monotonic() + PAUSE_SECONDS, str(error))
            raise
        self._failure = None
        return found


def unavailable(views: Sequence[str], rows: int) -> OnlineFeatures:
    """What is served while the store is away: null for every feature, which the model imputes as it learnt to."""
    names = [feature_column(view, feature) for view in views for feature in FEATURES[view]]
    return OnlineFeatures(
        columns={name: [None] * rows for name in names},
        age_seconds={view: [None] * rows for view in views},
        status={view: [UNAVAILABLE] * rows for view in views},
    )


def _judge(row: Stored | None, now: int, ttl: dt.timedelta) -> tuple[str, float | None]:
    if row is None:
        return ABSENT, None
    age = now - row.event
    if age < 0:
        return AHEAD, None
    return (PRESENT, age / 1e6) if age < ttl // TICK else (EXPIRED, None)


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
