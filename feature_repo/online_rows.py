"""How one row lies in the online store, and how it is read: Feast's documented layouts, one trip for all views.

Feast writes (materialize.py); its ``get_online_features`` reads the same values, in 6 times the time of these reads
(benchmarks/online_read.py). Beside the features a row holds its mark, both clocks and a fingerprint, under a name that no
feature has: Feast's SQLite store keeps event times in the zone of the process that writes, and its Redis store no
available time at all.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import sqlite3
import struct
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import mmh3

from feature_repo.catalogue import ENTITY_KEYS, FEATURES, VIEWS
from feature_repo.definitions import PROJECT, EntityKey, Value, online_config, serialize_entity_key
from feature_repo.online_server import OnlineUnavailable, client, is_server, reachable

MARK = "_mark"
READ_SECONDS = 0.1  # a read takes a millisecond; a store that needs this long is as good as away
BUSY_SECONDS = 0.1
KEYS_PER_QUERY = 10_000  # SQLite takes 32,766 values in one query

Entity = tuple[str | int, ...]
"""The values of a view's keys, in the order of the catalogue."""
Mark = tuple[int, int, int]
"""Event and available time in microseconds since 1970, and a fingerprint of the features."""
Asked = Mapping[str, Sequence[Entity]]
"""View -> the entities to read, each once."""


@dataclass(frozen=True)
class Stored:
    """What lies there of one entity in one view: both clocks in microseconds since 1970, features in catalogue order.

    A value that is no double is None: it was not written by ``feature_values``.
    """

    event: int
    available: int
    values: tuple[float | None, ...]

    @property
    def mark(self) -> Mark:
        """What tells this row from another of the same entity, and which of the two is newer."""
        return self.event, self.available, _fingerprint(self.values)


class OnlineRows(Protocol):
    """Reads what is stored; raises OnlineUnavailable. Safe to share between threads."""

    def read(self, asked: Asked) -> dict[str, dict[Entity, Stored]]:
        """View -> entity -> its row, without the entities that were never stored."""

    def marks(self, view: str, entities: Iterable[Entity]) -> dict[Entity, Mark]:
        """Entity -> the mark of its row, without those never stored."""


def online_rows(online: str, seconds: float) -> OnlineRows:
    """The rows of an online store, whose server gets ``seconds`` to answer; nothing is opened before the first read."""
    return RedisRows(online, seconds) if is_server(online) else SqliteRows(str(online_config(online)["path"]))


def entity_key(view: str, entity: Entity) -> EntityKey:
    """Feast's key of an entity; raises ValueError for a value of another type than the catalogue's."""
    values = []
    for (name, kind), value in zip(VIEWS[view].keys.items(), entity, strict=True):
        if type(value) is str and kind == "string":
            values.append(Value(string_val=value))
        elif type(value) is int and kind == "int64":
            values.append(Value(int64_val=value))
        else:
            raise ValueError(f"{view}: the key '{name}' is {kind}, got {value!r}")
    return EntityKey(join_keys=list(ENTITY_KEYS[view]), entity_values=values)


def feature_values(view: str, row: Stored) -> dict[str, Value]:
    """What Feast writes of a row: every feature as a double or nothing, and the row's mark."""
    features = {
        feature: Value() if value is None else Value(double_val=value)
        for feature, value in zip(FEATURES[view], row.values, strict=True)
    }
    return features | {MARK: Value(bytes_val=struct.pack("<qqq", *row.mark))}


def _fingerprint(values: tuple[float | None, ...]) -> int:
    text = struct.pack(f"<{len(values)}d", *(math.nan if value is None else value for value in values))
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little", signed=True)


def _key_bytes(view: str, entity: Entity) -> bytes:
    return bytes(serialize_entity_key(entity_key(view, entity), 3))


def _mark(stored: bytes) -> Mark:
    event, available, fingerprint = struct.unpack("<qqq", Value.FromString(stored).bytes_val)
    return event, available, fingerprint


def _number(stored: bytes | None) -> float | None:
    value = Value.FromString(stored or b"")
    return value.double_val if value.WhichOneof("val") == "double_val" else None


