from __future__ import annotations

import datetime as dt
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from artifacts.refs import join
from artifacts.settings import ROOT, Settings
from artifacts.step import EXIT_BAD_DATA, DataFault, failure_of, step
from artifacts.store import write_bytes
from feature_repo.catalogue import FEATURES
from feature_repo.contract import MaterializeSpec
from feature_repo.definitions import apply, feature_store, objects, online_config, registry_path
from feature_repo.materialize import Materializer, materialize
from feature_repo.online import OnlineFeatures, OnlineReader
from tests.make import expectations as make
from tests.make.expectations import HOUR, MINUTE

START = dt.datetime(2013, 1, 8, 12, tzinfo=dt.UTC)
NONE = dt.timedelta(0)
TTL = dt.timedelta(days=7)
TICK = dt.timedelta(microseconds=1)

Rows = dict[str, list[tuple[str, dt.datetime, dt.timedelta, float | None]]]


class Store:
    """One online store and the views that feed it, in a folder of the test."""

    def __init__(self, folder: Path) -> None:
        self.online = str(folder / "online")
        self.views = make.folder_uri(folder, "views")

    def publish(self, rows: Rows, day: dt.date = make.DAY) -> None:
        make.publish_tables(join(self.views, str(day)), "view-day", make.view_day(rows))

    def open(self) -> Materializer:
        return Materializer(make.CALENDAR, self.views, self.online)

    def read(self, now: dt.datetime, carrier: str | None = "UA", ttl: dt.timedelta = TTL) -> OnlineFeatures:
        return OnlineReader(self.online, self.views).read(["carrier"], {"carrier": [carrier]}, now, ttl)

    def value(self, now: dt.datetime, carrier: str = "UA") -> tuple[float | None, str, float | None]:
        found = self.read(now, carrier)
        return found.columns["carrier__late_share_3h"][0], found.status["carrier"][0], found.age_seconds["carrier"][0]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


def hourly(values: list[float | None]) -> Rows:
    """UA's rows at 12:00, 13:00 and so on, known at once."""
    return {"carrier": [("UA", START + number * HOUR, NONE, value) for number, value in enumerate(values)]}


def test_what_was_written_is_read_back(store: Store) -> None:
    rows: Rows = {
        "carrier": [("UA", START, NONE, 0.25), ("AA", START, NONE, None)],
        "origin": [("EWR", START, NONE, 1e-9)],
        "weather": [("EWR", START, 20 * MINUTE, 39.02), ("JFK", START, 20 * MINUTE, 1 / 3)],
        "congestion": [("EWR", START, NONE, 12345678.0)],
    }
    store.publish(rows)
    assert store.open().write(START, START + HOUR).rows == {"carrier": 2, "origin": 1, "weather": 2, "congestion": 1}
    found = OnlineReader(store.online, store.views).read(
        "flight_delay",
        {"carrier": ["UA", "AA", "ZZ", None, "UA"], "origin": ["EWR", "JFK", "EWR", "EWR", None]},
        START + HOUR,
        TTL,
    )
    expected = {
        "carrier": [0.25, None, None, None, 0.25],
        "origin": [1e-9, None, 1e-9, 1e-9, None],
        "weather": [39.02, 1 / 3, 39.02, 39.02, None],
        "congestion": [12345678.0, None, 12345678.0, 12345678.0, None],
    }
    assert found.columns == {f"{v}__{f}": expected[v] for v, features in FEATURES.items() for f in features}
    assert found.status["carrier"] == ["present", "present", "absent", "absent", "present"]
    assert found.age_seconds["carrier"] == [3600.0, 3600.0, None, None, 3600.0]
    assert found.status["origin"] == ["present", "absent", "present", "present", "absent"]


def test_a_window_is_half_open_on_available_time(store: Store) -> None:
    store.publish({"weather": [("EWR", START, 20 * MINUTE, 1.0)], "carrier": [("UA", START + HOUR, NONE, 2.0)]})
    writer = store.open()
    known = START + 20 * MINUTE
    assert writer.write(START, known).rows == {"carrier": 0, "origin": 0, "weather": 0, "congestion": 0}
    assert writer.write(known, known + TICK).rows["weather"] == 1
    assert writer.write(known, START + HOUR).rows["carrier"] == 0
    assert writer.write(START + HOUR, START + 2 * HOUR).rows["carrier"] == 1


