from __future__ import annotations

import contextlib
import dataclasses
import datetime as dt
import runpy
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from artifacts.refs import join
from artifacts.settings import ROOT, Settings
from artifacts.step import EXIT_BAD_DATA, EXIT_BAD_SPEC, EXIT_TRY_AGAIN, DataFault, failure_of, step
from artifacts.store import write_bytes
from feature_repo import materialize as materialization
from feature_repo import online as reading
from feature_repo.catalogue import ENTITY_KEYS, FEATURES, VIEWS
from feature_repo.contract import MaterializeSpec
from feature_repo.definitions import PROJECT, apply, feature_store, objects, online_config, registry_path
from feature_repo.materialize import Materializer, materialize
from feature_repo.online import OnlineFeatures, OnlineReader
from feature_repo.online_server import OnlineUnavailable
from tests.make import expectations as make
from tests.make.expectations import HOUR, MINUTE
from tests.make.redis_server import redis_server

START = dt.datetime(2013, 1, 8, 12, tzinfo=dt.UTC)
NONE = dt.timedelta(0)
TTL = dt.timedelta(days=7)
TICK = dt.timedelta(microseconds=1)

Rows = dict[str, list[tuple[Any, dt.datetime, dt.timedelta, float | None]]]


class Store:
    """One online store and the views that feed it, in a folder of the test."""

    def __init__(self, folder: Path, online: str | None = None) -> None:
        self.online = online or str(folder / "online")
        self.views = make.folder_uri(folder, "views")

    def publish(self, rows: Rows, day: dt.date = make.DAY) -> None:
        make.publish_tables(join(self.views, str(day)), "view-day", make.view_day(rows))

    def open(self) -> Materializer:
        return Materializer(make.CALENDAR, self.views, self.online)

    def reader(self) -> OnlineReader:
        return OnlineReader(self.online, seconds=5)  # a busy machine is no reason to call a store away

    def read(self, now: dt.datetime, carrier: str | None = "UA") -> OnlineFeatures:
        return self.reader().read(["carrier"], {"carrier": [carrier]}, now)

    def value(self, now: dt.datetime, carrier: str = "UA") -> tuple[float | None, str, float | None]:
        found = self.read(now, carrier)
        return found.columns["carrier__late_share_3h"][0], found.status["carrier"][0], found.age_seconds["carrier"][0]


@pytest.fixture(params=["sqlite", "redis"])
def store(tmp_path: Path, request: pytest.FixtureRequest) -> Store:
    """The same behaviour is asked of both stores."""
    return Store(tmp_path, request.getfixturevalue("redis").url if request.param == "redis" else None)


@pytest.fixture
def embedded(tmp_path: Path) -> Store:
    return Store(tmp_path)


def none_but(**rows: int) -> dict[str, int]:
    return dict.fromkeys(FEATURES, 0) | rows


def hourly(values: list[float | None]) -> Rows:
    """UA's rows at 12:00, 13:00 and so on, known at once."""
    return {"carrier": [("UA", START + number * HOUR, NONE, value) for number, value in enumerate(values)]}


def test_what_was_written_is_read_back(store: Store) -> None:
    rows: Rows = {
        "carrier": [("UA", START, NONE, 0.25), ("AA", START, NONE, None)],
        "origin": [("EWR", START, NONE, 1e-9)],
        "destination": [("BOS", START, NONE, 0.1)],
        "route": [(("EWR", "BOS"), START, NONE, 2.0), (("JFK", "BOS"), START, NONE, 3.0)],
        "flight_number": [(("UA", 15), START, NONE, 4.0), (("UA", 2**40), START, NONE, 5.0)],
        "weather": [("EWR", START, 20 * MINUTE, 39.02), ("JFK", START, 20 * MINUTE, 1 / 3)],
        "congestion": [("EWR", START, NONE, 12345678.0)],
    }
    store.publish(rows)
    assert store.open().write(START, START + HOUR).rows == {view: len(found) for view, found in rows.items()}
    asked: dict[str, list[str | int | None]] = {
        "carrier": ["UA", "AA", "ZZ", None, "UA"],
        "origin": ["EWR", "JFK", "EWR", "EWR", None],
        "dest": ["BOS", "BOS", "EWR", None, "BOS"],
        "flight": [15, 15, 15, 15, 2**40],
    }
    found = store.reader().read("flight_delay", asked, START + HOUR)
    expected = {
        "carrier": [0.25, None, None, None, 0.25],
        "origin": [1e-9, None, 1e-9, 1e-9, None],
        "destination": [0.1, 0.1, None, None, 0.1],
        "route": [2.0, 3.0, None, None, None],
        "flight_number": [4.0, None, None, None, 5.0],
        "weather": [39.02, 1 / 3, 39.02, 39.02, None],
        "congestion": [12345678.0, None, 12345678.0, 12345678.0, None],
    }
    assert found.columns == {f"{v}__{f}": expected[v] for v, features in FEATURES.items() for f in features}
    assert found.status["carrier"] == ["present", "present", "absent", "absent", "present"]
    assert found.age_seconds["carrier"] == [3600.0, 3600.0, None, None, 3600.0]
    assert found.status["origin"] == ["present", "absent", "present", "present", "absent"]
    assert found.status["route"] == ["present", "present", "absent", "absent", "absent"]
    assert found.status["flight_number"] == ["present", "absent", "absent", "absent", "present"]


