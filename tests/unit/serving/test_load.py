"""The load test: which points are measured, what counts as an answer, and when the promised rate is tried again."""

from __future__ import annotations

import math
import threading

import pytest
from tritonclient.utils import InferenceServerException

from artifacts.step import TryAgain
from serving import load
from serving.contract import LoadPolicy, Slo
from serving.gate import Load, LoadPoint, budget

POLICY = LoadPolicy(batches=(1, 32), concurrency=(1, 4), closed_seconds=0.05, rates=(1.0, 2.0), open_seconds=0.2)
SLO = Slo(latency_p99_ms=1000, requests_per_second=100)


class Server:
    """Answers at once, or with an error; remembers the batch sizes."""

    def __init__(self, *, fails: bool = False) -> None:
        self.fails, self.batches, self.lock = fails, list[int](), threading.Lock()

    def __call__(self, batch: int) -> None:
        with self.lock:
            self.batches.append(batch)
        if self.fails and len(self.batches) > 1:
            raise InferenceServerException("down")


def test_every_point_is_measured_and_none_above_the_largest_batch() -> None:
    server = Server()
    found = load.measure(server, nothing, SLO, POLICY, max_batch=16)
    closed = [(p.batch, p.concurrency) for p in found.points if p.loop == "closed"]
    assert closed == [(1, 1), (1, 4), (16, 1), (16, 4)]
    assert [p.rate for p in found.points if p.loop == "open"] == [100, 200]
    assert all(p.requests > 0 and not p.errors and p.p50_ms <= p.p95_ms <= p.p99_ms for p in found.points)
    assert [p.requests for p in found.points if p.loop == "open"] == [20, 40]
    assert set(server.batches) == {1, 16}
    assert budget(found, 0.001, 1.5).status == "pass"


def test_errors_are_counted_and_no_answer_is_no_percentile() -> None:
    point = load.closed(Server(fails=True), 1, 2, 0.02)
    assert (point.requests, point.rows_per_second) == (0, 0)
    assert point.errors > 0
    assert math.isnan(point.p99_ms)


def at(p99_ms: float, rate: float = 100) -> LoadPoint:
    fields = {"loop": "open", "batch": 1, "concurrency": 16, "rate": rate, "requests": 20, "errors": 0}
    return LoadPoint.model_validate({**fields, "rows_per_second": rate, "p50_ms": 1, "p95_ms": 2, "p99_ms": p99_ms})


@pytest.mark.parametrize(
    ("answers", "status"),
    [
        ([3, 9], "pass"),
        ([30, 40, 3], "pass"),
        ([30, 40, 31, 32, 1], "fail"),  # the last is the empty request: the machine is idle, so the version is slow
        ([math.nan, 40, math.nan, 31, 1], "fail"),
        ([30, 40, 31, 32, 9, 14], "pass"),  # empty requests take 9 ms, so the machine is busy, and it is tried again
        ([30, 40, 31, 32, math.nan, 33, 2], "fail"),
    ],
)
def test_the_promised_rate_is_tried_again_while_the_machine_is_busy_and_the_best_counts(
    monkeypatch: pytest.MonkeyPatch, answers: list[float], status: str
) -> None:
    left = list(answers)
    monkeypatch.setattr(load, "opened", lambda ask, rate, seconds: at(left.pop(0), rate))  # noqa: ARG005  its interface
    policy = POLICY.model_copy(update={"batches": (), "busy_attempts": 5})
    found = load.measure(Server(), nothing, Slo(latency_p99_ms=15, requests_per_second=100), policy, 16)
    assert left == [], "fewer tries than were needed, or more than allowed"
    assert budget(found, 0.001, 1.5).status == status


def test_a_machine_that_stays_busy_says_nothing_of_the_version(monkeypatch: pytest.MonkeyPatch) -> None:
    left = [30.0, 40, 31, 32, 9, 33, 9, 34]
    monkeypatch.setattr(load, "opened", lambda ask, rate, seconds: at(left.pop(0), rate))  # noqa: ARG005  its interface
    policy = POLICY.model_copy(update={"batches": (), "busy_attempts": 5})
    with pytest.raises(TryAgain, match=r"p99 of 9\.0 ms at 100 a second, promised are 15 ms; end what else runs"):
        load.measure(Server(), nothing, Slo(latency_p99_ms=15, requests_per_second=100), policy, 16)
    assert left == []


def test_a_refusal_says_what_an_empty_request_takes() -> None:
    found = Load(points=(at(22.5),), limit_ms=15, requests_per_second=100, idle_p99_ms=0.81)
    assert budget(found, 0.001, 1.5).reason == (
        "p99 is 22.50 ms at 100 requests a second, promised are 15 ms; a request that computes nothing takes 0.81 ms"
    )


def nothing() -> None:
    """A request that computes nothing."""
