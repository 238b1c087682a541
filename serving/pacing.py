"""Asks versions the same requests in random order at a fixed rate, whatever they answer (an open loop), over gRPC.

A latency runs from the instant at which the request was due, so a server that stalls cannot hide the requests that
waited behind it. Batch size is 1, as callers send.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from tritonclient.utils import InferenceServerException

from artifacts.step import TryAgain, progress
from serving.gate import Arm

WORKERS = 16
WARM_REQUESTS = 20

Floats = npt.NDArray[np.float64]
Ask = Callable[[int], float]
"""Asks one row by its number and returns its score; raises when there is no answer."""


@dataclass(frozen=True)
class Answers:
    """What one version said to rows 0..N-1, each [N]: score (NaN for none), latency, whether it failed, its second."""

    score: Floats
    milliseconds: Floats
    failed: npt.NDArray[np.bool_]
    second: npt.NDArray[np.int64]


@dataclass(frozen=True)
class Points:
    """One point per second with an answer: per-second p50 and p99 in milliseconds, and the share of errors."""

    second: npt.NDArray[np.int64]
    p50_ms: Floats
    p99_ms: Floats
    error_rate: Floats


def together(first: Answers, second: Answers) -> Answers:
    """Both trials' answers as one, [N + M]; the seconds of the second follow those of the first."""
    after = int(first.second.max()) + 1 if len(first.second) else 0
    return Answers(
        np.concatenate([first.score, second.score]),
        np.concatenate([first.milliseconds, second.milliseconds]),
        np.concatenate([first.failed, second.failed]),
        np.concatenate([first.second, second.second + after]),
    )


def ask_in_random_order(arms: Sequence[Ask], rows: int, seconds: float, seed: int) -> tuple[Answers, ...]:
    """Every arm is asked every row once, in one random order, spread evenly over ``seconds``."""
    found = tuple(
        Answers(np.full(rows, np.nan), np.full(rows, np.nan), np.ones(rows, dtype=bool), np.zeros(rows, dtype=np.int64))
        for _ in arms
    )
    for ask in arms:  # the first requests of a connection are slow for both, and count for neither
        for row in range(min(WARM_REQUESTS, rows)):
            _answer(ask, row)
    order = np.random.default_rng(seed).permutation(len(arms) * rows)
    gap = seconds / max(len(order), 1)
    began = time.monotonic()

    def one(place: int, due: float) -> None:
        arm, row = divmod(int(order[place]), rows)
        score = _answer(arms[arm], row)
        answers = found[arm]
        answers.milliseconds[row] = (time.monotonic() - due) * 1000
        answers.second[row] = int(due - began)
        if score is not None:
            answers.score[row], answers.failed[row] = score, False

    asked = []
    with ThreadPoolExecutor(WORKERS) as pool:
        for place in range(len(order)):
            due = began + place * gap
            time.sleep(max(0.0, due - time.monotonic()))
            asked.append(pool.submit(one, place, due))
            progress(0.1 + 0.8 * place / len(order), f"asked {place} of {len(order)} requests")
    for future in asked:
        future.result()  # raises what is no answer of a version but a fault of ours
    return found


def _answer(ask: Ask, row: int) -> float | None:
    try:
        return ask(row)
    except (InferenceServerException, TryAgain):  # an error of one arm is evidence, not the end of the judgement
        return None


def points(answers: Answers) -> Points:
    """The answers' latency and errors per second; seconds without any answer give no point."""
    kept = []
    for second in np.unique(answers.second):
        here = answers.second == second
        spent = answers.milliseconds[here & ~answers.failed]
        if len(spent):
            kept.append((second, np.percentile(spent, 50), np.percentile(spent, 99), answers.failed[here].mean()))
    columns = np.array(kept, dtype=np.float64).reshape(-1, 4).T
    return Points(columns[0].astype(np.int64), columns[1], columns[2], columns[3])


def arm(answers: Answers) -> Arm:
    """The figures of one version."""
    found = points(answers)
    some = len(found.second) > 0
    return Arm(
        requests=len(answers.score),
        errors=int(answers.failed.sum()),
        not_finite=int((~np.isfinite(answers.score[~answers.failed])).sum()),
        points=len(found.second),
        p50_ms=round(float(np.median(found.p50_ms)), 3) if some else None,
        p99_ms=round(float(np.median(found.p99_ms)), 3) if some else None,
    )
