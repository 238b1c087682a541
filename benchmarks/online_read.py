"""Online reads of one flight's row of all views, from SQLite and from a real redis-server on loopback, in one run.

Both stores hold every entity that flew out of New York in 2013, written by the materializer in one hour, as when a day's
repeats fall due; the next hour changes a tenth of them. Each read is one flight's five key sets and all seven views;
2,000 reads follow 200 that are not counted, in turns from both stores. Feast's ``get_online_features`` reads the same rows
beside them. Needs redis-server on the PATH.
"""

from __future__ import annotations

import datetime as dt
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

from artifacts.clock import Calendar
from artifacts.refs import Uri, file_uri, join
from benchmarks.report import report
from feature_repo.catalogue import ENTITY_KEYS, FEATURES
from feature_repo.definitions import SERVICE, feature_store
from feature_repo.materialize import HOUR, Materializer
from feature_repo.online import OnlineReader
from feature_repo.sources.nycflights13 import folder
from feature_repo.tables import VIEW_SCHEMAS, publish_day, view_bytes
from tests.make.redis_server import redis_server

READS, WARM_UP, FEAST_READS = 2_000, 200, 200
NULL_SHARE = 0.2
CHANGED = 10  # every tenth entity changes in the second hour
SEED = 20130901
START = dt.datetime(2013, 9, 1, 12, tzinfo=dt.UTC)
DAY = START.date()
CALENDAR = Calendar(zone="America/New_York", close=dt.time(4), lateness=dt.timedelta(hours=6), first=DAY, last=DAY)
TARGETS = {"sqlite_p99_ms": "< 5", "redis_p99_ms": "< 3", "sqlite_hour_seconds": "< 1", "sqlite_repeat_seconds": "< 3"}

Flight = Mapping[str, list[str | int | None]]


def flights() -> pd.DataFrame:
    """Every combination of keys that flew."""
    names = ["carrier", "flight", "origin", "dest"]
    return pd.read_csv(folder() / "flights.csv.zip", usecols=names).drop_duplicates()[names].sort_values(names)


def publish(views: Uri, flown: pd.DataFrame) -> None:
    """One view day: a row per entity at START, and one more for every tenth an hour later."""
    rng = np.random.default_rng(SEED)
    files = {}
    for view, schema in VIEW_SCHEMAS.items():
        entities = flown[list(ENTITY_KEYS[view])].drop_duplicates()
        rows = pd.concat([entities.assign(event_time=START), entities[::CHANGED].assign(event_time=START + HOUR)])
        values = rng.normal(size=(len(rows), len(FEATURES[view])))
        values[rng.random(values.shape) < NULL_SHARE] = np.nan
        columns = dict(zip(FEATURES[view], values.T, strict=True))
        whole = rows.assign(available_time=rows["event_time"], **columns)[schema.names]
        files[f"{view}.parquet"] = view_bytes(view, pa.Table.from_pandas(whole, schema, preserve_index=False))
    publish_day(join(views, str(DAY)), "view-day", files, {})


def timed(work: Callable[[], object]) -> float:
    """Seconds that something takes."""
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def fill(views: Uri, online: str) -> dict[str, float]:
    """Writes both hours; seconds of each."""
    writer = Materializer(CALENDAR, views, online)
    repeat = timed(lambda: writer.write(START, START + HOUR))
    hour = timed(lambda: writer.write(START + HOUR, START + 2 * HOUR))
    return {"repeat_seconds": repeat, "hour_seconds": hour}


def milliseconds(readers: Mapping[str, Callable[[Flight], object]], asked: list[Flight]) -> dict[str, np.ndarray]:
    """Each reader's time for each read after the warm-up, taking turns."""
    spent: dict[str, list[float]] = {name: [] for name in readers}
    for flight in asked:
        for name, read in readers.items():
            begun = time.perf_counter()
            read(flight)
            spent[name].append((time.perf_counter() - begun) * 1e3)
    return {name: np.array(found[WARM_UP:]) for name, found in spent.items()}


def ours(online: str) -> Callable[[Flight], object]:
    """The gateway's reader; a row that is not found fails the benchmark."""
    reader, now = OnlineReader(online, seconds=5), START + 2 * HOUR

    def read(flight: Flight) -> None:
        found = reader.read(SERVICE, flight, now)
        if any(status != ["present"] for status in found.status.values()):
            raise AssertionError(f"{flight}: {found.status}")

    return read


def feasts(online: str, views: Uri) -> Callable[[Flight], object]:
    """Feast's own reader of the same features."""
    store = feature_store(online, views)
    names = [f"{view}:{feature}" for view, features in FEATURES.items() for feature in features]
    return lambda flight: store.get_online_features(names, dict(flight), full_feature_names=True)


def main() -> None:
    """Fills both stores and reads them side by side."""
    flown = flights()
    picked = flown.iloc[np.random.default_rng(SEED).integers(len(flown), size=READS + WARM_UP)]
    asked: list[Flight] = [{name: [value] for name, value in row.items()} for row in picked.to_dict("records")]
    figures: dict[str, float] = {"flight_numbers": float(len(flown[["carrier", "flight"]].drop_duplicates()))}
    with tempfile.TemporaryDirectory() as place, redis_server(Path(place)) as server:
        views, stores = file_uri(Path(place) / "views"), {"sqlite": str(Path(place) / "online"), "redis": server.url}
        publish(views, flown)
        for name, online in stores.items():
            figures |= {f"{name}_{key}": value for key, value in fill(views, online).items()}
        spent = milliseconds({name: ours(online) for name, online in stores.items()}, asked)
        few = asked[: WARM_UP + FEAST_READS]
        spent |= milliseconds({f"feast_{name}": feasts(online, views) for name, online in stores.items()}, few)
    for name, found in spent.items():
        figures |= {f"{name}_p50_ms": float(np.median(found)), f"{name}_p99_ms": float(np.percentile(found, 99))}
    report("online_read", figures, TARGETS)


if __name__ == "__main__":
    main()
