"""Late records: what lands in the lake after its hours were built, within the bound and beyond it; nothing else is touched."""

from __future__ import annotations

import datetime as dt
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from artifacts import store
from artifacts.refs import Uri, file_uri, join, local_path
from feature_repo import spark, tables
from feature_repo.build import build
from feature_repo.contract import IngestSpec, LakeRef, ViewsRef
from feature_repo.ingest import ingest
from feature_repo.snapshot import build_days
from tests.make import brute_views as brute
from tests.make import feature_repo as make

pytestmark = pytest.mark.spark

CALENDAR = make.calendar("2013-10-25", "2013-11-05")  # the clock changes on 2013-11-03
BEGINS = CALENDAR.starts(CALENDAR.first)
HOUR, DAY = dt.timedelta(hours=1), dt.timedelta(days=1)
BUILT = CALENDAR.starts(dt.date(2013, 11, 4)) + 10 * HOUR
LAKE = brute.by_day(CALENDAR, brute.some_flights(11, BEGINS, 12, 240, brute.TIMELY))
NO_WEATHER = dt.date(2013, 10, 30)
LAKE[NO_WEATHER]["weather"] = make.raw_table("weather")


class Source(ModuleType):
    """A source whose days can be changed."""

    def __init__(self) -> None:
        super().__init__("feature_repo.sources.made")
        self.days = {day: dict(tables) for day, tables in LAKE.items()}

    def tables(self, _calendar: object, first: dt.date, last: dt.date) -> dict[str, pa.Table]:
        days = [day for day in self.days if first <= day <= last]
        dated = pa.field("day", pa.date32())
        return {
            name: pa.concat_tables([
                self.days[day][name].append_column(dated, pa.array([day] * self.days[day][name].num_rows, pa.date32()))
                for day in days
            ])
            for name in tables.RAW_SCHEMAS
        }

    def add(self, name: str, **row: object) -> dt.date:
        """One more record; returns its service day."""
        day = CALENDAR.of(row["scheduled_departure"])  # type: ignore[arg-type]
        more = make.raw_table(name, make.raw_row(name, **row))
        self.days[day] = self.days[day] | {name: pa.concat_tables([self.days[day][name], more])}
        return day


class World:
    """A source, a lake and views, and the two steps over them."""

    def __init__(self, root: Path, source: Source) -> None:
        self.source, self.root = source, root
        self.lake, self.views = file_uri(root / "lake"), file_uri(root / "views")

    def run(self, start: dt.datetime, end: dt.datetime, views: Uri | None = None) -> tuple[LakeRef, ViewsRef]:
        first, last = build_days(CALENDAR, start, end)
        spec = IngestSpec(
            source="made", calendar=CALENDAR, lake=self.lake, first=first, last=last, built_to=start, closed_to=end
        )
        landed = ingest(spec)
        return landed, build(make.build_spec(self.lake, views or self.views, start, end, calendar=CALENDAR))

    def anew(self, end: dt.datetime) -> dict[str, str]:
        """What a build of everything from this lake gives."""
        views = file_uri(self.root / f"anew-{end:%d%H}")
        build(make.build_spec(self.lake, views, BEGINS, end, calendar=CALENDAR))
        return digests(views)


def digests(views: Uri) -> dict[str, str]:
    return {day: store.read(join(views, day)).manifest.digest for day in store.children(views)}


def on_disk(views: Uri) -> dict[str, dict[str, tuple[bytes, int]]]:
    """Day -> every file with its bytes and its time of change, old attempts included."""
    root = local_path(views)
    assert root
    return {
        day: {
            str(path.relative_to(root)): (path.read_bytes(), path.stat().st_mtime_ns)
            for path in (root / day).rglob("*")
            if path.is_file()
        }
        for day in store.children(views)
    }


@pytest.fixture(scope="module")
def session() -> Iterator[SparkSession]:
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
    """Built up to BUILT; the tests go on from there, each in an hour of its own, in the order of this file."""
    made = World(tmp_path_factory.mktemp("late"), Source())
    sys.modules[made.source.__name__] = made.source
    landed, built = made.run(BEGINS, BUILT)
    assert (landed.late, landed.too_late, built.late) == ({}, {}, {})
    yield made
    del sys.modules[made.source.__name__]


def flight(due: dt.datetime, **values: object) -> dict[str, object]:
    return {"flight_id": f"late-{due:%d%H%M}", "scheduled_departure": due, "origin": "JFK", "dest": "SFO", **values}


@pytest.mark.covers("field-reports 51")
def test_row_51_an_hour_rewrites_one_partition_and_no_byte_of_another(world: World) -> None:
    """Field report linkedin/spark-tfrecord#18: an overwrite wiped the whole data set, not the partition."""
    before = on_disk(world.views)
    landed, built = world.run(BUILT, BUILT + HOUR)
    after = on_disk(world.views)
    assert {day for day in after if after[day] != before.get(day)} == {"2013-11-04"}
    assert (landed.late, built.late) == ({}, {})
    assert digests(world.views) == world.anew(BUILT + HOUR)


