"""What a build does around Spark: passes, days, slices, and who counts as late."""

import datetime as dt
from typing import Any

import pyarrow as pa
import pytest

from artifacts.refs import file_uri, join
from artifacts.step import DataFault
from artifacts.store import manifest
from feature_repo import tables
from feature_repo.build import PASS_DAYS, between, outside, passes
from feature_repo.contract import BuildSpec, IngestSpec
from feature_repo.ingest import check, ignored, late
from feature_repo.snapshot import build_from
from tests.make import feature_repo as make

YEAR = make.calendar("2013-01-01", "2013-12-31")
HOUR, DAY = dt.timedelta(hours=1), dt.timedelta(days=1)
NOON = make.utc("2013-11-02T16:00:00")


def spec(start: dt.datetime, end: dt.datetime) -> BuildSpec:
    return BuildSpec(
        calendar=YEAR, lake="file:///l", snapshot="sha256:" + "0" * 64, views="file:///v", start=start, end=end
    )


def test_passes_cover_each_hour_once_end_with_service_days_and_are_bounded() -> None:
    begins, ends = YEAR.starts(YEAR.first), YEAR.ends(dt.date(2013, 12, 31))
    found = list(passes(spec(begins, ends)))
    assert found[0][0] == begins
    assert found[-1][1] == ends
    assert [until for _, until in found[:-1]] == [after for after, _ in found[1:]]
    assert all(until == YEAR.starts(YEAR.of(until)) for _, until in found)
    assert all(until - after <= PASS_DAYS * DAY + HOUR for after, until in found)


def test_an_hour_is_one_pass_that_looks_two_days_back_but_not_before_the_calendar() -> None:
    assert list(passes(spec(NOON, NOON + HOUR))) == [(NOON - 2 * DAY, NOON + HOUR)]
    first = YEAR.starts(YEAR.first)
    assert build_from(YEAR, first + HOUR) == first


def test_slices_are_half_open_and_complete() -> None:
    table = pa.table({
        "event_time": pa.array([NOON + n * HOUR for n in (0, 1, 1, 2, 3)], tables.INSTANT),
        "n": range(5),
    })
    assert between(table, NOON, NOON + 2 * HOUR)["n"].to_pylist() == [1, 2, 3]
    assert outside(table, NOON, NOON + 2 * HOUR)["n"].to_pylist() == [0, 4]
    empty = table.slice(0, 0)
    assert between(empty, NOON, NOON + HOUR).num_rows == outside(empty, NOON, NOON + HOUR).num_rows == 0


def test_changed_rows_are_named_by_their_key() -> None:
    old = pa.table({"k": ["a", "b", "c", "d"], "v": [1.0, None, 3.0, 4.0]})
    new = pa.table({"k": ["e", "d", "b", "a"], "v": [5.0, 4.5, None, 1.0]})
    assert tables.changed_rows(old, new, ("k",)) == {("c",), ("d",), ("e",)}
    assert tables.changed_rows(old, old.take([3, 1, 0, 2]), ("k",)) == set()


def ingest_spec(built_to: dt.datetime | None) -> IngestSpec:
    day = dt.date(2013, 11, 1)
    return IngestSpec(source="x", calendar=YEAR, lake="file:///l", first=day, last=day, built_to=built_to)


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        (NOON + dt.timedelta(microseconds=1), {"late": 0, "too_late": 0}),
        (NOON, {"late": 1, "too_late": 0}),
        (NOON - 2 * DAY + dt.timedelta(microseconds=1), {"late": 1, "too_late": 0}),
        (NOON - 2 * DAY, {"late": 0, "too_late": 1}),
    ],
)
def test_a_record_is_late_by_the_hours_that_are_built(
    known: dt.datetime, expected: dict[str, int], tmp_path: Any
) -> None:
    lake = file_uri(tmp_path)
    make.publish_raw(lake, "2013-11-01", make.raw_day())
    there = tables.published_day(join(lake, "2013-11-01"), tables.RAW_SCHEMAS, needed=True)
    more = make.raw_table(
        "departure", make.raw_row("departure"), make.raw_row("departure", flight_id="x", available_time=known)
    )
    assert late(ingest_spec(NOON), there, make.raw_day(departure=more)) == expected
    assert late(ingest_spec(None), there, make.raw_day(departure=more)) == {}
    assert late(ingest_spec(NOON), there, make.raw_day()) == {"late": 0, "too_late": 0}


def test_only_a_day_that_is_still_running_may_be_empty() -> None:
    day = dt.date(2013, 11, 1)
    empty = {name: {} for name in tables.RAW_SCHEMAS}
    running = ingest_spec(None).model_copy(update={"closed_to": YEAR.ends(day) - HOUR})
    check(running, empty, (day,))
    for over in (ingest_spec(None), running.model_copy(update={"closed_to": YEAR.ends(day)})):
        with pytest.raises(DataFault, match=r"x/2013-11-01/departure\.parquet: rows: the day is empty"):
            check(over, empty, (day,))


def test_a_fact_known_beyond_the_bound_is_one_that_no_view_counts() -> None:
    due = make.utc("2013-11-01T15:00:00")
    rows = [
        make.raw_row("arrival", flight_id=str(n), available_time=due + delay)
        for n, delay in enumerate((HOUR, 3 * DAY - HOUR, 3 * DAY))
    ]
    assert ignored(make.raw_table("arrival", *rows), late_days=2) == 1
    assert ignored(make.raw_table("arrival"), late_days=2) == 0


def test_counts_of_late_rows_add_up_over_publications(tmp_path: Any) -> None:
    uri = join(file_uri(tmp_path), "day")
    assert tables.counted(None, "late", {"carrier": 0}) == {}
    tables.publish_day(uri, "view-day", {"a": b"1"}, tables.counted(None, "late", {"carrier": 2}))
    there = tables.published_day(uri, {}, needed=True)
    tables.publish_day(uri, "view-day", {"a": b"2"}, tables.counted(there, "late", {"carrier": 1, "origin": 4}))
    assert manifest(uri).facts == {"late": {"carrier": 3, "origin": 4}}


def test_a_day_in_an_older_layout_is_made_anew_and_never_mixed(tmp_path: Any) -> None:
    """A feature or a view has been added to the catalogue: a day that is built whole again does not ask for its old rows."""
    uri = join(file_uri(tmp_path), "2013-11-01")
    old = {view: schema.empty_table() for view, schema in tables.VIEW_SCHEMAS.items()}
    old["carrier"] = old["carrier"].drop_columns(["late_share_1d"])
    files = {f"{view}.parquet": tables.view_bytes(view, table) for view, table in old.items() if view != "route"}
    tables.publish_day(uri, "view-day", files, {})
    assert tables.published_day(uri, tables.VIEW_SCHEMAS, needed=False) is None
    with pytest.raises(DataFault) as raised:
        tables.published_day(uri, tables.VIEW_SCHEMAS, needed=True)
    first, second = raised.value.problems
    assert "carrier.parquet: late_share_1d" in first
    assert "route.parquet: is missing" in second
    assert "make all of this day anew" in first
