"""The as-of join beside Feast's own Spark store and pandas, on every flight of 2013; and on ten times as many rows.

Reads lake and views that ``make demo`` left, where they hold the whole year; else makes them once in the folder that
``--state`` names (minutes) and finds them there again. Both stores answer ``get_historical_features(...).to_arrow()`` in one
warm Spark session, upload of the entity frame included.
"""

from __future__ import annotations

import datetime as dt
import math
import os
import statistics
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from artifacts import store as artifacts
from artifacts.refs import Uri, file_uri
from benchmarks.report import parser, report
from feature_repo import definitions, spark, tables
from feature_repo.build import build
from feature_repo.catalogue import FEATURES, VIEWS
from feature_repo.contract import BuildSpec, IngestSpec
from feature_repo.ingest import ingest
from feature_repo.snapshot import build_snapshot
from operators.pipelines import FeatureRepo, pipeline
from operators.settings import platform

YEAR = tables.day_range(dt.date(2013, 1, 1), dt.date(2013, 12, 31))
NOTICE = dt.timedelta(hours=2)
ONE_VIEW = "carrier"
COPIES = 10
SHIFT = dt.timedelta(minutes=7)  # a copy asks at instants of its own
OURS, FEAST = 5, 1  # repetitions; Feast's store takes ten minutes for one


def year(state: Path, repo: FeatureRepo) -> tuple[Uri, Uri]:
    """Lake and views of the whole year, from the demo or from ``state``, where they are made when they are not there."""
    for place in (platform().store, file_uri(state)):
        lake, views = repo.lake(place), repo.views(place)
        if all(set(artifacts.children(root)) >= {day.isoformat() for day in YEAR} for root in (lake, views)):
            return lake, views
    print(f"building the views of {YEAR[0]} to {YEAR[-1]} below {state}")
    ingest(IngestSpec(source=repo.source, calendar=repo.calendar, lake=lake, first=YEAR[0], last=YEAR[-1]))
    start, end = repo.calendar.starts(YEAR[0]), repo.calendar.ends(YEAR[-1])
    snapshot = build_snapshot(repo.calendar, lake, start, end)
    build(BuildSpec(calendar=repo.calendar, lake=lake, snapshot=snapshot, views=views, start=start, end=end))
    return lake, views


def flights(lake: Uri) -> pd.DataFrame:
    """An entity row per flight of the year: its keys, and the instant two hours before its departure."""
    found = tables.load_raw(tables.read_days(lake, YEAR, "feature_repo.ingest"), YEAR)["schedule"].to_pandas()
    found = found.sort_values("available_time").drop_duplicates("flight_id", keep="last")
    found["event_timestamp"] = found["scheduled_departure"] - NOTICE
    return found[["flight_id", "carrier", "origin", "dest", "flight", "event_timestamp"]].reset_index(drop=True)


def copies(rows: pd.DataFrame) -> pd.DataFrame:
    """Ten times the rows; each copy asks a few minutes later than the one before."""
    shifted = [rows.assign(event_timestamp=rows["event_timestamp"] + number * SHIFT) for number in range(COPIES)]
    return pd.concat(shifted, ignore_index=True)


def one_view_stores(folder: Path) -> tuple[Any, Any]:
    """Feast's Spark store and ours, each with the same view over the same Parquet file."""
    from feast import Entity, FeatureStore, FeatureView, Field, FileSource, ValueType  # noqa: PLC0415  after definitions, which hides torch from it
    from feast.infra.offline_stores.contrib.spark_offline_store.spark_source import SparkSource  # noqa: PLC0415
    from feast.repo_config import RegistryConfig, RepoConfig  # noqa: PLC0415
    from feast.types import Float64, String  # noqa: PLC0415

    path = str(folder / f"{ONE_VIEW}.parquet")
    clocks = {"timestamp_field": "event_time", "created_timestamp_column": "available_time"}
    kinds = {
        "spark": SparkSource(name="rows", path=path, file_format="parquet", **clocks),
        "feature_repo.offline_store.AsOfOfflineStore": FileSource(name="rows", path=path, **clocks),
    }
    stores = []
    for number, (kind, source) in enumerate(kinds.items()):
        config = RepoConfig(
            project="benchmark",
            provider="local",
            registry=RegistryConfig(path=str(folder / f"{number}.db"), cache_ttl_seconds=0),
            online_store={"type": "sqlite", "path": str(folder / f"{number}.online")},
            offline_store={"type": kind},
            entity_key_serialization_version=3,
        )
        entity = Entity(name=ONE_VIEW, join_keys=[ONE_VIEW], value_type=ValueType.STRING)
        fields = [Field(name=ONE_VIEW, dtype=String), *(Field(name=name, dtype=Float64) for name in FEATURES[ONE_VIEW])]
        view = FeatureView(name=ONE_VIEW, entities=[entity], ttl=VIEWS[ONE_VIEW].ttl, schema=fields, source=source)
        store = FeatureStore(config=config)
        store.apply([entity, view])
        stores.append(store)
    return stores[0], stores[1]


def ask(store: Any, rows: pd.DataFrame) -> pa.Table:
    """One view's features for some entity rows; available time is asked of both."""
    features = [f"{ONE_VIEW}:{name}" for name in FEATURES[ONE_VIEW]]
    entities = rows[["flight_id", ONE_VIEW, "event_timestamp"]]
    return store.get_historical_features(entities, features, filter_by_created_timestamp=True).to_arrow()


