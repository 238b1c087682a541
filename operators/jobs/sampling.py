"""How busy a job is: the processors of its process tree on this machine, or its GPUs as Prometheus has them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import suppress

import httpx
import psutil

from operators.jobs.utilisation import Phase

Busy = Callable[[], tuple[float, ...]]
SM_ACTIVE = "DCGM_FI_PROF_SM_ACTIVE"  # plain utilisation is 100 % for a collective that spins (decisions.md 6)


def phase(doing: str) -> Phase:
    """What a step's own words (``progress.json``) say that it is at."""
    text = doing.lower()
    for words, found in PHASES:
        if any(word in text for word in words):
            return found
    return "training"


PHASES: tuple[tuple[tuple[str, ...], Phase], ...] = (
    (("reading", "download", "loading"), "downloading"),
    (("checkpoint", "saving", "writing", "publish"), "checkpoint"),
    (("evaluat", "validat"), "evaluating"),
    (("starting",), "starting"),
)


def processes(tree: Callable[[], Iterable[psutil.Process]], cores: int) -> Busy:
    """The share of ``cores`` that a process tree has used since the look before; nothing at the first look."""
    before: dict[int, float] = {}
    looked = time.monotonic()

    def busy() -> tuple[float, ...]:
        nonlocal before, looked
        now, spent = time.monotonic(), {}
        for one in tree():
            with suppress(psutil.Error):
                times = one.cpu_times()
                spent[one.pid] = float(times.user + times.system)
        used = sum(seconds - before[pid] for pid, seconds in spent.items() if pid in before)
        known, passed = bool(before), now - looked
        before, looked = spent, now
        return (min(1.0, used / (cores * passed)),) if known and passed > 0 else ()

    return busy


def prometheus(url: str, namespace: str, pods: str, client: httpx.Client) -> Busy:
    """The share of time in which each GPU of the pods (a regular expression) had work; nothing when nobody answers."""
    query = f'max by (pod, gpu) ({SM_ACTIVE}{{namespace="{namespace}", pod=~"{pods}"}})'

    def busy() -> tuple[float, ...]:
        try:
            answer = client.get(f"{url}/api/v1/query", params={"query": query})
            found = answer.raise_for_status().json()["data"]["result"]
            return tuple(float(one["value"][1]) for one in found)
        except (httpx.HTTPError, LookupError, TypeError, ValueError):
            return ()  # no metrics, no action

    return busy
