"""Which engine serves a package, and how its requests may be put together: from the table alone. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from serving.contract import Slo
from serving.engine_contract import PLAIN, EngineName, EnginePolicy, EngineRow
from serving.repository import Batching

GAIN = 0.9  # a larger batch is preferred while a row in it costs at most this share of a row in the smaller one
DELAY_SHARE = 0.01  # of the promised p99: what a lonely request may wait for company that does not come


def choose(rows: Sequence[EngineRow], policy: EnginePolicy) -> tuple[EngineName, str]:
    """The fastest engine that passed, and why; LookupError when none did.

    Speed is the geometric mean over the timed batch sizes of the time against the plain engine's, so each size counts the
    same. The plain engine is left only for one that is faster by ``worth``.
    """
    passed = {row.engine: row for row in rows if row.status == "passed"}
    if not passed:
        raise LookupError("no engine passed: " + "; ".join(f"{row.engine}: {row.reason}" for row in rows))
    base = passed.get(PLAIN) or next(iter(passed.values()))
    if not base.milliseconds:
        return base.engine, f"{base.engine} is the first that passed; nothing was timed"
    ratios = {name: ratio(row.milliseconds, base.milliseconds) for name, row in passed.items()}
    best = min(ratios, key=lambda name: (ratios[name], name != base.engine))
    if best == base.engine:
        return best, f"{best} is the fastest of {len(passed)} that passed"
    if not ratios[best] <= 1 - policy.worth:
        share = f"{ratios[best]:.2f} x its time, more than {1 - policy.worth:.2f}"
        return base.engine, f"{base.engine} stays: the fastest other, {best}, takes {share}"
    return best, f"{best} takes {ratios[best]:.2f} x the time of {base.engine} and passed"


def ratio(ours: Mapping[int, float], base: Mapping[int, float]) -> float:
    """Geometric mean over the batch sizes of our time against the base's; infinite when a size was not timed."""
    if set(ours) != set(base) or not all(value > 0 for value in (*ours.values(), *base.values())):
        return math.inf
    return math.exp(sum(math.log(ours[size] / base[size]) for size in base) / len(base))


def batching(row: EngineRow | None, slo: Slo, max_batch: int, otherwise: int) -> Batching:
    """Preferred sizes from the timing table, the queue delay from the promise.

    A size is preferred while each row in it is cheaper than in the size before and the call takes less than half of the
    promised p99. ``otherwise`` is preferred where nothing was timed.
    """
    times = dict(sorted((row.milliseconds if row else {}).items()))
    preferred: list[int] = []
    cost = math.inf
    for size, milliseconds in times.items():
        if size > max_batch or milliseconds > slo.latency_p99_ms / 2 or milliseconds / size > cost * GAIN:
            break
        cost = milliseconds / size
        preferred.append(size)
    sizes = tuple(size for size in preferred if size > 1) or (min(otherwise, max_batch),)
    return Batching(
        max_batch=max_batch,
        preferred=sizes,
        queue_delay_microseconds=round(slo.latency_p99_ms * 1000 * DELAY_SHARE),
    )
