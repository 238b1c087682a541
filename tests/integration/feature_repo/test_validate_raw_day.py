from __future__ import annotations

import csv
import datetime as dt
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from artifacts.refs import Ref, join
from artifacts.step import EXIT_BAD_DATA, DataFault, TryAgain, failure_of, step
from artifacts.store import read, write_bytes
from feature_repo.contract import CheckPolicy, ValidateSpec
from feature_repo.validate import validate
from tests.make import expectations as make

pytestmark = pytest.mark.spark


def spec(*found: Ref, folder: Path, suite: str = "raw_day", **history: tuple[int, ...]) -> ValidateSpec:
    """The spec of one day, or of consecutive days that end with the usual one."""
    first = make.DAY - dt.timedelta(days=len(found) - 1)
    days = [make.target(ref, first + dt.timedelta(days=number), **history) for number, ref in enumerate(found)]
    return ValidateSpec(
        suite=suite, calendar=make.CALENDAR, targets=tuple(days), output=make.folder_uri(folder, "report")
    )


def broken_day() -> dict[str, pa.Table]:
    """A day with every fault at once: no weather file, no arrivals, nulls, a repeated flight, wrong types, odd values."""
    tables = make.raw_day()
    del tables["weather"]
    tables["arrival"] = make.change(tables["arrival"].slice(0, 0), "event_time", pa.array([], pa.timestamp("us")))
    departure = make.blank(tables["departure"], "cancelled", 0.3)
    tables["departure"] = departure.drop_columns(["tailnum"])
    schedule = make.change(tables["schedule"], "distance", pa.array([str(x) for x in range(240)]))
    late = [moment - 4 * make.HOUR for moment in schedule["scheduled_arrival"].to_pylist()[:2]]
    schedule = make.change(schedule, "scheduled_arrival", late + schedule["scheduled_arrival"].to_pylist()[2:])
    tables["schedule"] = pa.concat_tables([schedule, schedule.slice(5, 1)])
    return tables


def test_a_sound_day_passes_and_leaves_a_report(tmp_path: Path) -> None:
    target = make.publish_tables(make.folder_uri(tmp_path, "day"), "raw-day", make.raw_day())
    found = validate(spec(target, folder=tmp_path))
    assert found.target == target.digest
    assert found.expectations > 100
    assert found.warnings == tuple(
        f"{table}: volume was not compared with past weekdays on day 2013-01-08: fewer than 3 same weekdays are known, "
        "in the first 8 weeks"
        for table in ("schedule", "weather")
    )
    report = read(found.uri, found.digest)
    assert b"departure" in report.file("index.html").read_bytes()
    content = json.loads(report.file("results.json").read_text())
    assert content["success"] is True
    assert len(content["expectations"]) == found.expectations
    assert sum(entry.size for entry in report.manifest.files) < 1_500_000


@pytest.mark.covers("field-reports 66", "field-reports 68")
def test_every_fault_of_a_broken_day_is_one_clear_line(tmp_path: Path) -> None:
    target = make.publish_tables(make.folder_uri(tmp_path, "day"), "raw-day", broken_day())
    wanted = spec(target, folder=tmp_path, schedule=(600, 610, 620))
    spec_uri, result_uri = (make.folder_uri(tmp_path, "run", name) for name in ("spec.json", "result.json"))
    write_bytes(spec_uri, wanted.model_dump_json().encode())
    assert step(validate, ValidateSpec, [spec_uri, result_uri]) == EXIT_BAD_DATA
    failure = failure_of(result_uri)
    assert failure is not None
    assert failure.kind == "bad_data"
    assert "Traceback" not in failure.reason
    lines = failure.reason.splitlines()
    for expected in (
        "expect_file_to_exist(weather): ",
        "expect_table_row_count_to_be_between(arrival): 0 rows, expected 1 or more",
        "unexpected_rows_expectation(days.arrival_rows): 1 rows break 'arrival_rows >= arrival_floor', first 1: key 2013-01-08 (arr",
        "unexpected_rows_expectation(days.arrival_newest): 1 rows break 'arrival_newest >= ends - INTERVAL 8 HOURS'",
        "expect_column_values_to_be_of_type(arrival.event_time): type is TimestampNTZType, expected TimestampType",
        "expect_column_values_to_not_be_null(departure.cancelled): 30 % null (72 of 240 rows), first 3: key 2013-01-08-",
        "expect_table_columns_to_match_set(departure): 11 columns; missing ['tailnum'], not expected []",
        "expect_column_values_to_be_of_type(departure.tailnum): could not run: column 'tailnum' is missing",
        "expect_compound_columns_to_be_unique(schedule.flight_id+available_time): 0.83 % not unique (2 of 241 rows), first 1: key 2013",
        "expect_column_values_to_be_of_type(schedule.distance): type is StringType, expected DoubleType",
        "unexpected_rows_expectation(schedule.scheduled_arrival): 2 rows break 'scheduled_arrival > scheduled_departure', first 2: key 2013-01-08-",
        "unexpected_rows_expectation(days.schedule_rows): 1 rows break 'schedule_least IS NULL OR schedule_rows BETWEEN "
        "schedule_least AND schedule_most', first 1: key 2013-01-08 (schedule_rows=241, schedule_least=305, schedule_most=1220)",
        f"the whole report: {wanted.output}",
    ):
        assert [line for line in lines if line.startswith(expected)], f"{expected!r} is not in\n{failure.reason}"
    assert len(lines) == len(set(lines))
    report = read(wanted.output)
    content = json.loads(report.file("results.json").read_text())
    assert content["failures"] == lines[:-1]
    assert report.file("index.html").stat().st_size > 0
    assert b"Rows that broke one" in report.file("summary.html").read_bytes()
    bad = list(csv.DictReader(report.file("bad_rows.csv").open()))
    assert 0 < len(bad) <= wanted.policy.bad_rows
    nulls = [row for row in bad if (row["table"], row["expectation"]) == ("departure", "known:cancelled")]
    assert len(nulls) == 72
    assert [row["key"] for row in nulls] == sorted(row["key"] for row in nulls)
    assert {row["partition"] for row in nulls} == {"2013-01-08"}


