"""What Feast's users expect of an offline store, and where Feast's own give wrong answers, on ours with a real Spark."""

from __future__ import annotations

import datetime as dt
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from feast import Entity, FeatureService, FeatureStore, FeatureView, Field, FileSource, RequestSource, ValueType
from feast.errors import SavedDatasetLocationAlreadyExists
from feast.infra.offline_stores.file_source import SavedDatasetFileStorage
from feast.on_demand_feature_view import on_demand_feature_view
from feast.types import Float64, Int64, String
from pyspark.sql import SparkSession

from artifacts.refs import join
from artifacts.settings import ROOT
from artifacts.step import DataFault
from artifacts.store import ArtifactCorrupt
from feature_repo import spark
from feature_repo.definitions import apply, feature_store
from tests.make import expectations as make
from tests.make.history import DAY, HOUR, INSTANT, T, asked, driver, feast_store, row, stats

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:.*experimental feature:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]

WEEK = 7 * DAY
STATS = [
    row("a", -2 * HOUR, 1.0),
    row("a", -HOUR, 2.0),
    row("b", -HOUR, 3.0, known=HOUR),  # back-filled: known only after T
    row("b", -2 * HOUR, 4.0),
    row("c", -2 * DAY, 5.0),
    row("d", -HOUR, 6.0),
    row("d", -HOUR, 7.0, known=-HOUR / 2),  # restated before T
    row(None, -HOUR, 8.0),
    row("e", HOUR, 9.0),
]


@pytest.fixture(scope="module")
def session() -> Iterator[SparkSession]:
    with spark.session("tests") as shared:
        yield shared


def view(name: str, entities: list[Entity], path: Path, *features: Field, **source: Any) -> FeatureView:
    clocks = {"timestamp_field": "event_time", "created_timestamp_column": "available_time"}
    keys = [Field(name=e.join_key, dtype=Int64 if e.value_type is ValueType.INT64 else String) for e in entities]
    return FeatureView(
        name=name,
        entities=entities,
        schema=[*keys, *features],
        source=FileSource(name=f"{name}_rows", path=str(path), **clocks | source),
    )


def written(folder: Path, name: str, **columns: Any) -> Path:
    """A Parquet file whose rows all happened and became known an hour before T, unless told otherwise."""
    count = len(next(iter(columns.values())))
    clocks = {name: pa.array([T - HOUR] * count, INSTANT) for name in ("event_time", "available_time")}
    pq.write_table(pa.table(clocks | columns), folder / f"{name}.parquet")
    return folder / f"{name}.parquet"


def trips_plus(inputs):  # no annotations: Feast evaluates them where this module's names are unknown
    return inputs.assign(trips_plus=inputs["trips"] + inputs["extra"])[["trips_plus"]]


