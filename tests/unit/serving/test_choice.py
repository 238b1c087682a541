"""Which engine serves, and how requests are put together: by the table alone."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.choice import batching, choose, ratio
from serving.contract import Slo
from serving.engine_contract import EngineName, EnginePolicy, EngineRow

POLICY = EnginePolicy()


def row(engine: EngineName = "onnxruntime", **changes: Any) -> EngineRow:
    fields = {
        "engine": engine,
        "precision": "fp32",
        "status": "passed",
        "reason": "",
        "milliseconds": {1: 0.1, 256: 2.0},
    }
    return EngineRow.model_validate({**fields, **changes})


@pytest.mark.parametrize(
    ("others", "chosen"),
    [
        ([], "onnxruntime"),
        ([row("openvino", milliseconds={1: 0.05, 256: 1.0})], "openvino"),
        ([row("openvino", milliseconds={1: 0.05, 256: 1.0}, status="failed")], "onnxruntime"),
        ([row("openvino", milliseconds={1: 0.096, 256: 1.92})], "onnxruntime"),  # 4 %: less than it is worth
        ([row("openvino", milliseconds={1: 0.2, 256: 1.2})], "onnxruntime"),  # faster at one size, slower over both
        ([row("openvino", milliseconds={1: 0.01})], "onnxruntime"),  # not timed at every size
        ([row("openvino", milliseconds={})], "onnxruntime"),
        (
            [
                row("openvino", milliseconds={1: 0.08, 256: 1.6}),
                row("onnxruntime-int8-static", milliseconds={1: 0.05, 256: 1.0}),
            ],
            "onnxruntime-int8-static",
        ),
    ],
)
def test_the_fastest_that_passed_is_chosen_when_it_is_worth_it(others: list[EngineRow], chosen: str) -> None:
    name, reason = choose([row(), *others], POLICY)
    assert name == chosen
    assert chosen in reason


def test_what_did_not_pass_never_serves() -> None:
    rows = [row(status="failed", reason="off by 0.1"), row("openvino")]
    assert choose(rows, POLICY)[0] == "openvino"
    with pytest.raises(LookupError, match=r"onnxruntime: off by 0\.1"):
        choose(rows[:1], POLICY)


def test_without_times_the_plain_engine_serves() -> None:
    rows = [row("openvino", milliseconds={}), row(milliseconds={})]
    assert choose(rows, POLICY) == ("onnxruntime", "onnxruntime is the first that passed; nothing was timed")


@given(st.lists(st.floats(0.01, 100), min_size=2, max_size=2), st.floats(0.1, 10))
def test_the_ratio_of_times_has_no_unit(times: list[float], factor: float) -> None:
    ours = dict(zip((1, 256), times, strict=True))
    assert ratio({size: time * factor for size, time in ours.items()}, ours) == pytest.approx(factor)


@pytest.mark.parametrize(
    ("times", "preferred"),
    [
        ({1: 0.1, 32: 0.5, 256: 2.0}, (32, 256)),
        ({1: 0.1, 32: 0.5, 256: 8.0}, (32,)),  # 8 ms is more than half of the promised 15
        ({1: 0.1, 32: 0.5, 256: 4.5}, (32,)),  # no cheaper per row
        ({1: 0.1, 32: 3.2}, (8,)),  # batches gain nothing: as the policy says
        ({}, (8,)),
    ],
)
def test_preferred_sizes_come_from_the_timing_table(times: dict[int, float], preferred: tuple[int, ...]) -> None:
    found = batching(row(milliseconds=times), Slo(), 1024, 8)
    assert found.preferred == preferred
    assert found.queue_delay_microseconds == 150, "1 % of the promised 15 ms"


def test_a_preferred_size_is_never_larger_than_the_largest() -> None:
    assert batching(row(milliseconds={1: 0.1, 32: 0.5}), Slo(), 16, 32).preferred == (16,)
    assert batching(None, Slo(latency_p99_ms=100), 16, 8).queue_delay_microseconds == 1000