def test_a_record_that_lands_late_within_the_bound_gives_the_bytes_of_a_build_from_scratch(world: World) -> None:
    now = BUILT + HOUR
    known = now - 40 * HOUR
    day = world.source.add("departure", **flight(known, departure_delay=50.0, available_time=known))
    before, untouched = on_disk(world.views), digests(world.views)
    landed, built = world.run(now, now + HOUR)
    assert (landed.late, landed.too_late) == ({day.isoformat(): 1}, {})
    assert store.manifest(join(world.lake, day.isoformat())).facts["landed"] == {"late": 1}
    assert digests(world.views) == world.anew(now + HOUR)
    rebuilt = {"2013-11-02", "2013-11-03", "2013-11-04"}
    assert set(built.late) == rebuilt
    for name, found in on_disk(world.views).items():
        facts = store.manifest(join(world.views, name)).facts
        assert (found == before[name]) == (name not in rebuilt), name
        assert sum(facts.get("late", {}).values()) == built.late.get(name, 0), name
        assert (digests(world.views)[name] == untouched[name]) == (name not in rebuilt)


def test_a_record_that_becomes_known_late_changes_no_hour_before_that(world: World) -> None:
    """It is known on the day after its flight and lands at once: no late record, though an old raw day is restated."""
    now = BUILT + 2 * HOUR
    due = now - 30 * HOUR
    day = world.source.add("arrival", **flight(due, arrival_delay=90.0, available_time=now + dt.timedelta(minutes=30)))
    before = digests(world.views)
    landed, built = world.run(now, now + HOUR)
    assert landed.written == 1
    assert built.late == {}
    assert (
        landed.late.get(day.isoformat(), 0)
        == store.manifest(join(world.lake, day.isoformat())).facts.get("landed", {}).get("late", 0)
        == 0
    )
    after = digests(world.views)
    assert {name for name in after if after[name] != before[name]} == {"2013-11-04"}
    assert after == world.anew(now + HOUR)


def test_what_lands_beyond_the_bound_is_reported_and_mended_by_hand(world: World) -> None:
    now = BUILT + 3 * HOUR
    known = now - 3 * DAY
    day = world.source.add("departure", **flight(known, departure_delay=70.0, available_time=known))
    before = digests(world.views)
    landed, _ = world.run(now, now + HOUR)
    assert landed.too_late == {day.isoformat(): 1}
    assert store.manifest(join(world.lake, day.isoformat())).facts["landed"]["too_late"] == 1
    whole = world.anew(now + HOUR)
    after = digests(world.views)
    assert {name for name in after if after[name] == before[name]} >= {name for name in after if name < "2013-11-02"}
    assert after != whole, "hours before the bound were not built again"
    _, mended = world.run(known - HOUR, now + HOUR)
    assert digests(world.views) == whole
    assert mended.late == {}, "these hours were asked for"


def test_a_fact_that_becomes_known_beyond_the_bound_counts_nowhere_and_is_reported(world: World) -> None:
    now = BUILT + 4 * HOUR
    due = now - 100 * HOUR
    day = world.source.add("arrival", **flight(due, arrival_delay=90.0, available_time=now + dt.timedelta(minutes=1)))
    before = digests(world.views)
    landed, _ = world.run(now, now + HOUR)
    assert landed.too_late[day.isoformat()] >= 1
    after = digests(world.views)
    assert {name for name in after if after[name] != before[name]} <= {"2013-11-04"}


def test_a_damaged_day_is_mended_when_all_of_it_is_built_and_refused_else(world: World) -> None:
    wanted = digests(world.views)
    damaged = store.read(join(world.views, "2013-11-03")).file("carrier.parquet")
    damaged.write_bytes(b"")
    now = BUILT + 5 * HOUR
    with pytest.raises(store.ArtifactCorrupt, match="2013-11-03"):
        build(make.build_spec(world.lake, world.views, now, now + HOUR, calendar=CALENDAR, late_days=1))
    build(make.build_spec(world.lake, world.views, now, now + HOUR, calendar=CALENDAR))
    assert digests(world.views)["2013-11-03"] == wanted["2013-11-03"]


@pytest.mark.covers("field-reports 44")
def test_row_44_the_manifest_counts_the_rows_that_lie_there(world: World) -> None:
    """Field report apache/airflow#41212: a job that lost its driver was called a success; here rows are counted."""
    for day in store.children(world.views):
        artifact = store.read(join(world.views, day))
        counts = {view: pq.read_metadata(artifact.file(f"{view}.parquet")).num_rows for view in tables.VIEW_SCHEMAS}
        assert artifact.manifest.facts["rows"] == counts
        assert (counts["weather"] == 0) == (day == NO_WEATHER.isoformat()), "an empty table is published as one"
