"""A real gateway before a real tritonserver, and 1,000 requests that no client would send: never a 500, never a trace."""

from __future__ import annotations

import copy
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from artifacts.records import Records
from feature_repo.contract import DatasetRef
from serving.contract import TritonServer
from tests.make import gateway as make
from tests.make.toy_step import wait_for

pytestmark = pytest.mark.triton
INFER = f"/v2/models/{make.MODEL}/infer"

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=20),
    st.sampled_from([
        "",
        "UA",
        "2013-09-01T16:00:00Z",
        "9999-12-31T23:59:59-12:00",
        "0001-01-01T00:00:00+14:00",
        2**63,
        1e308,
    ]),
)
JUNK = st.recursive(
    SCALARS, lambda one: st.lists(one, max_size=4) | st.dictionaries(st.text(max_size=8), one, max_size=3), max_leaves=6
)
DATATYPES = st.sampled_from(["BYTES", "INT64", "FP64", "FP32", "BOOL", "UINT8", "FP16", "NOPE"])
SHAPES = st.lists(st.sampled_from([-1, 0, 1, 2, 3, 2**31 - 1, 2**40]), max_size=4)


CHANGES: dict[str, st.SearchStrategy[Any]] = {
    "data": st.lists(SCALARS, max_size=3) | JUNK,
    "shape": SHAPES,
    "datatype": DATATYPES,
    "name": JUNK,
    "parameters": JUNK,
    "id": JUNK,
    "outputs": JUNK,
    "_parameters": st.dictionaries(st.sampled_from(["timeout", "binary_data_output", "x"]), JUNK, max_size=2),
}
OF_THE_HEAD = {"id", "outputs", "_parameters"}


@st.composite
def bodies(draw: st.DrawFn) -> bytes:
    """Bytes of any kind, any JSON, or a sound request with one to three parts changed."""
    kind = draw(st.sampled_from(["bytes", "json", "changed", "changed", "changed"]))
    if kind == "bytes":
        return draw(st.binary(max_size=200))
    if kind == "json":
        return json.dumps(draw(JUNK)).encode()
    body: dict[str, Any] = copy.deepcopy(make.infer_body("fuzz"))
    for _ in range(draw(st.integers(1, 3))):
        entry = draw(st.sampled_from(body["inputs"]))
        place = draw(st.sampled_from(sorted(CHANGES)))
        (body if place in OF_THE_HEAD else entry)[place.lstrip("_")] = draw(CHANGES[place])
    return json.dumps(body).encode()


HEADERS = st.dictionaries(
    st.sampled_from([
        "Inference-Header-Content-Length",
        "Content-Encoding",
        "Accept-Encoding",
        "X-Request-Id",
        "Content-Type",
    ]),
    st.sampled_from(["0", "7", "-1", "99999999999999", "gzip", "deflate", "br", "application/json", "x" * 300]),
    max_size=2,
)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzzed")


@pytest.fixture(scope="module")
def records(root: Path) -> Records:
    kept = make.records(root)
    make.clock(kept).advance(make.instant(1, 14, 20))
    return kept


@pytest.fixture(scope="module")
def served(root: Path, records: Records, triton: TritonServer, dataset: DatasetRef) -> Iterator[make.Process]:
    make.route(records, make.staged(root, dataset, triton, 951))
    changes = {"PERENNIAL_GATEWAY_BODY_SECONDS": "0.5", "PERENNIAL_GATEWAY_CONCURRENCY": "2"}
    with make.gateway(root, triton.grpc, **changes) as process:
        yield process


@pytest.fixture(scope="module")
def client(served: make.Process) -> Iterator[httpx.Client]:
    with served.client() as found:
        wait_for(lambda: found.get("/v2/health/ready").status_code == 200)
        yield found


def test_a_thousand_fuzzed_requests_get_no_500_and_no_trace(client: httpx.Client) -> None:
    statuses: dict[int, int] = {}

    @settings(
        max_examples=1000, derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck)
    )
    @given(body=bodies(), headers=HEADERS)
    def ask(body: bytes, headers: dict[str, str]) -> None:
        answer = client.post(INFER, content=body, headers=headers)
        statuses[answer.status_code] = statuses.get(answer.status_code, 0) + 1
        assert answer.status_code in {200, 400, 413}, (answer.status_code, body, headers)
        assert answer.status_code == 200 or list(answer.json()) == ["error"]
        assert "Traceback" not in answer.text
        assert answer.headers["X-Request-Id"]

    ask()
    assert sum(statuses.values()) >= 1000
    assert statuses[200] > 20  # the changes are small enough to get far
    assert 'status="500"' not in client.get("/metrics").text


def test_slow_callers_are_given_up_and_hold_nobody_else_off(served: make.Process, client: httpx.Client) -> None:
    host, port = served.url.removeprefix("http://").split(":")
    head = f"POST {INFER} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {make.TOKEN}\r\nContent-Length: 100\r\n\r\n{{"
    slow = [socket.create_connection((host, int(port))) for _ in range(8)]  # four times the concurrency
    for line in slow:
        line.sendall(head.encode())
    assert client.post(INFER, json=make.infer_body("quick")).status_code == 200
    for line in slow:
        line.settimeout(10)
        assert line.recv(100).startswith(b"HTTP/1.1 408")
        line.close()
    assert client.post(INFER, json=make.infer_body("after")).status_code == 200


def test_a_huge_batch_and_a_huge_body_are_refused_in_one_line(client: httpx.Client) -> None:
    body = make.infer_body()
    for entry in body["inputs"]:
        entry["shape"], entry["data"] = [5000, 1], entry["data"] * 5000
    answer = client.post(INFER, json=body)
    assert answer.status_code == 400
    assert "rows, this one has 5000; send several requests" in answer.json()["error"]
    assert client.post(INFER, content=b"x" * (10 << 20)).status_code == 413


def test_a_caller_who_waits_for_a_microsecond_gets_503_in_time(client: httpx.Client) -> None:
    answer = client.post(INFER, json={**make.infer_body("hasty"), "parameters": {"timeout": 1}})
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
    assert client.post(INFER, json={**make.infer_body("calm"), "parameters": {"timeout": 5_000_000}}).status_code == 200
