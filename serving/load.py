"""Asks a staged version under load: closed loops over batch and concurrency, open loops at and above the promised rate.

A closed loop asks again as soon as it was answered and finds the throughput; an open loop asks on time whatever happens,
and finds the latency that callers would see.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from tritonclient.utils import InferenceServerException

from artifacts.step import TryAgain, progress
from serving import pacing
from serving.contract import LoadPolicy, Slo
from serving.gate import Load, LoadPoint

AskBatch = Callable[[int], object]
"""Asks one request of so many rows; raises when there is no answer."""


def measure(ask: AskBatch, idle: Callable[[], object], slo: Slo, policy: LoadPolicy, max_batch: int) -> Load:
    """Every point of the load test, in the order in which they were measured.

    A promise that is missed is tried again, and longer while ``idle``, a request that computes nothing, is slow itself: then
    the machine is what is slow, and says nothing of the version. TryAgain when that does not end.
    """
    points: list[LoadPoint] = []
    for batch in sorted({min(size, max_batch) for size in policy.batches}):
        for callers in policy.concurrency:
            progress(0.9, f"load test: {callers} callers at batch {batch}")
            points.append(closed(ask, batch, callers, policy.closed_seconds))
    for factor in policy.rates:
        rate = slo.requests_per_second * factor
        progress(0.95, f"load test: {rate:g} requests a second")
        points.append(opened(ask, rate, policy.open_seconds))
    found = Load(points=tuple(points), limit_ms=slo.latency_p99_ms, requests_per_second=slo.requests_per_second)
    return _held(found, ask, idle, policy)


def _held(found: Load, ask: AskBatch, idle: Callable[[], object], policy: LoadPolicy) -> Load:
    """The load with more tries at the promised rate, as many as the promise needs; TryAgain when the machine stays busy."""
    rate = found.requests_per_second
    for number in range(1, policy.busy_attempts):
        if _kept(found):
            return found
        if number >= policy.attempts:
            alone = opened(lambda _: idle(), rate, policy.open_seconds).p99_ms
            found = found.model_copy(update={"idle_p99_ms": alone})
            if alone <= policy.idle_share * found.limit_ms:
                return found
        again = opened(ask, rate, policy.open_seconds)
        found = found.model_copy(update={"points": (*found.points, again)})
    if _kept(found) or found.idle_p99_ms is None:
        return found
    raise TryAgain(
        f"the machine is too busy to hold a version to its promise: requests that compute nothing have a p99 of "
        f"{found.idle_p99_ms:.1f} ms at {rate:g} a second, promised are {found.limit_ms:g} ms; end what "
        "else runs beside Triton, and release again"
    )


def _kept(found: Load) -> bool:
    return found.promised is not None and found.promised.p99_ms <= found.limit_ms


def closed(ask: AskBatch, batch: int, callers: int, seconds: float) -> LoadPoint:
    """``callers`` ask in turn without a pause."""
    end = time.monotonic() + seconds

    def one(_: int) -> tuple[list[float], int]:
        spent, errors = [], 0
        while (began := time.monotonic()) < end:
            try:
                ask(batch)
            except (InferenceServerException, TryAgain):
                errors += 1
            else:
                spent.append((time.monotonic() - began) * 1000)
        return spent, errors

    ask(batch)
    began = time.monotonic()
    with ThreadPoolExecutor(callers) as pool:
        found = list(pool.map(one, range(callers)))
    taken = time.monotonic() - began
    spent = [value for values, _ in found for value in values]
    p50, p95, p99 = np.percentile(spent, (50, 95, 99)) if spent else (np.nan, np.nan, np.nan)
    return LoadPoint(
        loop="closed",
        batch=batch,
        concurrency=callers,
        requests=len(spent),
        errors=sum(errors for _, errors in found),
        rows_per_second=len(spent) * batch / taken,
        p50_ms=float(p50),
        p95_ms=float(p95),
        p99_ms=float(p99),
    )


def opened(ask: AskBatch, rate: float, seconds: float) -> LoadPoint:
    """One row at a time at a fixed rate. Percentiles are medians over the seconds, so one stall of the machine is one second's."""
    rows = max(1, round(rate * seconds))

    def one(_: int) -> float:
        ask(1)
        return 0.0

    began = time.monotonic()
    (answers,) = pacing.ask_in_random_order([one], rows, seconds, 0)
    taken = time.monotonic() - began
    spent = [answers.milliseconds[(answers.second == second) & ~answers.failed] for second in np.unique(answers.second)]
    each = np.array([np.percentile(values, (50, 95, 99)) for values in spent if len(values)]).reshape(-1, 3)
    p50, p95, p99 = np.median(each, axis=0) if len(each) else (np.nan, np.nan, np.nan)
    return LoadPoint(
        loop="open",
        batch=1,
        concurrency=pacing.WORKERS,
        rate=rate,
        requests=int((~answers.failed).sum()),
        errors=int(answers.failed.sum()),
        rows_per_second=float((~answers.failed).sum() / taken),
        p50_ms=float(p50),
        p95_ms=float(p95),
        p99_ms=float(p99),
    )