def seconds(work: Callable[[], Any], times: int = 1) -> float:
    """The median of some repetitions, each on the monotonic clock."""
    taken = []
    for _ in range(times):
        begun = time.monotonic()
        work()
        taken.append(time.monotonic() - begun)
    return statistics.median(taken)


def equal_share(found: pa.Table, rows: pd.DataFrame, view: pd.DataFrame) -> float:
    """The share of entity rows whose every value is what pandas' ``merge_asof`` gives."""
    tolerance = VIEWS[ONE_VIEW].ttl - dt.timedelta(microseconds=1)  # pandas' is inclusive
    left = rows[[ONE_VIEW, "event_timestamp"]].reset_index().sort_values("event_timestamp")
    left["event_timestamp"] = left["event_timestamp"].astype("datetime64[us, UTC]")
    right = view.sort_values("event_time")
    assert (right["event_time"] == right["available_time"]).all(), "merge_asof knows one clock"  # noqa: S101
    merged = pd.merge_asof(
        left, right, left_on="event_timestamp", right_on="event_time", by=ONE_VIEW, tolerance=pd.Timedelta(tolerance)
    ).sort_values("index")
    names = list(FEATURES[ONE_VIEW])
    ours, theirs = found.select(names).to_pandas().to_numpy(), merged[names].to_numpy()
    return float(np.mean(np.all((ours == theirs) | (np.isnan(ours) & np.isnan(theirs)), axis=1)))


@contextmanager
def peak_memory(peak: dict[str, float]) -> Iterator[None]:
    """Samples the resident memory of this process, the JVM and the workers ten times a second; MiB."""
    ended = threading.Event()

    def sample() -> None:
        me = psutil.Process()
        while not ended.wait(0.1):
            sizes = []
            for process in (me, *me.children(recursive=True)):
                try:
                    sizes.append(process.memory_info().rss)
                except psutil.Error:  # it has just ended
                    continue
            peak["mib"] = max(peak.get("mib", 0.0), sum(sizes) / 2**20)

    sampler = threading.Thread(target=sample, daemon=True)
    sampler.start()
    try:
        yield
    finally:
        ended.set()
        sampler.join()


def measure_one_view(rows: pd.DataFrame, views: Uri) -> dict[str, float]:
    """Feast's Spark store against ours on the same rows of the same view."""
    view = tables.load_views(tables.read_days(views, YEAR, "feature_repo.build"))[ONE_VIEW]
    with tempfile.TemporaryDirectory() as folder:
        pq.write_table(view, Path(folder) / f"{ONE_VIEW}.parquet", coerce_timestamps="us")
        feast, ours = one_view_stores(Path(folder))
        found = ask(ours, rows)  # warm
        mine = seconds(lambda: ask(ours, rows), OURS)
        many = copies(rows)
        ten = seconds(lambda: ask(ours, many))
        ask(feast, rows.head(1000))  # warm
        theirs = seconds(lambda: ask(feast, rows), FEAST)
    return {
        "view_rows": float(view.num_rows),
        "equal_to_pandas": equal_share(found, rows, view.to_pandas()),
        "seconds_ours": mine,
        "seconds_feast_spark": theirs,
        "speedup_vs_feast_spark": theirs / mine,
        "time_ratio_10x_one_view": ten / mine,
    }


def measure_all_views(rows: pd.DataFrame, views: Uri) -> dict[str, float]:
    """Every view, read from its artifacts, on the rows and on ten times as many."""
    with tempfile.TemporaryDirectory() as folder:
        definitions.apply(folder, views)
        store = definitions.feature_store(folder, views)
        service = store.get_feature_service(definitions.SERVICE)

        def ask_all(entities: pd.DataFrame) -> None:
            found = store.get_historical_features(entities, service, full_feature_names=True).to_arrow()
            assert found.num_rows == len(entities)  # noqa: S101  rows out = rows in

        ask_all(rows.head(1000))  # warm
        once = seconds(lambda: ask_all(rows))
        peak: dict[str, float] = {}
        many = copies(rows)
        with peak_memory(peak):
            ten = seconds(lambda: ask_all(many))
    return {
        "seconds_all_views": once,
        "seconds_all_views_10x": ten,
        "time_ratio_10x": ten / once,
        "slope_10x": math.log10(ten / once),
        "peak_rss_mib_10x": peak["mib"],
    }


def main() -> None:
    """Measures in one run, side by side."""
    options = parser("asof_join")
    options.add_argument("--state", type=Path, default=platform().state / "benchmarks", help="where the year lies")
    asked = options.parse_args()
    warnings.simplefilter("ignore")
    os.environ.setdefault(
        "PERENNIAL_SPARK_DRIVER_MEMORY", "3g"
    )  # a year of all views lies in the driver, 0.6 GB of Arrow
    lake, views = year(asked.state, pipeline("flight_delay").repo)
    rows = flights(lake)
    with spark.session("benchmark"):
        figures = {"rows": float(len(rows)), **measure_one_view(rows, views), **measure_all_views(rows, views)}
    targets = {
        "speedup_vs_feast_spark": ">= 20",
        "equal_to_pandas": "1.0",
        "seconds_all_views": "< 60",
        "time_ratio_10x": "<= 12",
        "time_ratio_10x_one_view": "<= 12",
        "peak_rss_mib_10x": "< 8192",
    }
    report("asof_join", figures, targets, asked)


if __name__ == "__main__":
    main()
