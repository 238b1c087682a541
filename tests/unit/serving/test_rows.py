"""Each value of a request is checked, and each problem is one line with its place, the value and the fix."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from serving.oip import InferRequest, WireFault, decode
from serving.rows import MOST_PROBLEMS, RowFault, Rows, check
from tests.make import gateway as make


def request(request_id: str = "", **changes: Any) -> InferRequest:
    return decode(json.dumps(make.infer_body(request_id, **changes)).encode())


def batch(size: int, **columns: list[Any]) -> InferRequest:
    body = make.infer_body()
    for entry in body["inputs"]:
        entry["data"], entry["shape"] = columns.pop(entry["name"], entry["data"] * size), [size, 1]
    body["inputs"] += [
        {"name": name, "datatype": "BYTES", "shape": [len(values)], "data": values} for name, values in columns.items()
    ]
    return decode(json.dumps(body).encode())


def rows(found: InferRequest, max_batch: int = 8) -> Rows:
    return check(make.REQUEST, found, max_batch)


def problems(found: InferRequest) -> list[str]:
    with pytest.raises(RowFault) as fault:
        rows(found)
    return fault.value.problems


def test_columns_are_typed_for_derive_and_kept_as_sent() -> None:
    found = rows(request("r1", scheduled_departure="2013-09-01T12:00:00-04:00"))
    assert found.request_ids == ("r1",)
    assert found.columns["scheduled_departure"] == np.array(["2013-09-01T16:00:00"], dtype="datetime64[us]")
    assert found.columns["carrier"].tolist() == ["UA"]
    assert found.sent[0] == {**make.INPUTS, "scheduled_departure": "2013-09-01T12:00:00-04:00"}


def test_request_ids() -> None:
    assert rows(batch(2, request_id=["a", "b"])).request_ids == ("a", "b")
    fresh = rows(batch(2)).request_ids
    assert len(set(fresh)) == 2
    assert problems(batch(2, request_id=["a", "a"])) == [
        "request_id: the same id twice in one request; every row needs its own"
    ]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"carrier": None}, "carrier: is missing"),
        ({"tail": "N1"}, "'tail': no such input; there are ['carrier', 'dest'"),
        ({"carrier": ""}, "carrier[0]: has 0 characters; send 1 to 200"),
        ({"carrier": "\n"}, "carrier[0]: '\\n' has characters that cannot be printed"),
        ({"distance": float("nan")}, "distance[0]: nan is no finite number"),
        ({"distance": float("inf")}, "distance[0]: inf is no finite number"),
        ({"scheduled_departure": "2013-09-01"}, "scheduled_departure[0]: '2013-09-01' has no zone; write it as"),
        ({"scheduled_arrival": "soon"}, "scheduled_arrival[0]: 'soon' is no time; write it as 2013-09-01T13:00:00Z"),
        ({"scheduled_arrival": "0001-01-01T00:00:00+23:00"}, "scheduled_arrival[0]: '0001-01-01T00:00:00+23:00' is no"),
    ],
)
def test_a_problem_is_said_in_one_line(changes: dict[str, Any], said: str) -> None:
    found = problems(request(**changes))
    assert len(found) == 1
    assert found[0].startswith(said)


def test_wrong_datatype_shape_and_size() -> None:
    body = make.infer_body()
    body["inputs"][1]["datatype"] = "INT32"
    assert problems(decode(json.dumps(body).encode())) == ["flight: datatype is INT32; send INT64"]
    body = make.infer_body()
    body["inputs"][0] |= {"shape": [1, 2], "data": ["UA", "AA"]}
    assert problems(decode(json.dumps(body).encode()))[0] == "carrier: shape [1, 2] is neither [rows] nor [rows, 1]"
    assert problems(batch(9)) == ["a request has 1 to 8 rows, this one has 9; send several requests"]
    assert problems(batch(0))[0].startswith("a request has 1 to 8 rows, this one has 0")


def test_many_problems_are_cut_short() -> None:
    found = batch(50, distance=[float("nan")] * 50)
    with pytest.raises(RowFault) as fault:
        rows(found, max_batch=64)
    assert len(fault.value.problems) == MOST_PROBLEMS + 1
    assert fault.value.problems[-1] == "and 30 more problems"


@given(
    carrier=st.text(max_size=5),
    flight=st.integers() | st.floats() | st.none(),
    departure=st.text(max_size=30) | st.datetimes().map(lambda value: value.isoformat()),
    distance=st.floats() | st.integers() | st.text(max_size=3),
)
def test_any_values_are_taken_or_refused(carrier: str, flight: Any, departure: str, distance: Any) -> None:
    try:
        found = rows(request(carrier=carrier, flight=flight, scheduled_departure=departure, distance=distance))
    except (WireFault, RowFault) as fault:
        event(str(fault).partition(":")[0])
        return
    assert np.isfinite(found.columns["distance"]).all()
    assert not np.isnat(found.columns["scheduled_departure"]).any()