@pytest.fixture(scope="module")
def store(session: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> FeatureStore:
    """Views with one, two and no entities, mapped columns, ties, zoneless nanoseconds, a service and an on-demand view."""
    folder = tmp_path_factory.mktemp("history")
    customer = Entity(name="customer", join_keys=["customer"], value_type=ValueType.INT64)
    trips = Field(name="trips", dtype=Float64)
    base = stats(folder, STATS, ttl=DAY)
    tied = stats(folder, [row("a", -HOUR, value) for value in (1.0, 3.0, 2.0)], "tied")
    mapped = written(
        folder,
        "mapped",
        **{"the driver": ["a", "b"], "n.trips": [10.0, 20.0], "made at": pa.array([T - HOUR, T + HOUR], INSTANT)},
    )
    pandas_file = folder / "pandas.parquet"
    naive = pd.Timestamp(T - HOUR).tz_localize(None)
    pd.DataFrame({"driver": ["a"], "event_time": [naive], "available_time": [naive], "trips": [11.0]}).to_parquet(
        pandas_file
    )
    assert "ns" in str(pq.read_schema(pandas_file).field("event_time").type)
    request = RequestSource(name="extra", schema=[Field(name="extra", dtype=Float64)])

    plus = on_demand_feature_view(sources=[base, request], schema=[Field(name="trips_plus", dtype=Float64)])(trips_plus)
    objects = [
        driver(),
        customer,
        base,
        tied,
        view("mapped", [driver()], mapped, trips, created_timestamp_column="made at", field_mapping={"the driver": "driver", "n.trips": "trips"}),
        view("unit", [customer], written(folder, "unit", customer=pa.array([1, 2], pa.int32()), cost=[0.5, 1.5]), Field(name="cost", dtype=Float64)),
        view("pair", [driver(), customer], written(folder, "pair", driver=["a", "a"], customer=[1, 2], bond=["x", "y"]), Field(name="bond", dtype=String)),
        view("world", [], written(folder, "world", load=[0.9]), Field(name="load", dtype=Float64)),
        view("zoneless", [driver()], pandas_file, trips),
        view("undated", [driver()], folder / "stats.parquet", trips, created_timestamp_column=""),
        view("never", [driver()], written(folder, "never", driver=["a"], trips=[1.0], gone=pa.array([None], INSTANT)), trips, created_timestamp_column="gone"),
        plus,
        FeatureService(name="all", features=[base[["trips"]], tied.with_name("other").with_join_key_map({"driver": "partner"})]),
    ]  # fmt: skip
    return feast_store(folder, *objects)


def ask(store: FeatureStore, entities: Any, *features: str, full: bool = False, **more: Any) -> list[dict[str, Any]]:
    return (
        store.get_historical_features(entities, list(features), full_feature_names=full, **more).to_arrow().to_pylist()
    )


def values(found: list[dict[str, Any]], name: str) -> list[Any]:
    return [answer[name] for answer in found]


@pytest.mark.covers("field-reports 53", "decisions 3.1")
def test_each_row_gets_what_was_known_then(store: FeatureStore) -> None:
    """Rows 53 (feast#6615) and 58: available time is always applied, asked for or not; the ttl too."""
    entities = asked("a", "b", "c", "d", "e", "z", None)
    for more in ({}, {"filter_by_created_timestamp": True}):
        assert values(ask(store, entities, "stats:trips", **more), "trips") == [2.0, 4.0, None, 7.0, None, None, None]
    later = asked("a", "b", "e", at=T + HOUR)
    assert values(ask(store, later, "stats:trips"), "trips") == [2.0, 3.0, 9.0]


@pytest.mark.covers("field-reports 54", "decisions 3.4")
def test_rows_that_repeat_come_back_all_and_in_their_order(store: FeatureStore) -> None:
    """Row 54 (feast#6787): the file store drops entity rows with equal key and time."""
    entities = asked("d", "a", "d", "a", "z", "a", label=[1, 2, 3, 4, 5, 6])
    found = ask(store, entities, "stats:trips")
    assert values(found, "label") == [1, 2, 3, 4, 5, 6]
    assert values(found, "trips") == [7.0, 2.0, 7.0, 2.0, None, 2.0]


@pytest.mark.covers("field-reports 55", "decisions 3.2")
def test_ties_have_one_winner_and_make_no_rows(store: FeatureStore) -> None:
    """Feast's Spark store answers nine rows for three when three view rows tie."""
    assert values(ask(store, asked("a", "a", "a"), "tied:trips"), "trips") == [3.0, 3.0, 3.0]


def test_a_tie_has_the_same_winner_for_part_of_a_view(session: SparkSession, tmp_path: Path) -> None:
    rows = {"driver": ["a", "a"], "first": [2.0, 1.0], "second": [1.0, 2.0]}
    fields = [Field(name=name, dtype=Float64) for name in ("first", "second")]
    store = feast_store(tmp_path, driver(), view("both", [driver()], written(tmp_path, "both", **rows), *fields))
    assert [ask(store, asked("a"), "both:second")[0]["second"], ask(store, asked("a"), "both:first")[0]["first"]] == [
        1,
        2,
    ]


def test_several_views_with_one_two_and_no_entities(store: FeatureStore) -> None:
    """Row 55 (feast#5590): rows that differ in one of several entities are not de-duplicated."""
    entities = asked("a", "a", "b", "a", customer=[1, 2, 2, 1])
    found = ask(store, entities, "stats:trips", "unit:cost", "pair:bond", "world:load")
    assert values(found, "trips") == [2.0, 2.0, 4.0, 2.0]
    assert values(found, "cost") == [0.5, 1.5, 1.5, 0.5]
    assert values(found, "bond") == ["x", "y", None, "x"]
    assert values(found, "load") == [0.9] * 4
    assert list(found[0]) == ["driver", "event_timestamp", "customer", "trips", "cost", "bond", "load"]


def test_names_mapped_columns_and_aliases(store: FeatureStore) -> None:
    full = ask(store, asked("a", "b"), "stats:trips", "mapped:trips", full=True)
    assert values(full, "stats__trips") == [2.0, 4.0]
    assert values(full, "mapped__trips") == [10.0, None]  # b's row was made after T
    service = store.get_feature_service("all")
    entities = asked("a", "z", partner=["z", "a"])
    found = store.get_historical_features(entities, service, full_feature_names=True).to_df()
    assert found["stats__trips"].tolist()[0] == 2.0
    assert found["other__trips"].tolist()[1] == 3.0
    assert found[["stats__trips", "other__trips"]].isna().sum().tolist() == [1, 1]


def test_on_demand_features_are_computed_on_what_was_joined(store: FeatureStore) -> None:
    found = ask(store, asked("a", "b", extra=[0.5, 1.0]), "trips_plus:trips_plus", "stats:trips")
    assert values(found, "trips_plus") == [2.5, 5.0]


def test_without_an_entity_frame_every_entity_seen_answers_once(store: FeatureStore) -> None:
    found = ask(store, None, "stats:trips", "pair:bond", start_date=T - DAY, end_date=T)
    assert [(answer["driver"], answer["customer"], answer["trips"], answer["bond"]) for answer in found] == [
        ("a", None, 2.0, None), ("a", 1, 2.0, "x"), ("a", 2, 2.0, "y"), ("b", None, 4.0, None), ("d", None, 7.0, None),
    ]  # fmt: skip
    assert {answer["event_timestamp"] for answer in found} == {T}
    alone = ask(store, None, "world:load", start_date=T - DAY, end_date=T)
    assert alone == [{"event_timestamp": T, "load": 0.9}]


def test_a_query_and_a_spark_frame_ask_like_a_pandas_frame(store: FeatureStore, session: SparkSession) -> None:
    rows = asked("d", "a", "d", "z", label=[1, 2, 3, 4])
    spark.frame(session, pa.Table.from_pandas(rows)).coalesce(1).createOrReplaceTempView("asked")
    wanted = ask(store, rows, "stats:trips")
    for entities in ("select * from asked", session.table("asked")):
        job = store.get_historical_features(entities, ["stats:trips"])
        assert job.to_arrow().to_pylist() == wanted
        assert (job.metadata.min_event_timestamp, job.metadata.max_event_timestamp) == (T, T)
        assert job.metadata.keys == ["driver", "label"]
    assert sorted(job.to_spark_df().toArrow().to_pylist(), key=lambda answer: answer["label"]) == wanted


def test_instants_come_out_in_utc_whatever_zone_went_in(store: FeatureStore) -> None:
    """Row 61 (feast#5227): UTC everywhere."""
    entities = asked("a").assign(event_timestamp=lambda rows: rows["event_timestamp"].dt.tz_convert("America/New_York"))
    job = store.get_historical_features(entities, ["stats:trips", "zoneless:trips"], full_feature_names=True)
    assert str(job.to_df()["event_timestamp"].dt.tz) == "UTC"
    (answer,) = job.to_arrow().to_pylist()
    assert (answer["event_timestamp"], answer["stats__trips"], answer["zoneless__trips"]) == (T, 2.0, 11.0)


def test_keys_may_be_of_another_width_or_hold_nulls(store: FeatureStore) -> None:
    assert values(ask(store, asked("a", "a", "a", customer=[1.0, None, 3e10]), "unit:cost"), "cost") == [
        0.5,
        None,
        None,
    ]
    assert values(ask(store, asked(None, None), "stats:trips"), "trips") == [None, None]
    categories = asked("a", "b").astype({"driver": "category"})
    assert values(ask(store, categories, "stats:trips"), "trips") == [2.0, 4.0]


def with_text(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.assign(event_timestamp=rows["event_timestamp"].astype(str))


def without_zone(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.assign(event_timestamp=rows["event_timestamp"].dt.tz_localize(None))


FAULTS = {
    "row 62: text for an instant (feast#1576)": (with_text(asked("a")), "stats:trips", r"entity_df: event_timestamp: .*'2013-06-03.*to_datetime"),
    "an instant without a zone": (without_zone(asked("a")), "stats:trips", r"entity_df: event_timestamp: .*no time zone .*tz_localize"),
    "a key is missing": (asked("a").drop(columns="driver"), "stats:trips", r"entity_df: driver: column is missing, feature view 'stats'"),
    "a key of another kind": (asked("a", customer=["1"]), "unit:cost", r"entity_df: customer: type is string, .*'unit' has int"),
    "no instant at all": (asked("a").drop(columns="event_timestamp"), "stats:trips", r"entity_df: event_timestamp: column is missing"),
    "row 53: no row was ever available": (asked("a"), "never:trips", r"never.parquet: gone: is null in every row, .*'never'"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
@pytest.mark.covers("field-reports 62")
def test_a_fault_names_the_column_and_the_view(store: FeatureStore, name: str) -> None:
    entities, feature, message = FAULTS[name]
    with pytest.raises(DataFault, match=message):
        store.get_historical_features(entities, [feature]).to_arrow()


def test_faults_of_spark_frames_and_sources(store: FeatureStore, session: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(DataFault, match="event_timestamp: values have no time zone"):
        ask(store, "select 'a' as driver, timestamp_ntz'2013-06-03 15:00:00' as event_timestamp", "stats:trips")
    with pytest.raises(DataFault, match="event_timestamp: values are no instants but string"):
        ask(store, "select 'a' as driver, '2013-06-03' as event_timestamp", "stats:trips")
    broken = stats(tmp_path, STATS)
    narrow = feast_store(tmp_path, driver(), broken, offline={"require_available_time": True, "ages": True})
    assert values(ask(narrow, asked("a", "z"), "stats:trips"), "stats__age") == [3600.0, None]
    path = tmp_path / "stats.parquet"
    pq.write_table(pq.read_table(path).drop_columns(["trips"]), path)
    with pytest.raises(
        DataFault, match=r"stats.parquet: trips: feature view 'stats' needs this column; the source has"
    ):
        ask(narrow, asked("a"), "stats:trips")
    path.unlink()
    with pytest.raises(DataFault, match=r"stats.parquet: feature view 'stats': there is no Parquet file here"):
        ask(narrow, asked("a"), "stats:trips")


def test_a_view_without_available_time_is_read_by_event_or_refused(store: FeatureStore, tmp_path: Path) -> None:
    """Row 53: who wants no leak can ask that every view says when its rows became available."""
    assert values(ask(store, asked("b"), "undated:trips"), "trips") == [3.0]
    careful = stats(tmp_path, STATS, created_timestamp_column="")
    strict = feast_store(tmp_path, driver(), careful, offline={"require_available_time": True})
    with pytest.raises(DataFault, match="'stats': created_timestamp_column: the source names none"):
        ask(strict, asked("a"), "stats:trips")


@pytest.mark.covers("field-reports 57")
def test_a_set_is_the_same_after_a_restatement(session: SparkSession, tmp_path: Path) -> None:
    """Row 57 (feast#2980): rows after T, and back-filled ones with older events, change no byte of yesterday's set."""
    sets = []
    entities = asked("a", "b", "c", "d", "z")
    later = [
        row("a", HOUR, 66.0),
        row("a", -HOUR, 67.0, known=HOUR),
        row("c", -HOUR, 68.0, known=dt.timedelta(microseconds=1)),
    ]
    for name, rows in (("before", STATS), ("after", [*later, *STATS[::-1]])):
        folder = tmp_path / name
        folder.mkdir()
        store = feast_store(folder, driver(), stats(folder, rows, ttl=DAY))
        job = store.get_historical_features(entities, ["stats:trips"])
        job.persist(SavedDatasetFileStorage(str(folder / "set.parquet")))
        sets.append((folder / "set.parquet").read_bytes())
    assert sets[0] == sets[1]


def test_a_saved_dataset_is_kept_and_read_back(store: FeatureStore, tmp_path: Path) -> None:
    for place in ("set.parquet", "folder"):
        storage = SavedDatasetFileStorage(str(tmp_path / place))
        job = store.get_historical_features(asked("a", "b", "d"), ["stats:trips"])
        kept = store.create_saved_dataset(job, name=place.split(".")[0], storage=storage)
        again = store.get_saved_dataset(kept.name).to_df().sort_values("driver")
        assert again["trips"].tolist() == [2.0, 4.0, 7.0]
        with pytest.raises(SavedDatasetLocationAlreadyExists):
            job.persist(storage)
        job.persist(storage, allow_overwrite=True)


@pytest.mark.parametrize("latest", [True, False])
def test_materialize_writes_what_was_known_at_the_end(session: SparkSession, tmp_path: Path, latest: bool) -> None:
    rows = [entry for entry in STATS if latest or entry["driver"]]  # Feast's own de-duplication cannot store a null key
    view = stats(tmp_path, rows, ttl=WEEK)
    store = feast_store(tmp_path, driver(), view, materialization={"pull_latest_features": latest})

    def online() -> list[float | None]:
        rows = [{"driver": name} for name in "abcde"]
        return list(store.get_online_features(["stats:trips"], rows).to_dict()["trips"])

    store.materialize(T - WEEK, T)
    assert online() == [2.0, 4.0, 5.0, 7.0, None]
    if latest:  # row 59 (feast#4133): b's late row has an older event than the window, and still arrives
        store.materialize(T + HOUR / 2, T + HOUR)
        assert online() == [2.0, 3.0, 5.0, 7.0, 9.0]


def test_who_reads_online_loads_neither_spark_nor_dask(tmp_path: Path) -> None:
    code = (
        "import sys; from feature_repo.definitions import apply, feature_store;"
        f"apply({str(tmp_path)!r}, 'file:///none'); feature_store({str(tmp_path)!r}, 'file:///none').get_feature_view('carrier');"
        "print(sorted({'pyspark', 'dask', 'torch'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def view_day(value: float) -> dict[str, pa.Table]:
    return make.view_day({"carrier": [("UA", T - HOUR, dt.timedelta(0), value)], "origin": [("JFK", T, HOUR, value)]})


def test_views_are_read_by_their_manifests_alone(session: SparkSession, tmp_path: Path) -> None:
    """Design 3.4: an attempt that was replaced, or never finished, lies beside the live one and is not read."""
    views, online = make.folder_uri(tmp_path, "views"), str(tmp_path / "online")
    apply(online, views)
    store = feature_store(online, views)
    entities = pd.DataFrame({"carrier": ["UA", "ZZ"], "origin": ["JFK"] * 2, "event_timestamp": pd.Series([T] * 2)})
    features = ["carrier:late_share_3h", "origin:late_share_3h"]
    with pytest.raises(DataFault, match=r"views: nothing has been published here; run feature_repo\.build first"):
        ask(store, entities, *features, full=True)
    for value in (1.0, 2.0):
        make.publish_tables(join(views, "2013-06-03"), "view-day", view_day(value))
    shutil.copytree(
        next((tmp_path / "views" / "2013-06-03").glob("attempt-*")), tmp_path / "views" / "2013-06-04" / "half"
    )
    assert len(list((tmp_path / "views").glob("*/*/carrier.parquet"))) == 3
    found = ask(store, entities, *features, full=True)
    assert values(found, "carrier__late_share_3h") == [2.0, None]
    assert values(found, "origin__late_share_3h") == [None, None]  # known an hour after T
    for file in (tmp_path / "views" / "2013-06-03").glob("attempt-*/carrier.parquet"):
        file.write_bytes(b"altered")
    with pytest.raises(ArtifactCorrupt, match=r"carrier.parquet' is missing or differs from the manifest"):
        ask(store, entities, *features, full=True)
