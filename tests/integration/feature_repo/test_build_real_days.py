"""The feature side on four real days, one of them with a clock change: ingest, build, training set, and what may not leak."""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from artifacts import store
from artifacts.refs import Uri, file_uri, join
from artifacts.step import DataFault
from feature_repo import definitions, spark, tables
from feature_repo.build import build
from feature_repo.catalogue import VIEWS, feature_columns
from feature_repo.contract import DatasetRef, IngestSpec, LakeRef
from feature_repo.ingest import ingest
from feature_repo.training_set import training_set
from tests.make import feature_repo as make

pytestmark = pytest.mark.spark

CALENDAR = make.calendar("2013-11-01", "2013-11-04")
DAYS = tables.day_range(CALENDAR.first, dt.date(2013, 11, 4))
BEGINS, ENDS = CALENDAR.starts(DAYS[0]), CALENDAR.ends(DAYS[-1])
HOUR = dt.timedelta(hours=1)
SENTINEL = 9999.0


@dataclass(frozen=True)
class World:
    """A lake with its views, all built at once."""

    lake: Uri
    ingested: LakeRef
    views: Uri


@pytest.fixture(scope="module")
def session() -> Iterator[SparkSession]:
    """One session for all tests of this file: each would spend seconds on its own."""
    patch = pytest.MonkeyPatch()
    with spark.session("tests") as shared:

        @contextmanager
        def same(_name: str) -> Iterator[SparkSession]:
            yield shared

        patch.setattr(spark, "session", same)
        yield shared
        patch.undo()


