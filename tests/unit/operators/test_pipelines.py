"""The rows: their parts are for one kind of label, and what a row names is there."""

from __future__ import annotations

import dataclasses

import pytest

from feature_repo.contract import FLIGHT_OUTCOME, CheckPolicy, NextObservation
from feature_repo.expectations.raw_day import WEATHER_RANGES
from feature_repo.questions import layout
from operators.pipelines import PIPELINES, Pipeline, pipeline
from serving.contract import RequestInput
from training.measures import DECIDING

DATATYPES = {"string": "BYTES", "int64": "INT64", "double": "FP64", "timestamp[us, tz=UTC]": "BYTES"}


def test_parts_for_different_kinds_of_label_are_refused_by_name() -> None:
    row = pipeline("next_hour_temperature")
    with pytest.raises(
        ValueError, match=r"recipe\.TASK is 'regression', the labels of flight_outcome are a classification's"
    ):
        dataclasses.replace(row, question=FLIGHT_OUTCOME)
    served = row.serving.model_copy(update={"task": "classification"})
    with pytest.raises(ValueError, match=r"serving\.task is 'classification'"):
        dataclasses.replace(row, serving=served)


@pytest.mark.parametrize("row", PIPELINES, ids=lambda row: row.model)
def test_a_request_is_what_the_question_asks_with(row: Pipeline) -> None:
    """The same columns in training and in the gateway, by the same view."""
    asked = layout(row.question, CheckPolicy())
    wanted = {item.name: (item.datatype, item.time) for item in row.serving.request}
    found = {name: (DATATYPES[str(kind)], name in asked.instants) for name, kind in asked.request.items()}
    assert wanted == found
    assert asked.derive.__module__ == f"feature_repo.views.{row.serving.request_view}"
    assert row.serving.routing_key in asked.request


@pytest.mark.parametrize("row", PIPELINES, ids=lambda row: row.model)
def test_a_recipe_reads_what_its_training_set_holds(row: Pipeline) -> None:
    columns = layout(row.question, CheckPolicy()).schema.names
    read = {*row.recipe.COLUMNS.numeric, *row.recipe.COLUMNS.categorical}
    read |= {dimension.column for dimension in row.recipe.DIMENSIONS} | {row.recipe.PERSISTENCE or "label"}
    assert read <= set(columns)
    assert row.recipe.MODEL == row.model == row.recipe.RECIPE.model


def test_a_regression_is_judged_by_its_error_against_a_column_that_persists() -> None:
    row = pipeline("next_hour_temperature")
    assert isinstance(row.question, NextObservation)
    assert row.question.value in WEATHER_RANGES
    assert DECIDING[row.recipe.TASK].field == "mae"
    assert f"weather__{row.question.value}" == row.recipe.PERSISTENCE
    assert all(isinstance(item, RequestInput) for item in row.serving.request)
