"""Labels that callers send: 0 and 1 for a classification, any finite number for a regression, and nothing unknown in between."""

from __future__ import annotations

import json

import pytest

from serving.answer import Refusal, misfit, parse_feedback
from serving.contract import Feedback
from serving.endpoint import Arm
from tests.make import gateway as make


def arm(task: str) -> Arm:
    package = make.package_ref(serving=make.serving_block(task=task))
    return Arm(make.deployed(1, package), dict, {}, ())


def label(value: float) -> Feedback:
    return Feedback(request_id="a", label=value, known_at=make.instant(1, 18))


@pytest.mark.parametrize("value", [0, 1])
def test_a_class_fits_every_model(value: int) -> None:
    assert misfit(label(value), arm("classification")) is None
    assert misfit(label(value), arm("regression")) is None
    assert misfit(label(value), None) is None


def test_a_number_fits_a_regression_only() -> None:
    assert misfit(label(61.5), arm("regression")) is None
    said = misfit(label(61.5), arm("classification"))
    assert said == "feedback.label: 61.5 is neither 0 nor 1 (request 'a'); send the class"
    assert "no version is loaded" in (misfit(label(61.5), None) or "")


@pytest.mark.parametrize("value", ["NaN", "Infinity", '"warm"', "null"])
def test_what_is_no_finite_number_is_refused_by_field(value: str) -> None:
    body = f'{{"request_id": "a", "label": {value}, "known_at": "2013-09-01T18:00:00Z"}}'
    with pytest.raises(Refusal, match="label") as refused:
        parse_feedback(body.encode())
    assert refused.value.status == 400


def test_a_class_stays_a_whole_number_in_the_log() -> None:
    assert json.loads(label(1).model_dump_json())["label"] == 1
    assert '"label":1,' in label(1).model_dump_json()
