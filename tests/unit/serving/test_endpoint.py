"""Which packages an endpoint refuses before they can answer wrongly."""

from __future__ import annotations

import pytest

from feature_repo.catalogue import FEATURES
from feature_repo.views.flight import derive
from serving.contract import RequestInput
from serving.endpoint import _unfit
from tests.make import gateway as make

NAMES = make.package_ref().signature.numeric


def faults(*changed: RequestInput, left_out: str = "") -> list[str]:
    """The faults of the reference model's package with some request inputs replaced or left out."""
    kept = {item.name: item for item in (*make.REQUEST, *changed) if item.name != left_out}
    package = make.package_ref(serving=make.serving_block(request=tuple(kept.values())))
    return _unfit(derive, package, FEATURES, NAMES)


def test_the_reference_models_request_carries_every_key() -> None:
    assert faults() == []


@pytest.mark.parametrize(
    ("name", "datatype", "wanted"),
    [("flight", "BYTES", "INT64"), ("dest", "INT64", "BYTES"), ("flight", "FP64", "INT64")],
)
def test_a_key_of_another_type_would_never_be_found(name: str, datatype: str, wanted: str) -> None:
    said = faults(RequestInput(name=name, datatype=datatype))
    assert f"serving.request: the entity key '{name}' is {datatype}; the views are keyed by {wanted}" in said


def test_every_part_of_a_composite_key_is_needed() -> None:
    assert "serving.request: the entity key 'flight' is no request input" in faults(left_out="flight")


def test_a_view_that_is_not_there_is_named() -> None:
    said = _unfit(derive, make.package_ref(), {"tailnum": ("age",)}, NAMES)
    assert said[0].startswith("serving: no such view 'tailnum'; there are [")
