"""Entity rows and labels from weather: silence is a row without a label, restated and late reports count by when they were known."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from artifacts.refs import file_uri
from feature_repo import labelled, spark
from feature_repo.contract import NextObservation, TrainingSetSpec
from feature_repo.tables import RAW_SCHEMAS
from serving.past import Observations
from tests.make import feature_repo as make

pytestmark = pytest.mark.spark

HOUR, MINUTES = dt.timedelta(hours=1), dt.timedelta(minutes=20)
QUESTION = NextObservation(value="temp")


@pytest.fixture(scope="module")
def session() -> Iterator[SparkSession]:
    with spark.session("tests") as shared:
        yield shared


@pytest.fixture
def spec(tmp_path: Path) -> TrainingSetSpec:
    """2013-11-01 to 2013-11-02; the clock of New York changes on the 3rd."""
    uri = file_uri(tmp_path / "x")
    return make.training_set_spec(uri, uri, uri, "2013-11-03", "2013-11-01", question=QUESTION)


def reading(station: str, hour: dt.datetime, temp: float | None, known: dt.datetime | None = None) -> dict[str, object]:
    return {"origin": station, "temp": temp, "event_time": hour, "available_time": known or hour + MINUTES}


def weather(*readings: dict[str, object]) -> pa.Table:
    schema = RAW_SCHEMAS["weather"]
    return pa.Table.from_pylist([{name: row.get(name) for name in schema.names} for row in readings], schema)


def asked(session: SparkSession, spec: TrainingSetSpec, table: pa.Table) -> dict[str, dict[str, object]]:
    rows = labelled.rows(session, spec, {"weather": table}).toArrow().to_pylist()
    assert len({row["row_id"] for row in rows}) == len(rows)
    return {row["row_id"]: row for row in rows}


@pytest.mark.covers("decisions 3.3", "decisions 3.4")
def test_rows_exist_by_what_was_known_and_labels_by_what_was_known_at_the_cut_off(
    session: SparkSession, spec: TrainingSetSpec
) -> None:
    begins = spec.calendar.starts(dt.date(2013, 11, 1))
    at = [begins + number * HOUR for number in range(60)]
    found = asked(
        session,
        spec,
        weather(
            reading("JFK", at[1], 50.0),
            reading("JFK", at[2], 51.0),
            reading("JFK", at[2], 52.0, at[2] + HOUR),  # restated
            reading("JFK", at[4], None),
            reading("JFK", at[5], 55.0, spec.as_of + HOUR),  # known too late to be a label
            reading("EWR", at[6], 60.0),
        ),
    )
    stations = {station: sorted(name for name in found if name.startswith(station)) for station in ("JFK", "EWR")}
    assert len(stations["JFK"]) == 48  # two days have 49 hours, since the clock changes; each from its first report on
    assert len(stations["EWR"]) == 43
    name = "JFK-{:%Y-%m-%dT%HZ}".format
    assert name(at[1]) not in found, "nobody knew of the station half an hour before its first report"
    restated = found[name(at[2])]
    assert (restated["label"], restated["label_time"]) == (52.0, at[2] + HOUR)
    assert restated["at"] == at[2] - HOUR / 2
    for silent in (at[3], at[4], at[5], at[6]):
        assert found[name(silent)]["label"] is None
    assert {row["hour"] for row in found.values()} <= set(at[1:50])


@pytest.mark.covers("decisions 3.6")
def test_a_report_from_after_the_cut_off_changes_no_row(session: SparkSession, spec: TrainingSetSpec) -> None:
    begins = spec.calendar.starts(dt.date(2013, 11, 1))
    known = [reading("JFK", begins + number * HOUR, 50.0 + number) for number in range(1, 49)]
    later = [
        reading("JFK", begins + 2 * HOUR, 9999.0, spec.as_of + HOUR),
        reading("LGA", begins + 3 * HOUR, 9999.0, spec.as_of + HOUR),
    ]
    assert asked(session, spec, weather(*known)) == asked(session, spec, weather(*known, *later))


def test_the_replay_asks_the_same_rows_and_sends_the_same_labels(session: SparkSession, spec: TrainingSetSpec) -> None:
    begins, ends = spec.calendar.starts(dt.date(2013, 11, 1)), spec.calendar.ends(dt.date(2013, 11, 2))
    table = weather(
        *(reading("JFK", begins + number * HOUR, 50.0 + number) for number in range(1, 49) if number % 7),
        *(reading("LGA", begins + number * HOUR, 40.0 + number) for number in range(5, 49)),
    )
    rows = asked(session, spec, table)
    past = Observations(QUESTION, spec.calendar)
    requests = {one.request_id: one for one in past.requests([{"weather": table}], begins, ends)}
    assert {name: (row["at"], row["origin"]) for name, row in rows.items()} == {
        name: (one.at, one.inputs["origin"]) for name, one in requests.items()
    }
    labels = {
        one.request_id: (one.label, one.known_at) for one in past.labels([{"weather": table}], begins, ends + HOUR)
    }
    known = {name: (row["label"], row["label_time"]) for name, row in rows.items() if row["label"] is not None}
    assert known == {name: label for name, label in labels.items() if name in rows}