def test_the_newest_event_of_a_window_wins(store: Store) -> None:
    store.publish({"carrier": [*hourly([1.0, 2.0])["carrier"], ("UA", START - HOUR, 2 * HOUR, 9.0)]})
    assert store.open().write(START, START + 2 * HOUR).rows["carrier"] == 1
    assert store.value(START + HOUR) == (2.0, "present", 0.0)


def test_an_older_event_never_overwrites_a_newer_one(store: Store) -> None:
    store.publish(hourly([1.0, 2.0, 3.0]))
    writer = store.open()
    writer.write(START + 2 * HOUR, START + 3 * HOUR)
    assert writer.write(START, START + HOUR).rows["carrier"] == 0  # out of order
    assert store.value(START + 2 * HOUR) == (3.0, "present", 0.0)
    store.publish({"carrier": [("UA", START + HOUR, 3 * HOUR, 8.0)]})  # a late fact about an older hour
    assert store.open().write(START + 4 * HOUR, START + 5 * HOUR).rows["carrier"] == 0
    assert store.value(START + 2 * HOUR) == (3.0, "present", 0.0)


def test_repeating_a_window_changes_nothing(store: Store) -> None:
    store.publish(hourly([1.0, 2.0]))
    writer = store.open()
    for _ in range(2):
        writer.write(START, START + 2 * HOUR)
        assert store.value(START + HOUR) == (2.0, "present", 0.0)


def test_a_day_that_is_built_again_is_read_again(store: Store) -> None:
    store.publish(hourly([1.0]))
    writer = store.open()
    writer.write(START, START + HOUR)
    store.publish(hourly([1.0, 2.0]))
    assert writer.write(START + HOUR, START + 2 * HOUR).rows["carrier"] == 1


def test_the_ttl_is_kept_on_the_data_clock_not_the_walls(store: Store) -> None:
    store.publish(hourly([0.5]))
    store.open().write(START, START + HOUR)
    assert store.value(START + TTL - TICK)[:2] == (0.5, "present")
    assert store.value(START + TTL) == (None, "expired", None)
    assert store.value(START) == (0.5, "present", 0.0)
    assert store.value(START - TICK) == (None, "ahead", None)


def test_a_service_day_boundary_lies_within_a_window(store: Store) -> None:
    midnight = make.CALENDAR.ends(make.DAY)
    store.publish({"carrier": [("UA", midnight, NONE, 1.0)]})
    store.publish({"carrier": [("UA", midnight + HOUR, NONE, 2.0)]}, make.DAY + dt.timedelta(days=1))
    assert store.open().write(midnight, midnight + 2 * HOUR).rows["carrier"] == 1
    assert store.value(midnight + HOUR) == (2.0, "present", 0.0)


def test_a_reader_may_start_before_anything_was_written(store: Store) -> None:
    reader = OnlineReader(store.online, store.views)
    assert reader.read(["carrier"], {"carrier": ["UA"]}, START, TTL).status == {"carrier": ["absent"]}
    store.publish(hourly([0.5]))
    store.open().write(START, START + HOUR)
    assert reader.read(["carrier"], {"carrier": ["UA"]}, START, TTL).status == {"carrier": ["present"]}