def test_a_file_that_is_no_parquet_is_one_line(tmp_path: Path) -> None:
    uri = make.folder_uri(tmp_path, "day")
    make.publish_tables(uri, "raw-day", make.raw_day())
    artifact = read(uri)
    for name in ("departure", "arrival", "weather", "schedule"):
        artifact.file(f"{name}.parquet").write_bytes(b"not parquet")
    target = _republish(join(uri, "again"), artifact.path)
    with pytest.raises(ValueError, match=r"expect_file_to_be_parquet\(schedule\): .*cannot be read") as caught:
        validate(spec(target, folder=tmp_path))
    assert str(caught.value).count("expect_file_to_be_parquet") == 4


def _republish(uri: str, folder: Path) -> Ref:
    from artifacts.store import publish

    with publish(uri, "raw-day") as draft:
        for path in folder.glob("*.parquet"):
            (draft.path / path.name).write_bytes(path.read_bytes())
    assert draft.manifest is not None
    return Ref(uri=uri, digest=draft.manifest.digest)


def test_an_unknown_suite_names_those_there_are(tmp_path: Path) -> None:
    target = make.publish_tables(make.folder_uri(tmp_path, "day"), "raw-day", {})
    with pytest.raises(ValueError, match=r"no suite 'rawday'; there are \['raw_day', 'training_set', 'view_day'\]"):
        validate(spec(target, folder=tmp_path, suite="rawday"))


def test_a_range_is_checked_together_and_lines_name_the_day_at_fault(tmp_path: Path) -> None:
    """The day before with a column of another type, the last one with too few flights and an arrival that never left."""
    shifted = make.earlier(make.raw_day(), make.HOUR * 24)
    odd = shifted | {
        "schedule": make.change(shifted["schedule"], "distance", [str(n) for n in range(240)], pa.string())
    }
    short = make.raw_day(180)
    gone = short["arrival"]["flight_id"][0].as_py()
    keep = pc.not_equal(short["departure"]["flight_id"], gone)
    short["departure"] = short["departure"].filter(keep)
    two_days = [
        make.publish_tables(make.folder_uri(tmp_path, name), "raw-day", tables)
        for name, tables in (("before", odd), ("day", short))
    ]
    with pytest.raises(DataFault) as caught:
        validate(spec(*two_days, folder=tmp_path))
    for expected in (
        "expect_column_values_to_be_of_type(schedule day 2013-01-07.distance): type is StringType, expected DoubleType",
        "unexpected_rows_expectation(days.schedule_rows): 1 rows break 'schedule_rows >= schedule_floor', "
        "first 1: key 2013-01-08 (schedule_rows=180, schedule_floor=200)",
        "unexpected_rows_expectation(flights.arrived): 1 rows break 'NOT arrived OR (departed AND NOT cancelled)', "
        f"first 1: key {gone} ",
    ):
        assert [line for line in caught.value.problems if line.startswith(expected)], caught.value


@pytest.mark.covers("field-reports 72")
def test_what_the_time_does_not_suffice_for_counts_as_not_run_and_may_be_tried_again(tmp_path: Path) -> None:
    target = make.publish_tables(make.folder_uri(tmp_path, "day"), "raw-day", make.raw_day())
    wanted = spec(target, folder=tmp_path)
    wanted = wanted.model_copy(update={"policy": CheckPolicy(budget=dt.timedelta(0))})
    with pytest.raises(TryAgain, match=r"could not run: the time budget of 0 s is spent; give policy.budget more"):
        validate(wanted)
    content = json.loads(read(wanted.output).file("results.json").read_text())
    assert not any(one["success"] for one in content["expectations"])