class SqliteRows:
    """One table per view, one line per entity and feature."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._connection: sqlite3.Connection | None = None
        self._lock = threading.Lock()

    def read(self, asked: Asked) -> dict[str, dict[Entity, Stored]]:
        """As OnlineRows says."""
        return {view: self._view(view, entities) for view, entities in asked.items()}

    def marks(self, view: str, entities: Iterable[Entity]) -> dict[Entity, Mark]:
        """As OnlineRows says."""
        found = {}
        for entity, _, value in self._lines(view, list(entities), f"AND feature_name = '{MARK}'"):
            found[entity] = _mark(value)
        return found

    def _view(self, view: str, entities: Sequence[Entity]) -> dict[Entity, Stored]:
        lines: dict[Entity, dict[str, bytes]] = {}
        for entity, name, value in self._lines(view, entities):
            lines.setdefault(entity, {})[name] = value
        return {
            entity: Stored(*_mark(found[MARK])[:2], tuple(_number(found.get(name)) for name in FEATURES[view]))
            for entity, found in lines.items()
            if MARK in found
        }

    def _lines(self, view: str, entities: Sequence[Entity], more: str = "") -> Iterator[tuple[Entity, str, bytes]]:
        keys = {_key_bytes(view, entity): entity for entity in entities}
        names = list(keys)
        for start in range(0, len(names), KEYS_PER_QUERY):
            part = names[start : start + KEYS_PER_QUERY]
            marks = ",".join("?" * len(part))
            query = (
                f'SELECT entity_key, feature_name, value FROM "{PROJECT}_{view}" WHERE entity_key IN ({marks}) {more}'  # noqa: S608  names of the catalogue
            )
            for key, name, value in self._ask(query, part):
                yield keys[key], name, value

    def _ask(self, query: str, keys: list[bytes]) -> list[tuple[bytes, str, bytes]]:
        with self._lock, _readable(self._path):
            if self._connection is None:
                if not self._path.exists():  # nothing has been materialised yet
                    return []
                self._connection = sqlite3.connect(
                    f"{self._path.as_uri()}?mode=rw", uri=True, timeout=BUSY_SECONDS, check_same_thread=False
                )
                self._connection.execute("PRAGMA query_only = ON")
            try:
                return self._connection.execute(query, keys).fetchall()
            except sqlite3.OperationalError as error:
                if "no such table" not in str(error):
                    raise
                return []  # a view that the next materialisation writes first; the others are there to be read


@contextlib.contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise OnlineUnavailable(f"{path}: {error}; is it the store that feature_repo.materialize writes?") from error


class RedisRows:
    """One hash per entity, whose fields are the features of every view with these keys."""

    def __init__(self, online: str, seconds: float) -> None:
        self._online = online
        self._client = client(online, seconds)
        self._fields = {view: [_field(view, name) for name in (MARK, *FEATURES[view])] for view in FEATURES}

    def read(self, asked: Asked) -> dict[str, dict[Entity, Stored]]:
        """As OnlineRows says."""
        wanted = [(view, entity) for view, entities in asked.items() for entity in entities]
        found: dict[str, dict[Entity, Stored]] = {view: {} for view in asked}
        answers = self._ask((_key_bytes(view, entity), self._fields[view]) for view, entity in wanted)
        for (view, entity), (mark, *values) in zip(wanted, answers, strict=True):
            if mark is not None:
                found[view][entity] = Stored(*_mark(mark)[:2], tuple(map(_number, values)))
        return found

    def marks(self, view: str, entities: Iterable[Entity]) -> dict[Entity, Mark]:
        """As OnlineRows says."""
        wanted = list(entities)
        answers = self._ask((_key_bytes(view, entity), self._fields[view][:1]) for entity in wanted)
        return {entity: _mark(mark) for entity, (mark,) in zip(wanted, answers, strict=True) if mark is not None}

    def _ask(self, commands: Iterable[tuple[bytes, list[bytes]]]) -> list[list[bytes | None]]:
        """The fields of each hash, all in one round trip."""
        with reachable(self._online), self._client.pipeline(transaction=False) as pipe:
            for key, fields in commands:
                pipe.hmget(key + PROJECT.encode(), fields)  # type: ignore[arg-type] # redis-py takes bytes too
            return pipe.execute()


def _field(view: str, name: str) -> bytes:
    """Feast's name of a field: the 32-bit hash of view and feature, least byte first."""
    return struct.pack("<I", mmh3.hash(f"{view}:{name}", signed=False))
