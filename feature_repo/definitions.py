"""The Feast objects of the repo and the one way to a Feast store; applied from code, never by ``feast apply``.

Feast's file registry has no locking and two writers lose each other's updates (feast-dev/feast#2176), so ``apply``
keeps other writers waiting and writes only when the definitions differ from those applied last. Nothing here loads
pyspark: the offline store is our as-of join (feature_repo/offline_store.py), which loads it when history is asked.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from artifacts.refs import Uri, join, local_path, sha256
from artifacts.store import exists, read_bytes, write_bytes
from feature_repo.catalogue import VIEWS
from feature_repo.online_server import connection_string, is_server, only_writer


@contextlib.contextmanager
def _hidden(module: str) -> Iterator[None]:
    """Makes a module that is not loaded yet look as if it were not installed, until the block ends."""
    loaded = module in sys.modules
    sys.modules.setdefault(module, None)  # type: ignore[arg-type] # Python: not to be found
    try:
        yield
    finally:
        if not loaded:
            del sys.modules[module]


with _hidden("torch"):  # Feast loads torch where it finds it: 180 MiB and 4 s more in every gateway, for nothing
    from feast import Entity, FeatureService, FeatureStore, FeatureView, Field, FileSource, ValueType
    from feast.data_format import ParquetFormat
    from feast.infra.key_encoding_utils import serialize_entity_key
    from feast.infra.provider import Provider, get_provider
    from feast.protos.feast.types.EntityKey_pb2 import EntityKey
    from feast.protos.feast.types.Value_pb2 import Value
    from feast.repo_config import RegistryConfig, RepoConfig
    from feast.types import Float64

__all__ = [
    "SERVICE",
    "EntityKey",
    "FeatureStore",
    "FeatureView",
    "Provider",
    "Value",
    "apply",
    "feature_store",
    "get_provider",
    "objects",
    "online_config",
    "registry_path",
    "serialize_entity_key",
    "single_writer",
]

PROJECT = "perennial"
SERVICE = "flight_delay"
OWNER = "features@perennial.example"
REGISTRY_FILE = "registry.db"
APPLIED_FILE = "applied.txt"

VALUE_TYPES = {"string": ValueType.STRING, "int64": ValueType.INT64}
CLOCKS = {"timestamp_field": "event_time", "created_timestamp_column": "available_time"}
ENTITY_DESCRIPTIONS = {
    "carrier": "Airline, by its two-character code.",
    "origin": "New York airport that the flight departs from, by its IATA code.",
    "dest": "Airport that the flight goes to, by its IATA code.",
    "flight": "The airline's number of the flight; with the carrier it names a connection that is flown daily.",
}


def objects(views: Uri) -> tuple[Entity | FeatureView | FeatureService, ...]:
    """Everything that ``apply`` registers, made anew (Feast alters what it registers), for views that lie at ``views``."""
    entities = {
        key: Entity(
            name=key, join_keys=[key], value_type=VALUE_TYPES[kind], description=ENTITY_DESCRIPTIONS[key], owner=OWNER
        )
        for view in VIEWS.values()
        for key, kind in view.keys.items()
    }
    feature_views = {
        name: FeatureView(
            name=name,
            entities=[entities[key] for key in view.keys],
            ttl=view.ttl,
            schema=[
                Field(name=feature.name, dtype=Float64, description=f"{feature.meaning} ({feature.unit})")
                for feature in view.features
            ],
            source=FileSource(
                name=f"{name}_rows",
                path=join(views, "*", "*", f"{name}.parquet"),
                file_format=ParquetFormat(),
                tags={"artifacts": views},  # history reads what the manifests below name (feature_repo/source_rows.py)
                **CLOCKS,
            ),
            online=True,
            description=view.meaning,
            owner=view.owner,
            tags={
                "repo": "flights",
                "rows": "hourly, when changed",
                "delay_seconds": f"{view.delay.total_seconds():g}",
            },
        )
        for name, view in VIEWS.items()
    }
    service = FeatureService(
        name=SERVICE,
        features=list(feature_views.values()),
        description="Everything that the flight_delay model reads from the online store.",
        owner=OWNER,
        tags={"model": SERVICE},
    )
    return (*entities.values(), *feature_views.values(), service)


def online_config(online: str) -> dict[str, str | bool]:
    """Feast's words for the online store: SQLite in a folder, or Redis behind ``redis[s]://[user@]host:port/number``."""
    if not is_server(online):
        return {"type": "sqlite", "path": str(Path(online).absolute() / "online.db")}
    # Feast would skip a restated row, which has the event time of the row that it replaces; materialize.py compares both clocks
    return {"type": "redis", "connection_string": connection_string(online), "skip_dedup": True}


