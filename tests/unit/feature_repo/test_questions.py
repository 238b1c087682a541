"""A question declares its rows, its label and what it can reach; flights keep the layout and the keys that they had."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pydantic import TypeAdapter, ValidationError

from artifacts.refs import file_uri
from artifacts.step import DataFault
from feature_repo.catalogue import VIEWS, feature_columns
from feature_repo.contract import (
    FLIGHT_OUTCOME,
    CheckPolicy,
    FlightOutcome,
    NextObservation,
    Question,
    TrainingSetSpec,
)
from feature_repo.expectations import training_set
from feature_repo.questions import layout
from feature_repo.snapshot import dataset_key
from feature_repo.training_set import finish
from feature_repo.views import flight, station
from tests.make import feature_repo as make

POLICY = CheckPolicy()
TEMPERATURE = NextObservation(value="temp")


def spec(root: Path, question: Question) -> TrainingSetSpec:
    uri = file_uri(root / "x")
    return make.training_set_spec(uri, uri, uri, "2013-11-04", "2013-11-01", question=question, known_share=0.5)


def test_a_flights_spec_says_nothing_that_it_did_not_say_before(tmp_path: Path) -> None:
    """The question is no part of its JSON, so sets that were made before there were questions keep their keys."""
    flights, weather = spec(tmp_path, FLIGHT_OUTCOME), spec(tmp_path, TEMPERATURE)
    assert "question" not in flights.model_dump(mode="json")
    assert weather.model_dump(mode="json")["question"] == {
        "kind": "next_observation",
        "value": "temp",
        "notice": "PT30M",
    }
    for one in (flights, weather):
        assert TrainingSetSpec.model_validate_json(one.model_dump_json()) == one
    other = spec(tmp_path, NextObservation(value="visib"))
    assert len({dataset_key(one) for one in (flights, weather, other)}) == 3


def test_a_question_is_read_by_its_kind() -> None:
    read = TypeAdapter(Question).validate_python
    assert read({"kind": "flight_outcome"}) == FlightOutcome()
    assert read({"kind": "next_observation", "value": "temp"}) == TEMPERATURE
    with pytest.raises(ValidationError, match="next_week"):
        read({"kind": "next_week"})


def test_the_layout_of_flights_is_that_of_request_and_all_views() -> None:
    found = layout(FLIGHT_OUTCOME, POLICY)
    assert found.views == tuple(VIEWS)
    assert found.schema.names == [
        *("row_id", "day", "at", "label", "label_time"),
        *(*flight.REQUEST, *flight.NUMERIC, *flight.CATEGORICAL),
        *feature_columns(),
    ]
    assert found.schema.field("label").type == pa.int8()


def test_a_station_reaches_the_views_that_its_origin_names() -> None:
    found = layout(TEMPERATURE, POLICY)
    assert found.views == ("origin", "weather", "congestion")
    assert found.schema.field("label").type == pa.float64()
    assert {"station__hour", "weather__temp", "origin__late_share_3h"} <= set(found.schema.names)
    assert not {"carrier__late_share_3h", "route__late_share_3h"} & set(found.schema.names)


def test_the_suite_asks_for_a_label_in_the_readings_range_and_for_no_flights() -> None:
    suite, of_days = training_set.suites(POLICY, 3, TEMPERATURE)
    rules = {rule.key: rule for rule in suite.rules}
    assert rules["range:label"].kwargs == {"column": "label", "min_value": -60, "max_value": 140}
    assert rules["type:label"].kwargs["type_"] == "DoubleType"
    assert "at = hour - INTERVAL 1800 SECONDS" in rules["in_order"].kwargs["description"]
    assert len(rules["set:station__hour"].kwargs["value_set"]) == 24
    assert not [key for key in rules if "flight" in key or "set:label" in key]
    assert "labels_known" in {rule.key for rule in of_days.rules}
    flights, _ = training_set.suites(POLICY, 3)
    assert "set:label" in {rule.key for rule in flights.rules}
    asked = layout(TEMPERATURE, POLICY)
    assert training_set.not_features(asked) == {"row_id", "day", "at", "label", "label_time", "hour"}


def test_what_is_derived_is_the_hour_in_new_york(tmp_path: Path) -> None:
    columns = {
        "origin": np.array(["JFK", "EWR"], dtype=object),
        "hour": np.array(["2013-07-01T15:00:00", "NaT"], dtype="datetime64[us]"),
    }
    found = station.derive(columns)
    assert found["station__hour"].tolist() == ["11", None]
    assert found["station__origin"].tolist() == ["JFK", "EWR"]
    winter = station.derive({**columns, "hour": np.array(["2013-01-01T04:59:00", "2013-01-01T05:00:00"], "M8[us]")})
    assert winter["station__hour"].tolist() == ["23", "0"]
    assert set(found) == set(station.CATEGORICAL) == set(layout(TEMPERATURE, POLICY).derived)


def test_rows_of_a_regression_are_dated_by_when_they_ask_and_keep_their_numbers(tmp_path: Path) -> None:
    asked = spec(tmp_path, TEMPERATURE)
    begins = asked.calendar.starts(dt.date(2013, 11, 2))
    hours = [begins - dt.timedelta(hours=1), begins, begins + dt.timedelta(hours=1)]
    rows = [
        {
            "row_id": f"r{place}",
            "origin": "JFK",
            "hour": hour,
            "at": hour - asked.question.notice,
            "label": 40.5 + place,
        }  # type: ignore[union-attr]
        for place, hour in enumerate(hours)
    ]
    table = pa.Table.from_pylist(rows).append_column("label_time", pa.array(hours, pa.timestamp("us", "UTC")))
    for name in layout(TEMPERATURE, POLICY).features:
        table = table.append_column(name, pa.nulls(len(rows), pa.float64()))
    found, _ = finish(asked, table, 3)
    first, second = dt.date(2013, 11, 1), dt.date(2013, 11, 2)
    assert found["day"].to_pylist() == [first, first, second]  # at the end of a day is in it, as in the lake
    assert found["label"].to_pylist() == [40.5, 41.5, 42.5]
    assert found.schema.names == layout(TEMPERATURE, POLICY).schema.names


def test_a_reading_that_the_weather_lacks_is_refused_by_name() -> None:
    with pytest.raises(
        DataFault, match=r"question\.value: 'mood' is no reading of the weather; it has \['temp', 'dewp'"
    ):
        layout(NextObservation(value="mood"), POLICY)
