"""Days of the views at their border: a sound range passes; each fault is one line with the day and the rows."""

from __future__ import annotations

import csv
import datetime as dt
from pathlib import Path

import pyarrow as pa
import pytest

from artifacts.step import DataFault
from artifacts.store import read
from feature_repo import engine, targets
from feature_repo.catalogue import VIEWS
from feature_repo.contract import CheckPolicy, ValidateSpec
from feature_repo.expectations import view_day
from feature_repo.expectations.rules import Check
from feature_repo.spark import session
from feature_repo.validate import validate
from tests.make import expectations as make

pytestmark = pytest.mark.spark

DAYS = (make.DAY - dt.timedelta(days=1), make.DAY)


def spec(folder: Path, days: dict[dt.date, dict[str, pa.Table]]) -> ValidateSpec:
    found = [
        make.target(
            make.publish_tables(make.folder_uri(folder, str(day)), "view-day", tables), day, carrier=(40, 48, 50)
        )
        for day, tables in days.items()
    ]
    return ValidateSpec(
        suite="view_day", calendar=make.CALENDAR, targets=tuple(found), output=make.folder_uri(folder, "report")
    )


def test_a_sound_range_of_all_views_passes(tmp_path: Path) -> None:
    found = validate(spec(tmp_path, {day: make.views(day) for day in DAYS}))
    assert (found.first, found.last) == DAYS
    assert found.expectations > 30 * len(VIEWS)
    assert all("fewer than 3 same weekdays" in line for line in found.warnings)
    assert not any(line.startswith("carrier:") for line in found.warnings), "its history was given"


def test_faults_name_the_view_the_column_the_day_and_the_rows(tmp_path: Path) -> None:
    good, bad = make.views(DAYS[0]), make.views(DAYS[1])
    values = bad["route"]["late_share_1d"].to_pylist()
    bad["route"] = make.change(bad["route"], "late_share_1d", [1.5, *values[1:]])
    bad["origin"] = make.change(bad["origin"], "departures_7d", [0.0, *[1.0] * 47])
    bad["flight_number"] = pa.concat_tables([bad["flight_number"], bad["flight_number"].slice(3, 1)])
    bad["carrier"] = bad["carrier"].slice(0, 12)
    bad["congestion"] = make.change(
        bad["congestion"], "event_time", [at + 2 * make.HOUR for at in bad["congestion"]["event_time"].to_pylist()]
    )
    bad["weather"] = bad["weather"].slice(0, 0)
    wanted = spec(tmp_path, {DAYS[0]: good, DAYS[1]: bad})
    with pytest.raises(DataFault) as caught:
        validate(wanted)
    lines = caught.value.problems
    for expected in (
        "expect_column_values_to_be_between(route.late_share_1d): 1.04 % outside [0, 1] (1 of 96 rows), first 1: key "
        "origin0/dest0/2013-01-08T10:00:00Z (late_share_1d=1.5)",
        "unexpected_rows_expectation(origin.departures_3h): 1 rows break 'departures_3h <= departures_1d AND ",
        "expect_compound_columns_to_be_unique(flight_number.carrier+flight+event_time+available_time): 2.06 % not unique",
        "unexpected_rows_expectation(days.carrier_rows): 1 rows break 'carrier_rows >= carrier_floor', first 1: key 2013-01-08 ",
        "unexpected_rows_expectation(days.carrier_rows): 1 rows break 'carrier_least IS NULL OR carrier_rows BETWEEN ",
        "unexpected_rows_expectation(days.congestion_oldest): 1 rows break 'congestion_oldest IS NULL OR (congestion_oldest > begins",
        "unexpected_rows_expectation(congestion.available_time): 48 rows break 'event_time <= available_time'",
    ):
        assert [line for line in lines if line.startswith(expected)], f"{expected!r} is not in\n" + "\n".join(lines)
    assert not any("weather" in line for line in lines), "a silent station only warns"
    rows = list(csv.DictReader(read(wanted.output).file("bad_rows.csv").open()))
    assert {row["partition"] for row in rows} == {"2013-01-08"}
    assert [row["key"] for row in rows if row["expectation"] == "fresh:weather"] == ["2013-01-08"]


@pytest.mark.covers("field-reports 72")
def test_of_a_very_large_table_ranges_see_a_fixed_sample_and_keys_and_nulls_see_all(tmp_path: Path) -> None:
    table = make.views()["carrier"].append_column(targets.PARTITION, pa.array([make.DAY] * 48, pa.date32()))
    suite = next(suite for suite in view_day.suites(CheckPolicy(), 1) if suite.table == "carrier")
    with session("tests") as spark:
        frame = spark.createDataFrame(table)
        chosen = [
            sorted(map(tuple, engine.sampled(frame, suite, 48, 12).select(*suite.row_key).collect())) for _ in "ab"
        ]
        everything = engine.sampled(frame, suite, 48, 48).count()
    assert chosen[0] == chosen[1]
    assert 0 < len(chosen[0]) < 30
    assert everything == 48
    nulls = make.change(table, "carrier", [None, *table["carrier"].to_pylist()[1:]])
    check = Check("carrier", suite, lambda: nulls)
    with session("tests") as spark:
        outcomes, _ = engine.run([check], CheckPolicy(sampled_above=12), tmp_path, spark)
    assert {one.key for one in outcomes if not one.success} == {"known:carrier"}
    assert len(outcomes) == len(suite.rules)