@pytest.mark.parametrize(
    ("views", "rows", "now", "fault"),
    [
        (["carier"], {"carrier": ["UA"]}, START, "no such views: .'carier'."),
        ([], {"carrier": ["UA"]}, START, "no such views"),
        (["carrier"], {"origin": ["EWR"]}, START, "lack the columns .'carrier'."),
        (["carrier", "origin"], {"carrier": ["UA"], "origin": ["EWR", "JFK"]}, START, "differ in length"),
        (["carrier"], {"carrier": ["UA"] * 257}, START, "ask for 1 to 256"),
        (["carrier"], {"carrier": []}, START, "ask for 1 to 256"),
        (["carrier"], {"carrier": ["UA"]}, START.replace(tzinfo=None), "no time zone"),
    ],
)
def test_a_wrong_question_is_refused(store: Store, views: Any, rows: Any, now: dt.datetime, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        OnlineReader(store.online, store.views).read(views, rows, now, TTL)


def test_a_long_window_without_rows_is_an_alarm(store: Store) -> None:
    for number in range(3):
        store.publish({"carrier": []}, make.DAY + dt.timedelta(days=number))
    writer = store.open()
    assert sum(writer.write(START, START + 24 * HOUR).rows.values()) == 0  # a day may be quiet
    with pytest.raises(
        DataFault, match=r"no row of any view became available in .2013-01-08T12:00Z, 2013-01-09T13:00Z"
    ):
        writer.write(START, START + 25 * HOUR)
    store.publish(hourly([1.0]))
    assert writer.write(START, START + 25 * HOUR).alarms == (
        "origin: no row became available in [2013-01-08T12:00Z, 2013-01-09T13:00Z)",
        "weather: no row became available in [2013-01-08T12:00Z, 2013-01-09T13:00Z)",
        "congestion: no row became available in [2013-01-08T12:00Z, 2013-01-09T13:00Z)",
    )


def test_the_step_tells_what_is_wrong_with_the_views(store: Store, tmp_path: Path) -> None:
    spec = MaterializeSpec(
        calendar=make.CALENDAR, views=store.views, online=store.online, start=START, end=START + HOUR
    )
    spec_uri, result_uri = (make.folder_uri(tmp_path, "run", name) for name in ("spec.json", "result.json"))
    write_bytes(spec_uri, spec.model_dump_json().encode())

    def reason() -> str:
        assert step(materialize, MaterializeSpec, [spec_uri, result_uri]) == EXIT_BAD_DATA
        failure = failure_of(result_uri)
        assert failure is not None
        return failure.reason

    assert reason() == f"{store.views}/2013-01-08: nothing has been published for this day; build its hours first"
    tables = make.view_day(hourly([1.0]))
    carrier = tables["carrier"].drop_columns(["departures_1d"])
    tables["carrier"] = make.change(carrier, "late_share_1d", pa.array(["high"]))
    make.publish_tables(join(store.views, str(make.DAY)), "view-day", tables)
    assert reason() == (
        "carrier.parquet: column 'departures_1d' is missing\n"
        "carrier.parquet: column 'late_share_1d' is string, not double"
    )
    with pytest.raises(DataFault, match="does not lie before"):
        store.open().write(START, START)


def test_applying_the_same_definitions_again_does_nothing(store: Store) -> None:
    assert apply(store.online, store.views)
    registry = Path(registry_path(store.online, store.views))
    before = registry.read_bytes()
    assert not apply(store.online, store.views)
    assert registry.read_bytes() == before
    code = f"from feature_repo.definitions import apply; print(apply({store.online!r}, {store.views!r}))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_the_registry_holds_what_the_catalogue_names(store: Store) -> None:
    apply(store.online, store.views)
    registered = feature_store(store.online, store.views)
    for view, features in FEATURES.items():
        found = registered.get_feature_view(view)
        assert tuple(field.name for field in found.features) == features
        assert (found.ttl, found.owner != "", found.description != "") == (TTL, True, True)
    service = registered.get_feature_service("flight_delay")
    assert [projection.name for projection in service.feature_view_projections] == list(FEATURES)
    assert len(objects(store.views)) == 7


def test_the_words_for_the_online_store() -> None:
    assert online_config("/state/online") == {"type": "sqlite", "path": "/state/online/online.db"}
    assert online_config("redis://cache") == {"type": "redis", "connection_string": "cache:6379"}
    assert online_config("rediss://ann:secret@cache:7000/2") == {
        "type": "redis",
        "connection_string": "cache:7000,username=ann,password=secret,db=2,ssl=true",
    }
    with pytest.raises(ValueError, match="neither a folder nor a redis"):
        online_config("http://cache")


def test_feasts_own_configuration_names_the_same_store(tmp_path: Path) -> None:
    from feast.repo_config import load_repo_config

    folder = ROOT / "feature_repo"
    written = load_repo_config(folder, folder / "feature_store.yaml")
    default = str(Settings(_env_file=None, state=ROOT / "var").online)
    ours = feature_store(default, make.folder_uri(tmp_path, "views")).config
    assert (written.project, written.entity_key_serialization_version) == (
        ours.project,
        ours.entity_key_serialization_version,
    )
    assert (folder / written.online_store.path).resolve() == Path(ours.online_store.path)
    assert (folder / written.registry.path).resolve() == Path(ours.registry.path)


def test_feast_apply_is_refused() -> None:
    from feast.repo_operations import get_repo_files

    (left,) = get_repo_files(ROOT / "feature_repo")
    with pytest.raises(RuntimeError, match="applied from code"):
        runpy.run_path(str(left))


def test_neither_writer_nor_reader_loads_spark() -> None:
    code = (
        "import sys, feature_repo.materialize, feature_repo.online, feature_repo.definitions;"
        "print(sorted({'pyspark', 'great_expectations', 'torch', 'airflow'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