def test_feasts_own_reader_finds_the_same_values(store: Store) -> None:
    store.publish({"carrier": hourly([0.25])["carrier"], "flight_number": [(("UA", 15), START, NONE, None)]})
    store.open().write(START, START + HOUR)
    names = [f"{view}:{feature}" for view in ("carrier", "flight_number") for feature in FEATURES[view]]
    feast = feature_store(store.online, store.views).get_online_features(
        names, [{"carrier": "UA", "flight": 15}], full_feature_names=True
    )
    ours = store.reader().read(["carrier", "flight_number"], {"carrier": ["UA"], "flight": [15]}, START)
    values = feast.to_dict()
    assert {name: values[name] for name in ours.columns} == ours.columns
    assert ours.columns["carrier__late_share_3h"] == [0.25]


@pytest.mark.covers("decisions 3.11")
def test_a_window_is_half_open_on_available_time(store: Store) -> None:
    store.publish({"weather": [("EWR", START, 20 * MINUTE, 1.0)], "carrier": [("UA", START + HOUR, NONE, 2.0)]})
    writer = store.open()
    known = START + 20 * MINUTE
    assert writer.write(START, known).rows == none_but()
    assert writer.write(known, known + TICK).rows["weather"] == 1
    assert writer.write(known, START + HOUR).rows["carrier"] == 0
    assert writer.write(START + HOUR, START + 2 * HOUR).rows["carrier"] == 1


def test_the_newest_event_of_a_window_wins(store: Store) -> None:
    store.publish({"carrier": [*hourly([1.0, 2.0])["carrier"], ("UA", START - HOUR, 2 * HOUR, 9.0)]})
    assert store.open().write(START, START + 2 * HOUR).rows["carrier"] == 1
    assert store.value(START + HOUR) == (2.0, "present", 0.0)


@pytest.mark.covers("decisions 3.11")
def test_an_older_event_never_overwrites_a_newer_one(store: Store) -> None:
    store.publish(hourly([1.0, 2.0, 3.0]))
    writer = store.open()
    writer.write(START + 2 * HOUR, START + 3 * HOUR)
    assert writer.write(START, START + HOUR).rows["carrier"] == 0  # out of order
    assert store.value(START + 2 * HOUR) == (3.0, "present", 0.0)
    store.publish({"carrier": [("UA", START + HOUR, 3 * HOUR, 8.0)]})  # a late fact about an older hour
    assert store.open().write(START + 4 * HOUR, START + 5 * HOUR).rows["carrier"] == 0
    assert store.value(START + 2 * HOUR) == (3.0, "present", 0.0)


def test_a_restated_event_wins_and_its_older_version_never_comes_back(store: Store) -> None:
    store.publish({"carrier": [("UA", START, NONE, 1.0), ("UA", START, 2 * HOUR, 7.0)]})
    writer = store.open()
    assert writer.write(START, START + HOUR).rows["carrier"] == 1
    assert writer.write(START + 2 * HOUR, START + 3 * HOUR).rows["carrier"] == 1  # the same event, known better
    assert store.value(START + 2 * HOUR) == (7.0, "present", 7200.0)
    assert writer.write(START, START + HOUR).rows["carrier"] == 0  # the earlier window again
    assert store.value(START + 2 * HOUR) == (7.0, "present", 7200.0)


