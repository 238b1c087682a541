"""Builders of small Feast repos over Parquet files, for tests of the offline store."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from feast import Entity, FeatureStore, FeatureView, Field, FileSource, ValueType
from feast.repo_config import RegistryConfig, RepoConfig
from feast.types import Float64, Int64, String

from tests.make.feature_repo import utc

T = utc("2013-06-03T15:00:00")
HOUR = dt.timedelta(hours=1)
DAY = dt.timedelta(days=1)
INSTANT = pa.timestamp("us", tz="UTC")
STORE = "feature_repo.offline_store.AsOfOfflineStore"


def feast_store(folder: Path, *objects: Any, offline: Mapping[str, Any] | None = None, **changes: Any) -> FeatureStore:
    """A Feast store in a folder, with our offline store and some objects applied."""
    config = RepoConfig(
        project="history",
        provider="local",
        registry=RegistryConfig(path=str(folder / "registry.db"), cache_ttl_seconds=0),
        online_store={"type": "sqlite", "path": str(folder / "online.db")},
        offline_store={"type": STORE, **(offline or {})},
        entity_key_serialization_version=3,
        repo_path=folder,
        **{"coerce_tz_aware": False} | changes,
    )
    store = FeatureStore(config=config)
    store.apply(list(objects))
    return store


def driver() -> Entity:
    return Entity(name="driver", join_keys=["driver"], value_type=ValueType.STRING)


def stats(
    folder: Path, rows: Sequence[Mapping[str, Any]], name: str = "stats", ttl: dt.timedelta | None = None, **source: Any
) -> FeatureView:
    """A view of rows with driver, event_time, available_time and trips (double), in a Parquet file of its own."""
    path = folder / f"{name}.parquet"
    schema = pa.schema({
        "driver": pa.string(), "event_time": INSTANT, "available_time": INSTANT, "trips": pa.float64(),
    })  # fmt: skip
    pq.write_table(pa.Table.from_pylist([dict(row) for row in rows], schema=schema), path)
    clocks = {"timestamp_field": "event_time", "created_timestamp_column": "available_time"}
    return FeatureView(
        name=name,
        entities=[driver()],
        ttl=ttl,
        schema=[Field(name="driver", dtype=String), Field(name="trips", dtype=Float64)],
        source=FileSource(name=f"{name}_rows", path=str(path), **clocks | source),
        online=True,
    )


def row(
    driver: str | None, event: dt.timedelta, trips: float | None, known: dt.timedelta | None = None
) -> dict[str, Any]:
    """A view row: its event relative to T, its value, and when it became available (at the event unless told)."""
    return {
        "driver": driver, "event_time": T + event, "available_time": T + (event if known is None else known), "trips": trips,
    }  # fmt: skip


def asked(*drivers: str | None, at: dt.datetime = T, **columns: Any) -> pd.DataFrame:
    """An entity frame: some drivers, all at one instant."""
    return pd.DataFrame({"driver": list(drivers), "event_timestamp": pd.Series([at] * len(drivers)), **columns})


__all__ = [
    "DAY",
    "HOUR",
    "INSTANT",
    "Float64",
    "Int64",
    "String",
    "T",
    "asked",
    "driver",
    "feast_store",
    "row",
    "stats",
]