def registry_folder(online: str, views: Uri) -> Uri:
    """Where the registry lies: in the embedded store's folder, or below the views when the store is a server."""
    return join(views, ".registry") if is_server(online) else Path(online).absolute().as_uri()


def registry_path(online: str, views: Uri) -> str:
    """The registry as Feast wants it named: a plain path on this machine, or the URI of an object."""
    where = join(registry_folder(online, views), REGISTRY_FILE)
    path = local_path(where)
    return where if path is None else str(path)


@functools.cache
def feature_store(online: str, views: Uri) -> FeatureStore:
    """The Feast store of this process. The registry is read once and kept: what is registered is this code's own."""
    config = RepoConfig(
        project=PROJECT,
        provider="local",
        registry=RegistryConfig(path=registry_path(online, views), cache_ttl_seconds=0),
        online_store=online_config(online),
        offline_store={"type": "feature_repo.offline_store.AsOfOfflineStore", "require_available_time": True},
        coerce_tz_aware=False,  # the offline store refuses instants without a zone; Feast would call them UTC
        entity_key_serialization_version=3,
        repo_path=Path(__file__).parent,
    )
    return FeatureStore(config=config)


def definitions_digest(views: Uri) -> str:
    """The digest of everything that would be registered; equal for equal definitions in any process."""
    specs = [item.to_proto().spec for item in objects(views)]
    for spec in specs:
        _clear_times(spec)
    return sha256(b"\0".join(spec.SerializeToString(deterministic=True) for spec in specs))


def _clear_times(message: Any) -> None:
    """Empties every time stamp in a protobuf message: Feast notes when an object was made."""
    for entry, value in message.ListFields():
        if entry.message_type is None or entry.message_type.GetOptions().map_entry:
            continue
        if entry.message_type.full_name == "google.protobuf.Timestamp":
            message.ClearField(entry.name)
        else:
            for part in value if entry.is_repeated else (value,):
                _clear_times(part)


def apply(online: str, views: Uri) -> bool:
    """Registers the definitions and makes the online tables; returns False when they were registered already.

    One writer at a time: Feast's registry is a file that two writers would overwrite (feast-dev/feast#2176).
    """
    folder = registry_folder(online, views)
    applied = join(folder, APPLIED_FILE)
    wanted = definitions_digest(views).encode()
    with single_writer(online):
        if exists(applied) and read_bytes(applied) == wanted:
            return False
        if (place := local_path(folder)) is not None:
            place.mkdir(parents=True, exist_ok=True)
        store = feature_store(online, views)
        store.apply(list(objects(views)))
        _let_readers_in(store.config.online_store.model_dump())
        write_bytes(applied, wanted)
    return True


@contextlib.contextmanager
def single_writer(online: str) -> Iterator[None]:
    """Keeps every other writer of this online store and its registry waiting until the block ends; not re-entrant.

    A server's own lock holds on every machine; an embedded store is a folder, and its lock a file in it.
    """
    if is_server(online):
        with only_writer(online):
            yield
        return
    folder = Path(online).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _let_readers_in(online_store: dict[str, Any]) -> None:
    """Turns on SQLite's write-ahead log, which the file remembers: gateways then read while an hour is written."""
    if online_store["type"] == "sqlite":
        with contextlib.closing(sqlite3.connect(online_store["path"])) as connection:
            connection.execute("PRAGMA journal_mode=WAL")