@pytest.mark.covers("field-reports 59")
def test_a_late_fact_of_an_earlier_day_reaches_the_store(store: Store) -> None:
    """Field report 59: Feast's windows go by event time, and a late fact never arrives."""
    late = make.CALENDAR.lateness - HOUR
    end_of_day = make.CALENDAR.ends(make.DAY)
    store.publish({"carrier": [("UA", end_of_day, late, 4.0)]})
    store.publish({"origin": [("EWR", end_of_day + HOUR, NONE, 1.0)]}, make.DAY + dt.timedelta(days=1))
    known = end_of_day + late
    assert store.open().write(known, known + HOUR).rows["carrier"] == 1
    assert store.value(known) == (4.0, "present", late.total_seconds())


def test_a_row_waits_for_its_views_delay_as_in_the_join(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = {**VIEWS, "carrier": dataclasses.replace(VIEWS["carrier"], delay=2 * HOUR)}
    monkeypatch.setattr(materialization, "VIEWS", slow)
    monkeypatch.setattr(materialization, "LONGEST_DELAY", 2 * HOUR)
    store.publish({"carrier": [("UA", START, NONE, 1.0), ("UA", START + HOUR, 90 * MINUTE, 2.0)]})
    writer = store.open()
    assert writer.write(START, START + 2 * HOUR).rows == none_but()
    assert writer.write(START + 2 * HOUR, START + 3 * HOUR).rows == none_but(carrier=1)
    assert store.value(START + 2 * HOUR) == (1.0, "present", 7200.0)
    assert writer.write(START + 3 * HOUR, START + 4 * HOUR).rows == none_but(carrier=1)
    assert store.value(START + 3 * HOUR) == (2.0, "present", 7200.0)


def test_repeating_a_window_changes_nothing(store: Store) -> None:
    store.publish(hourly([1.0, 2.0]))
    writer = store.open()
    assert [writer.write(START, START + 2 * HOUR).rows["carrier"] for _ in range(2)] == [1, 0]
    assert store.value(START + HOUR) == (2.0, "present", 0.0)


def test_a_row_that_a_late_record_has_changed_is_written_anew(store: Store) -> None:
    """Its clocks are those of its hour, long past; only looking back finds it."""
    rows: list[Any] = [("UA", START, NONE, 1.0), ("AA", START, NONE, 1.0)]
    store.publish({"carrier": rows})
    writer = store.open()
    writer.write(START, START + HOUR)
    store.publish({"carrier": [*rows[1:], ("UA", START, NONE, 1.5), ("UA", START - 2 * HOUR, NONE, 9.0)]})
    assert writer.write(START + HOUR, START + 2 * HOUR).rows["carrier"] == 0
    assert writer.write(START + HOUR, START + 2 * HOUR, lookback=HOUR).rows["carrier"] == 1
    assert [store.value(START, carrier)[0] for carrier in ("UA", "AA")] == [1.5, 1.0]
    days = dt.timedelta(days=3)  # the days that a look back reaches need not have been built
    assert writer.write(START + HOUR, START + 2 * HOUR, lookback=days).rows["carrier"] == 0


def test_a_row_that_a_new_build_no_longer_has_gives_way(store: Store) -> None:
    rows: list[Any] = [("UA", START, NONE, 1.0), ("UA", START + HOUR, NONE, 2.0)]
    store.publish({"carrier": rows})
    writer = store.open()
    writer.write(START, START + 2 * HOUR)
    store.publish({"carrier": rows[:1]})
    assert writer.write(START + 2 * HOUR, START + 3 * HOUR, lookback=2 * HOUR).rows["carrier"] == 1
    assert store.value(START + HOUR) == (1.0, "present", 3600.0)
    assert writer.write(START + 2 * HOUR, START + 3 * HOUR, lookback=2 * HOUR).rows["carrier"] == 0


def test_a_store_that_was_lost_is_filled_again(store: Store, tmp_path: Path) -> None:
    """The next hourly window brings back what has not expired, also of days that lie before its look back."""
    days = dt.timedelta(days=5)
    store.publish({"carrier": [("AA", START, NONE, 1.0)], "weather": [("EWR", START, NONE, 2.0)]})
    store.publish({"carrier": [("UA", START + days, NONE, 3.0)]}, make.DAY + days)
    writer, later = store.open(), START + days
    assert writer.write(later, later + HOUR, lookback=HOUR).rows == none_but(carrier=2, weather=1)
    assert store.value(later, "AA") == (1.0, "present", days.total_seconds())
    lost = Store(tmp_path, str(tmp_path / "another"))  # holds nothing, as the first one did
    assert lost.open().write(later, later + HOUR, lookback=HOUR).rows == none_but(carrier=2, weather=1)
    assert lost.open().write(later, later + HOUR, lookback=HOUR).rows == none_but()


def test_a_day_that_is_built_again_is_read_again(store: Store) -> None:
    store.publish(hourly([1.0]))
    writer = store.open()
    writer.write(START, START + HOUR)
    store.publish(hourly([1.0, 2.0]))
    assert writer.write(START + HOUR, START + 2 * HOUR).rows["carrier"] == 1


@pytest.mark.covers("field-reports 58", "decisions 3.10")
def test_the_ttl_is_kept_on_the_data_clock_not_the_walls(store: Store) -> None:
    """Field report 58: Feast serves expired values as if they were present."""
    store.publish(hourly([0.5]))
    store.open().write(START, START + HOUR)
    assert store.value(START + TTL - TICK)[:2] == (0.5, "present")
    assert store.value(START + TTL) == (None, "expired", None)
    assert store.value(START) == (0.5, "present", 0.0)
    assert store.value(START - TICK) == (None, "ahead", None)


@pytest.mark.covers("decisions 3.12")
def test_each_view_has_the_ttl_of_the_catalogue(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    short = {**VIEWS, "weather": dataclasses.replace(VIEWS["weather"], ttl=3 * HOUR)}
    monkeypatch.setattr(reading, "VIEWS", short)
    store.publish({"weather": [("EWR", START, NONE, 1.0)], "congestion": [("EWR", START, NONE, 2.0)]})
    store.open().write(START, START + HOUR)
    found = store.reader().read(["weather", "congestion"], {"origin": ["EWR"]}, START + 3 * HOUR)
    assert found.status == {"weather": ["expired"], "congestion": ["present"]}
    assert (found.columns["weather__temp"], found.columns["congestion__known_late_last_3h"]) == ([None], [2.0])


@pytest.mark.parametrize(("writes", "reads"), [("America/New_York", "UTC"), ("UTC", "Asia/Tokyo")])
def test_no_process_zone_moves_a_time(store: Store, monkeypatch: pytest.MonkeyPatch, writes: str, reads: str) -> None:
    """Field report 61: windows and stored times shifted by the local zone; Feast's SQLite keeps them in it."""
    monkeypatch.setenv("TZ", writes)
    time.tzset()
    try:
        store.publish(hourly([0.5]))
        store.publish({}, make.DAY + dt.timedelta(days=1))
        assert "[2013-01-08T12:00Z, " in store.open().write(START, START + 25 * HOUR).alarms[0]
        monkeypatch.setenv("TZ", reads)
        time.tzset()
        assert store.value(START + HOUR) == (0.5, "present", 3600.0)
    finally:
        monkeypatch.undo()
        time.tzset()


def test_a_service_day_boundary_lies_within_a_window(store: Store) -> None:
    midnight = make.CALENDAR.ends(make.DAY)
    store.publish({"carrier": [("UA", midnight, NONE, 1.0)]})
    store.publish({"carrier": [("UA", midnight + HOUR, NONE, 2.0)]}, make.DAY + dt.timedelta(days=1))
    assert store.open().write(midnight, midnight + 2 * HOUR).rows["carrier"] == 1
    assert store.value(midnight + HOUR) == (2.0, "present", 0.0)


def test_of_a_long_window_only_what_still_lives_is_read(embedded: Store) -> None:
    days = [make.DAY + number * dt.timedelta(days=1) for number in range(9)]
    for number, day in enumerate(days):
        embedded.publish({"carrier": [("UA", START + number * dt.timedelta(days=1), NONE, float(number))]}, day)
    end = START + 8 * dt.timedelta(days=1) + HOUR
    assert embedded.open().write(START - 90 * dt.timedelta(days=1), end).rows["carrier"] == 1  # no older day is missed
    assert embedded.value(end) == (8.0, "present", 3600.0)


def test_a_reader_may_start_before_anything_was_written(store: Store) -> None:
    reader = store.reader()
    assert reader.read(["carrier"], {"carrier": ["UA"]}, START).status == {"carrier": ["absent"]}
    store.publish(hourly([0.5]))
    store.open().write(START, START + HOUR)
    assert reader.read(["carrier"], {"carrier": ["UA"]}, START).status == {"carrier": ["present"]}


def test_another_process_reads_what_a_killed_one_wrote(store: Store) -> None:
    store.publish(hourly([0.5]))
    code = (
        "import os, signal, datetime as dt; from feature_repo.materialize import Materializer;"
        "from tests.make import expectations as make;"
        f"start = dt.datetime.fromisoformat('{START.isoformat()}');"
        f"Materializer(make.CALENDAR, {store.views!r}, {store.online!r}).write(start, start + make.HOUR);"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert store.value(START + HOUR) == (0.5, "present", 3600.0)


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
        (["carrier"], {"carrier": [1]}, START, "the key 'carrier' is string, got 1"),
        (["flight_number"], {"carrier": ["UA"], "flight": ["15"]}, START, "the key 'flight' is int64, got '15'"),
    ],
)
def test_a_wrong_question_is_refused(store: Store, views: Any, rows: Any, now: dt.datetime, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        store.reader().read(views, rows, now)


@pytest.mark.covers("decisions 3.11")
def test_a_window_without_rows_is_an_alarm(store: Store) -> None:
    for number in range(3):
        store.publish({"carrier": []}, make.DAY + dt.timedelta(days=number))
    writer = store.open()
    assert writer.write(START, START + 59 * MINUTE).alarms == ()  # the replay's windows are this short
    quiet = writer.write(START, START + HOUR)
    assert quiet.alarms == ("no row of any view became available in [2013-01-08T12:00Z, 2013-01-08T13:00Z)",)
    with pytest.raises(
        DataFault, match=r"no row of any view became available in .2013-01-08T12:00Z, 2013-01-09T13:00Z"
    ):
        writer.write(START, START + 25 * HOUR)
    store.publish(hourly([1.0]))
    assert writer.write(START, START + HOUR).alarms == ()
    assert writer.write(START, START + 25 * HOUR).alarms == tuple(
        f"{view}: no row became available in [2013-01-08T12:00Z, 2013-01-09T13:00Z)"
        for view in FEATURES
        if view != "carrier"
    )


def test_rows_that_are_only_looked_at_again_silence_no_alarm(embedded: Store) -> None:
    embedded.publish(hourly([1.0]))
    for number in range(1, 3):
        embedded.publish({}, make.DAY + number * dt.timedelta(days=1))
    writer, days = embedded.open(), dt.timedelta(days=2)
    quiet = writer.write(START + HOUR, START + 2 * HOUR, lookback=days)
    assert quiet.rows == none_but(carrier=1)
    assert quiet.alarms == ("no row of any view became available in [2013-01-08T13:00Z, 2013-01-08T14:00Z)",)
    with pytest.raises(DataFault, match="no row of any view became available"):
        writer.write(START + HOUR, START + 27 * HOUR, lookback=days)


def test_the_step_tells_what_is_wrong_with_the_views(embedded: Store, tmp_path: Path) -> None:
    spec = MaterializeSpec(
        calendar=make.CALENDAR, views=embedded.views, online=embedded.online, start=START, end=START + HOUR
    )
    spec_uri, result_uri = (make.folder_uri(tmp_path, "run", name) for name in ("spec.json", "result.json"))
    write_bytes(spec_uri, spec.model_dump_json().encode())

    def reason() -> str:
        assert step(materialize, MaterializeSpec, [spec_uri, result_uri]) == EXIT_BAD_DATA
        failure = failure_of(result_uri)
        assert failure is not None
        return failure.reason

    assert reason() == f"{embedded.views}/2013-01-08: nothing has been published for this day; build its hours first"
    tables = make.view_day(hourly([1.0]))
    carrier = tables["carrier"].drop_columns(["departures_1d"])
    tables["carrier"] = make.change(carrier, "late_share_1d", pa.array(["high"]))
    make.publish_tables(join(embedded.views, str(make.DAY)), "view-day", tables)
    place = f"{embedded.views}/2013-01-08/carrier.parquet"
    assert reason() == (
        f"{place}: departures_1d: column is missing; the table has {tables['carrier'].column_names}\n"
        f"{place}: late_share_1d: type is string, it must be double"
    )
    tables = make.view_day({"flight_number": [(("UA", None), START, NONE, 1.0)]})
    make.publish_tables(join(embedded.views, str(make.DAY)), "view-day", tables)
    assert "flight_number.parquet: flight: null in 1 rows" in reason()
    with pytest.raises(DataFault, match="does not lie before"):
        embedded.open().write(START, START)


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
        assert (found.ttl, found.owner != "", found.description != "") == (VIEWS[view].ttl, True, True)
        assert tuple(found.join_keys) == ENTITY_KEYS[view]
    service = registered.get_feature_service("flight_delay")
    assert [projection.name for projection in service.feature_view_projections] == list(FEATURES)
    keys = {key for names in ENTITY_KEYS.values() for key in names}
    assert len(objects(store.views)) == len(FEATURES) + len(keys) + 1


@pytest.mark.covers("field-reports 63")
def test_writers_wait_for_each_other_and_nothing_is_lost(store: Store) -> None:
    """Field report 63: Feast's file registry has no locking, and concurrent writers lose each other's updates."""
    hours = 2
    store.publish({"carrier": [(f"C{n}", START + n * HOUR, NONE, float(n)) for n in range(hours)]})
    code = (
        "import sys, datetime as dt; from feature_repo.materialize import Materializer;"
        "from tests.make import expectations as make;"
        f"start = dt.datetime.fromisoformat('{START.isoformat()}') + int(sys.argv[1]) * make.HOUR;"
        f"Materializer(make.CALENDAR, {store.views!r}, {store.online!r}).write(start, start + make.HOUR)"
    )
    running = [
        subprocess.Popen([sys.executable, "-c", code, str(n)], cwd=ROOT, stderr=subprocess.PIPE) for n in range(hours)
    ]
    assert [(one.communicate()[1], one.returncode)[1] for one in running] == [0] * hours
    now = START + hours * HOUR
    assert [store.value(now, f"C{n}")[0] for n in range(hours)] == [float(n) for n in range(hours)]
    registered = feature_store(store.online, store.views)
    assert sorted(view.name for view in registered.list_feature_views()) == sorted(FEATURES)


def test_a_server_that_is_away_is_said_in_one_line(tmp_path: Path) -> None:
    with redis_server(tmp_path) as server:
        store = Store(tmp_path, server.url)
        store.publish(hourly([0.5, 0.75]))
        writer, ticks = store.open(), iter([0.0, 0.5, 1.5, 1.5, 9.0])
        writer.write(START, START + HOUR)
        reader = OnlineReader(store.online, 5, lambda: next(ticks))

        def read() -> list[float | None]:
            return reader.read(["carrier"], {"carrier": ["UA"]}, START + HOUR).columns["carrier__late_share_3h"]

        assert read() == [0.5]
        server.stop()
        with pytest.raises(OnlineUnavailable, match=rf"{server.url}: .*refused.* Is the server up"):
            read()
        server.start()
        with pytest.raises(OnlineUnavailable, match="Is the server up"):
            read()  # it is not asked again so soon
        assert read() == [None]  # it keeps nothing on disk, so this is another, empty store
        server.stop()
        with pytest.raises(OnlineUnavailable, match="Is the server up"):
            writer.write(START + HOUR, START + 2 * HOUR)
        spec = MaterializeSpec(
            calendar=make.CALENDAR, views=store.views, online=store.online, start=START, end=START + HOUR
        )
        spec_uri, result_uri = (make.folder_uri(tmp_path, "run", name) for name in ("spec.json", "result.json"))
        write_bytes(spec_uri, spec.model_dump_json().encode())
        assert step(materialize, MaterializeSpec, [spec_uri, result_uri]) == EXIT_TRY_AGAIN
        failure = failure_of(result_uri)
        assert failure is not None
        assert failure.reason.startswith(f"OnlineUnavailable: {server.url}: ")


def test_a_view_that_was_never_written_leaves_the_others_to_be_read(embedded: Store) -> None:
    """A deploy may add a view before the first materialisation knows of it."""
    embedded.publish(hourly([0.5]))
    embedded.open().write(START, START + HOUR)
    with contextlib.closing(sqlite3.connect(str(online_config(embedded.online)["path"]))) as database:
        database.execute(f'DROP TABLE "{PROJECT}_weather"')
    found = embedded.reader().read(["weather", "carrier"], {"origin": ["EWR"], "carrier": ["UA"]}, START)
    assert found.status == {"weather": ["absent"], "carrier": ["present"]}
    assert found.columns["carrier__late_share_3h"] == [0.5]


def test_a_file_that_is_no_store_is_unavailable_not_a_crash(embedded: Store) -> None:
    path = Path(str(online_config(embedded.online)["path"]))
    path.parent.mkdir(parents=True)
    path.write_bytes(b"no database" * 100)
    with pytest.raises(OnlineUnavailable, match="is it the store that"):
        embedded.value(START)


def test_a_value_that_is_no_double_is_null_not_zero(store: Store) -> None:
    from feast.protos.feast.types.Value_pb2 import Value

    from feature_repo import online_rows

    stored = online_rows.Stored(0, 0, (1.0,) * len(FEATURES["carrier"]))
    values = online_rows.feature_values("carrier", stored) | {"late_share_3h": Value(int64_val=1)}
    store.publish(hourly([0.5]))
    writer = store.open()
    key = online_rows.entity_key("carrier", ("UA",))
    view = writer._feature_views["carrier"]
    epoch = dt.datetime(1970, 1, 1, 1, tzinfo=dt.UTC)
    writer._provider.online_write_batch(writer._store.config, view, [(key, values, epoch, epoch)], None)
    found = store.read(epoch)
    assert (found.columns["carrier__late_share_3h"], found.columns["carrier__late_share_1d"]) == ([None], [1.0])


def test_the_password_comes_from_the_environment_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    password = 'a,b=c "1"'  # noqa: S105  what Feast's way of writing addresses would break at
    with redis_server(tmp_path, password) as server:
        store = Store(tmp_path, server.url)
        store.publish(hourly([0.5]))
        with pytest.raises(OnlineUnavailable, match="Set PERENNIAL_ONLINE_PASSWORD"):
            store.open()
        monkeypatch.setenv("PERENNIAL_ONLINE_PASSWORD", password)
        feature_store.cache_clear()
        store.open().write(START, START + HOUR)
        assert store.value(START) == (0.5, "present", 0.0)
        left = [path for path in tmp_path.rglob("*") if path.is_file() and password.encode() in path.read_bytes()]
        assert left == []


def test_a_url_with_a_password_is_refused_and_not_repeated(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    url = "redis://ann:hush@cache:7000/2"
    with pytest.raises(ValueError, match="PERENNIAL_ONLINE_PASSWORD") as caught:
        Settings(_env_file=None, online=url)
    assert "hush" not in str(caught.value)
    spec_uri, result_uri = (make.folder_uri(tmp_path, "run", name) for name in ("spec.json", "result.json"))
    fields = {"calendar": make.CALENDAR, "views": "file:///v", "online": "x", "start": START, "end": START + HOUR}
    text = MaterializeSpec.model_validate(fields).model_dump_json().replace('"online":"x"', f'"online":"{url}"')
    write_bytes(spec_uri, text.encode())
    assert step(materialize, MaterializeSpec, [spec_uri, result_uri]) == EXIT_BAD_SPEC
    failure = failure_of(result_uri)
    assert failure is not None
    assert failure.reason == (
        f"{spec_uri}: online: the URL holds a password; take it out and set PERENNIAL_ONLINE_PASSWORD instead "
        "(got 'redis://ann@cache:7000/2')"
    )
    assert "hush" not in capfd.readouterr().err


def test_the_words_for_the_online_store(monkeypatch: pytest.MonkeyPatch) -> None:
    assert online_config("/state/online") == {"type": "sqlite", "path": "/state/online/online.db"}
    waits = "socket_timeout=30.0,socket_connect_timeout=30.0"
    assert online_config("redis://cache") == {
        "type": "redis",
        "connection_string": f"cache:6379,{waits}",
        "skip_dedup": True,
    }
    monkeypatch.setenv("PERENNIAL_ONLINE_PASSWORD", "a,b")
    assert online_config("rediss://ann@cache:7000/2")["connection_string"] == (
        f'cache:7000,username="ann",password="a\\u002cb",db=2,ssl=true,{waits}'
    )
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
        "import sys, feature_repo.materialize, feature_repo.online, feature_repo.check_online;"
        "print(sorted({'pyspark', 'great_expectations', 'torch', 'airflow'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
