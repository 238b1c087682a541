"""What is missing or stale is counted by why, and refused where the model's policy does not impute."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from serving.answer import Answerer, Refusal
from serving.endpoint import Arm
from serving.metrics import Metrics
from tests.make import gateway as make

STATES = {"carrier": ["present", "expired"], "origin": ["absent", "absent"]}


def answerer() -> tuple[Answerer, Metrics]:
    metrics, unused = Metrics(), None
    parts: Any = {"reader": unused, "triton": unused, "writer": unused, "clock": unused}
    return Answerer(**parts, metrics=metrics, keep=dt.timedelta(days=1)), metrics


def arm(missing: str) -> Arm:
    return Arm(make.deployed(1, make.package_ref(serving=make.serving_block(missing=missing))), dict, {}, ())


def counted(metrics: Metrics, view: str, status: str) -> float:
    labels = {"model": make.MODEL, "view": view, "status": status}
    return metrics.registry.get_sample_value("perennial_missing_view_rows_total", labels) or 0.0


def refused_rows(metrics: Metrics) -> float:
    return metrics.registry.get_sample_value("perennial_refused_rows_total", {"model": make.MODEL}) or 0.0


@pytest.mark.parametrize("missing", ["impute", "refuse"])
def test_missing_rows_are_counted_under_both_policies(missing: str) -> None:
    found, metrics = answerer()
    places = (("carrier", "expired"), ("origin", "absent"))
    for view, status in places:  # where another test has set Prometheus up for several processes, values are shared
        metrics.missing.labels(make.MODEL, view, status)
    metrics.refused_rows.labels(make.MODEL)
    before = [counted(metrics, *place) for place in places]
    refused_before = refused_rows(metrics)
    if missing == "refuse":
        with pytest.raises(Refusal, match=r"carrier \(expired\): 1 rows, origin \(absent\): 2 rows") as refused:
            found._hold(arm(missing), STATES)
        assert refused.value.status == 422
    else:
        found._hold(arm(missing), STATES)
    after = [counted(metrics, *place) for place in places]
    assert [now - then for now, then in zip(after, before, strict=True)] == [1.0, 2.0]
    assert refused_rows(metrics) - refused_before == (2.0 if missing == "refuse" else 0.0)


def test_a_store_that_is_away_is_worth_another_try_and_fresh_rows_pass() -> None:
    found, _ = answerer()
    with pytest.raises(Refusal) as refused:
        found._hold(arm("refuse"), {"carrier": ["unavailable"]})
    assert (refused.value.status, refused.value.retry_after) == (503, 1)
    found._hold(arm("refuse"), {"carrier": ["present"]})