@pytest.fixture(scope="module")
def world(session: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> World:
    root = tmp_path_factory.mktemp("world")
    lake, views = file_uri(root / "lake"), file_uri(root / "views")
    spec = IngestSpec(source="nycflights13", calendar=CALENDAR, lake=lake, first=DAYS[0], last=DAYS[-1])
    ingested = ingest(spec)
    build(make.build_spec(lake, views, BEGINS, ENDS, calendar=CALENDAR))
    return World(lake, ingested, views)


def rows_of(views: Uri, view: str) -> pd.DataFrame:
    found = tables.read_days(views, DAYS, "build")
    return tables.load_views(found)[view].to_pandas()


def digests(root: Uri) -> dict[str, str]:
    return {day: store.read(join(root, day)).manifest.digest for day in store.children(root)}


def make_set(world: World, output: Path, lake: Uri | None = None, views: Uri | None = None) -> DatasetRef:
    spec = make.training_set_spec(
        lake or world.lake, views or world.views, file_uri(output), "2013-11-04", "2013-11-02", calendar=CALENDAR
    )
    return training_set(spec)


@pytest.mark.covers("decisions 3.5")
def test_ingest_brings_every_flight_once_and_the_long_day_has_25_hours(world: World) -> None:
    assert world.ingested.written == len(DAYS)
    raw = tables.load_raw(tables.read_days(world.lake, DAYS, "ingest"), DAYS)
    assert world.ingested.rows == {name: table.num_rows for name, table in raw.items()}
    assert (
        pc.count_distinct(raw["schedule"]["flight_id"]).as_py() == raw["schedule"].num_rows == raw["departure"].num_rows
    )
    assert pc.all(pc.greater(raw["arrival"]["available_time"], raw["arrival"]["scheduled_departure"])).as_py()
    assert CALENDAR.ends(dt.date(2013, 11, 2)) - CALENDAR.starts(dt.date(2013, 11, 2)) == 25 * HOUR


def oracle(world: World, keys: list[str], hour: pd.Timestamp) -> dict[tuple[str, ...], dict[str, float]]:
    """The features of each entity at one hour, straight from the definition."""
    raw = {name: t.to_pandas() for name, t in tables.load_raw(tables.read_days(world.lake, DAYS, "x"), DAYS).items()}
    found: dict[tuple[str, ...], dict[str, float]] = {}
    for window, hours in {"3h": 3, "1d": 24, "7d": 168}.items():
        since = hour - hours * HOUR
        dep, arr = (
            raw[name][(raw[name].available_time > since) & (raw[name].available_time <= hour)]
            for name in ("departure", "arrival")
        )
        left, came = (dict(iter(part.groupby(keys))) for part in (dep, arr))
        for entity in {*left, *came}:
            d, a = left.get(entity, dep[:0]), came.get(entity, arr[:0])
            late = (a.diverted | (a.arrival_delay >= 15)).sum() + d.cancelled.sum()
            outcomes = len(a) + d.cancelled.sum()
            found.setdefault(entity, {}).update({
                f"departures_{window}": float((~d.cancelled).sum()),
                f"departure_delay_mean_{window}": d.departure_delay.mean(),
                f"arrival_delay_mean_{window}": a.arrival_delay.mean(),
                f"late_share_{window}": late / outcomes if outcomes else float("nan"),
                f"cancelled_share_{window}": d.cancelled.mean() if len(d) else float("nan"),
            })
    return found


@pytest.mark.parametrize("view", ["carrier", "origin", "route"])
@pytest.mark.parametrize("hour", ["2013-11-01T17:00Z", "2013-11-03T06:00Z", "2013-11-04T22:00Z"])
def test_rolling_features_are_what_their_definition_says(world: World, view: str, hour: str) -> None:
    at = pd.Timestamp(hour)
    rows = rows_of(world.views, view)
    keys = list(tables.ENTITY_KEYS[view])
    newest = {entity: part.iloc[-1] for entity, part in rows[rows.event_time <= at].groupby(keys)}
    expected = oracle(world, keys, at)
    assert expected
    assert set(newest) == set(expected)
    for entity, features in expected.items():
        got = newest[entity][list(features)].astype(float)
        assert got.to_dict() == pytest.approx(features, nan_ok=True), entity


def test_congestion_is_what_its_definition_says(world: World) -> None:
    raw = {name: t.to_pandas() for name, t in tables.load_raw(tables.read_days(world.lake, DAYS, "x"), DAYS).items()}
    rows = rows_of(world.views, "congestion")
    planned, left = raw["schedule"], raw["departure"]
    for at in pd.date_range("2013-11-01T10:00Z", "2013-11-04T20:00Z", freq="7h"):
        for origin in ("EWR", "JFK", "LGA"):
            due = planned[planned.origin == origin].scheduled_departure
            known = left[
                (left.origin == origin) & (left.available_time <= at) & (left.scheduled_departure > at - 3 * HOUR)
            ]
            known = known[known.scheduled_departure <= at]
            row = rows[(rows.origin == origin) & (rows.event_time <= at)].iloc[-1]
            assert row.scheduled_departures_next == ((due > at + HOUR) & (due <= at + 3 * HOUR)).sum()
            assert row.scheduled_departures_last_3h == ((due > at - 3 * HOUR) & (due <= at)).sum()
            assert row.known_cancelled_last_3h == known.cancelled.sum()
            assert row.known_late_last_3h == (known.departure_delay >= 15).sum()


@pytest.mark.parametrize("view", VIEWS)
def test_rows_belong_to_their_day_change_and_repeat_within_a_day(world: World, view: str) -> None:
    features = list(tables.FEATURES[view])
    for day, artifact in tables.read_days(world.views, DAYS, "x").items():
        when = tables.read_table(artifact, view, tables.VIEW_SCHEMAS[view]).to_pandas().event_time
        assert {CALENDAR.of(instant.to_pydatetime() - HOUR) for instant in when} == {day}
    if view == "weather":
        return
    for _, rows in rows_of(world.views, view).groupby(list(tables.ENTITY_KEYS[view])):
        assert rows.event_time.is_monotonic_increasing
        assert rows.event_time.diff().max() <= pd.Timedelta(hours=24)
        same = (rows[features].fillna(-1).diff().abs().sum(axis=1) == 0).iloc[1:]
        assert (rows.event_time.iloc[1:][same].dt.hour == 9).all(), "only the daily repeat may equal the row before"


@pytest.mark.covers("field-reports 51")
def test_hour_by_hour_gives_the_bytes_of_all_at_once(world: World, tmp_path: Path) -> None:
    views = file_uri(tmp_path / "views")
    close = CALENDAR.ends(DAYS[1])  # of the day with 25 hours
    cuts = [BEGINS, close - HOUR, close, close + HOUR, ENDS]
    for start, end in itertools.pairwise(cuts):
        before = digests(views)
        build(make.build_spec(world.lake, views, start, end, calendar=CALENDAR))
        after = digests(views)
        if end - start == HOUR:
            changed = [day for day in after if after[day] != before.get(day)]
            assert changed == [CALENDAR.of(start).isoformat()], "an hour changes one partition"
    assert digests(views) == digests(world.views)


def test_building_again_changes_nothing(world: World) -> None:
    before = {day: store.manifest(join(world.views, day)) for day in store.children(world.views)}
    build(make.build_spec(world.lake, world.views, ENDS - 30 * HOUR, ENDS, calendar=CALENDAR))
    assert {day: store.manifest(join(world.views, day)) for day in store.children(world.views)} == before


def restating(when: dt.datetime, delay: float) -> Callable[[str, str, pa.Table], pa.Table]:
    """Adds to each arrival of the second day a version that says ``delay`` and became known at ``when``."""

    def change(day: str, name: str, table: pa.Table) -> pa.Table:
        if name != "arrival" or day != "2013-11-02":
            return table
        rows = [row | {"arrival_delay": delay, "diverted": False, "available_time": when} for row in table.to_pylist()]
        return pa.concat_tables([table, pa.Table.from_pylist(rows, schema=table.schema)])

    return change


def test_a_restated_record_counts_from_when_it_is_known_and_once(world: World, tmp_path: Path) -> None:
    when = make.utc("2013-11-04T12:30:00")
    lake = make.copy_lake(world.lake, tmp_path / "lake", restating(when, 60.0))
    views = file_uri(tmp_path / "views")
    build(make.build_spec(lake, views, BEGINS, ENDS, calendar=CALENDAR))
    before, after = rows_of(world.views, "origin"), rows_of(views, "origin")
    early = before.event_time <= when
    pd.testing.assert_frame_equal(
        after[after.event_time <= when].reset_index(drop=True), before[early].reset_index(drop=True)
    )
    hour = pd.Timestamp("2013-11-04T13:00Z")
    raw = tables.load_raw(tables.read_days(lake, DAYS, "x"), DAYS)["arrival"].to_pandas()
    known = (
        raw[(raw.origin == "JFK") & (raw.available_time <= hour)]
        .sort_values("available_time")
        .groupby("flight_id")
        .last()
    )
    row = after[(after.origin == "JFK") & (after.event_time == hour)].iloc[0]
    assert row.arrival_delay_mean_7d == pytest.approx(known.arrival_delay.mean())


@pytest.mark.covers("decisions 3.4", "field-reports 54", "field-reports 55")
def test_the_training_set_has_every_flight_once_and_the_promised_columns(world: World, tmp_path: Path) -> None:
    ref = make_set(world, tmp_path / "set")
    rows = pq.read_table(store.read_ref(ref).file("rows.parquet"))
    raw = tables.load_raw(tables.read_days(world.lake, DAYS[1:3], "x"), DAYS)
    flown = raw["schedule"].to_pandas().set_index("flight_id")
    assert rows["row_id"].to_pylist() == sorted(flown.index)
    assert (ref.first, ref.last) == (DAYS[1], DAYS[2])
    assert set(feature_columns()) <= set(ref.columns)
    assert tuple(rows.column_names) == ref.columns
    frame = rows.to_pandas().set_index("row_id")
    arrival = raw["arrival"].to_pandas().set_index("flight_id")
    on_time = arrival.index[~arrival.diverted & (arrival.arrival_delay < 15)]
    assert (frame.label == 0).sum() == len(on_time) == (frame.loc[on_time].label == 0).sum()
    assert (frame["at"] == flown.scheduled_departure - 2 * HOUR).all()


@pytest.mark.covers("decisions 3.7")
def test_a_second_run_with_other_partitions_gives_the_same_bytes(
    world: World, session: SparkSession, tmp_path: Path
) -> None:
    one = make_set(world, tmp_path / "one")
    usual = session.conf.get("spark.sql.shuffle.partitions")
    for count in ("1", "7"):
        session.conf.set("spark.sql.shuffle.partitions", count)
        try:
            two = make_set(world, tmp_path / count)
        finally:
            session.conf.set("spark.sql.shuffle.partitions", usual)
        assert (one.digest, one.key) == (two.digest, two.key), f"{count} partitions"


def test_feasts_history_is_the_training_set(world: World, tmp_path: Path) -> None:
    """One engine serves both: asked through Feast for the set's rows, it gives the set's feature columns."""
    rows = pq.read_table(store.read_ref(make_set(world, tmp_path / "set")).file("rows.parquet"))
    definitions.apply(str(tmp_path / "online"), world.views)
    feast = definitions.feature_store(str(tmp_path / "online"), world.views)
    asked = rows.select(["row_id", "carrier", "flight", "origin", "dest", "at"]).to_pandas()
    found = feast.get_historical_features(
        asked.rename(columns={"at": "event_timestamp"}),
        feast.get_feature_service(definitions.SERVICE),
        full_feature_names=True,
    ).to_arrow()
    assert found.select(feature_columns()).equals(rows.select(feature_columns()))


@pytest.mark.covers("decisions 3.6", "decisions 3.3", "field-reports 53", "field-reports 57")
def test_what_becomes_known_later_changes_no_byte(world: World, tmp_path: Path) -> None:
    """Restatements after as_of in the lake; in the views rows after T, and old rows that were filled in after T."""
    as_of = CALENDAR.as_of(dt.date(2013, 11, 4))
    lake = make.copy_lake(world.lake, tmp_path / "lake", restating(as_of + dt.timedelta(microseconds=1), SENTINEL))
    last = CALENDAR.ends(dt.date(2013, 11, 3))

    def poison(day: str, name: str, table: pa.Table) -> pa.Table:
        features, keys = dict.fromkeys(tables.FEATURES[name], SENTINEL), tables.ENTITY_KEYS[name]
        filled_in = [row | features | {"available_time": last} for row in table.to_pylist()]
        later = [
            row | {"event_time": last} for row in {tuple(row[key] for key in keys): row for row in filled_in}.values()
        ]
        return pa.concat_tables([table, pa.Table.from_pylist([*filled_in, *later], schema=table.schema)])

    views = make.copy_lake(world.views, tmp_path / "views", poison)
    clean, poisoned = make_set(world, tmp_path / "clean"), make_set(world, tmp_path / "poisoned", lake, views)
    assert poisoned.digest == clean.digest
    assert poisoned.key != clean.key


def test_the_poison_would_show_if_it_were_used(world: World, tmp_path: Path) -> None:
    lake = make.copy_lake(world.lake, tmp_path / "lake", restating(make.utc("2013-11-04T12:00:00"), SENTINEL))
    assert make_set(world, tmp_path / "set", lake).digest != make_set(world, tmp_path / "clean").digest


def test_a_lake_that_changed_since_the_spec_is_refused(world: World, tmp_path: Path) -> None:
    wrong = "sha256:" + "0" * 64
    with pytest.raises(DataFault, match="the lake has changed"):
        build(make.build_spec(world.lake, file_uri(tmp_path), BEGINS, ENDS, calendar=CALENDAR, snapshot=wrong))
    spec = make.training_set_spec(
        world.lake,
        world.views,
        file_uri(tmp_path / "x"),
        "2013-11-04",
        "2013-11-02",
        calendar=CALENDAR,
        views_snapshot=wrong,
    )
    with pytest.raises(DataFault, match=r"views: snapshot is .* it has changed"):
        training_set(spec)


def test_a_missing_day_is_named_and_nothing_is_published(world: World, tmp_path: Path) -> None:
    lake = make.copy_lake(world.lake, tmp_path / "lake", lambda _day, _name, table: table)
    (tmp_path / "lake" / "2013-11-03" / store.MANIFEST).unlink()
    with pytest.raises(DataFault, match=r"day 2013-11-03: not there; run feature_repo\.ingest"):
        build(make.build_spec(lake, file_uri(tmp_path / "views"), BEGINS, ENDS, calendar=CALENDAR))
    assert not (tmp_path / "views").exists()
