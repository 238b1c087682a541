"""Day artifacts: the same rows give the same bytes, and what is wrong with a day is said line by line."""

import datetime as dt
from pathlib import Path

import pyarrow as pa
import pytest

from artifacts import store
from artifacts.refs import file_uri, join
from artifacts.step import DataFault
from feature_repo import snapshot, tables
from tests.make import feature_repo as make

EMPTY = {name: schema.empty_table() for name, schema in tables.RAW_SCHEMAS.items()}


def test_bytes_depend_on_the_rows_and_not_on_their_order() -> None:
    rows = [make.raw_row("schedule", flight_id=f"f{n}") for n in range(5)]
    forward, backward = make.raw_table("schedule", *rows), make.raw_table("schedule", *reversed(rows))
    assert tables.raw_bytes("schedule", forward) == tables.raw_bytes("schedule", backward)
    assert tables.raw_bytes("schedule", forward) != tables.raw_bytes("schedule", forward.slice(1))


def test_a_good_day_has_no_problems() -> None:
    assert tables.raw_problems("day", make.raw_day()) == []


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (
            {"schedule": make.raw_day()["schedule"].drop_columns(["dest"])},
            "day/schedule.parquet: dest: column is missing",
        ),
        (
            {"schedule": make.raw_day()["schedule"].set_column(5, "distance", pa.array([1], pa.int64()))},
            "day/schedule.parquet: distance: type is int64, it must be double",
        ),
        (
            {"schedule": pa.concat_tables([make.raw_day()["schedule"]] * 2)},
            "day/schedule.parquet: flight_id: 1 rows repeat",
        ),
        ({"schedule": EMPTY["schedule"]}, "day/schedule.parquet: rows: the day is empty (got 0)"),
        ({"departure": EMPTY["departure"]}, "day/departure.parquet: rows: the day is empty (got 0)"),
        ({"arrival": EMPTY["arrival"]}, "day/arrival.parquet: rows: the day is empty though 1 flights departed"),
    ],
)
def test_each_fault_is_said_in_one_line(change: dict[str, pa.Table], expected: str) -> None:
    (line,) = tables.raw_problems("day", make.raw_day(**change))
    assert line.startswith(expected)


def test_a_restated_row_with_a_later_available_time_is_no_duplicate() -> None:
    row = make.raw_row("arrival")
    restated = row | {"arrival_delay": 40.0, "available_time": row["available_time"] + dt.timedelta(hours=1)}
    assert tables.raw_problems("day", make.raw_day(arrival=make.raw_table("arrival", row, restated))) == []


def test_a_day_that_is_still_running_may_be_empty() -> None:
    assert tables.raw_problems("day", make.raw_day() | {"departure": EMPTY["departure"]}, whole=False) == []


def test_missing_days_are_named_in_runs(tmp_path: Path) -> None:
    lake = file_uri(tmp_path)
    make.publish_raw(lake, "2013-11-02", make.raw_day())
    days = tables.day_range(dt.date(2013, 11, 1), dt.date(2013, 11, 5))
    with pytest.raises(DataFault) as fault:
        tables.read_days(lake, days, "feature_repo.ingest")
    assert fault.value.problems == (
        f"{lake}: day 2013-11-01: not there; run feature_repo.ingest for it first",
        f"{lake}: days 2013-11-03 to 2013-11-05 (3): not there; run feature_repo.ingest for it first",
    )


def test_a_truncated_file_is_corrupt_and_publishing_again_mends_it(tmp_path: Path) -> None:
    lake = file_uri(tmp_path)
    make.publish_raw(lake, "2013-11-01", make.raw_day())
    uri = join(lake, "2013-11-01")
    before = store.read(uri).manifest
    damaged = store.read(uri).file("arrival.parquet")
    damaged.write_bytes(damaged.read_bytes()[:-10])
    with pytest.raises(store.ArtifactCorrupt, match=r"arrival\.parquet"):
        tables.read_days(lake, [dt.date(2013, 11, 1)], "feature_repo.ingest")
    make.publish_raw(lake, "2013-11-01", make.raw_day())
    assert store.read(uri).manifest.digest == before.digest


def test_publishing_the_same_day_twice_writes_once(tmp_path: Path) -> None:
    lake = file_uri(tmp_path)
    make.publish_raw(lake, "2013-11-01", make.raw_day())
    first = store.manifest(join(lake, "2013-11-01"))
    make.publish_raw(lake, "2013-11-01", make.raw_day())
    assert store.manifest(join(lake, "2013-11-01")) == first


def test_a_build_reads_the_longest_window_back_and_the_congestion_ahead() -> None:
    year = make.calendar("2013-01-01", "2013-12-31")
    noon = make.utc("2013-06-20T16:00:00")
    assert snapshot.build_days(year, noon, noon + dt.timedelta(hours=1)) == (dt.date(2013, 6, 8), dt.date(2013, 6, 20))
    evening = make.utc("2013-06-21T06:00:00")
    assert snapshot.build_days(year, noon, evening)[1] == dt.date(2013, 6, 21)
    start = year.starts(year.first)
    assert snapshot.build_days(year, start, start + dt.timedelta(hours=1))[0] == year.first


def test_a_snapshot_follows_content_and_range(tmp_path: Path) -> None:
    lake = file_uri(tmp_path)
    make.publish_raw(lake, "2013-11-01", make.raw_day())
    one, two = dt.date(2013, 11, 1), dt.date(2013, 11, 2)
    before = snapshot.lake_snapshot(lake, one, two)
    make.publish_raw(lake, "2013-11-02", make.raw_day())
    assert snapshot.lake_snapshot(lake, one, one) == before
    assert snapshot.lake_snapshot(lake, one, two) != before


def test_the_dataset_key_ignores_the_output_and_the_order_of_exceptions(tmp_path: Path) -> None:
    lake = file_uri(tmp_path)
    days = ["2013-11-28", "2013-12-25", "2013-07-04"]

    def key(output: str, exceptions: list[str], **changes: object) -> str:
        spec = make.training_set_spec(
            lake,
            lake,
            join(lake, output),
            "2013-11-04",
            "2013-11-02",
            calendar=make.calendar(exceptions=exceptions),
            **changes,
        )
        return snapshot.dataset_key(spec)

    assert key("a", days) == key("b", days[::-1])
    assert key("a", days) != key("a", days, late_minutes=30)
