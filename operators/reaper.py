"""Removes pods that nobody waits for: their task has ended or is gone, or their attempt is closed. Level-triggered."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from operators import manifests
from operators.ledger import Ledger

GRACE = dt.timedelta(minutes=10)  # decisions.md 4.8
KEEP_ENDED = dt.timedelta(days=1)  # a pod that failed is kept to be looked at
ENDED_TASKS = frozenset({"success", "failed", "skipped", "upstream_failed", "removed"})
SELECTOR = "app.kubernetes.io/name=perennial,kubernetes_pod_operator=True"


@dataclass(frozen=True)
class Owned:
    """Whose a pod is, by its annotations, and how old it is."""

    name: str
    dag: str
    task: str
    run: str
    map_index: int
    key: str
    attempt: int
    age: dt.timedelta
    over: bool


def owned(pod: Mapping[str, Any], now: dt.datetime) -> Owned | None:
    """A pod's owner; None for a pod that no task of ours has marked."""
    meta = pod["metadata"]
    said = meta.get("annotations") or {}
    if not {"perennial/key", "perennial/attempt", "perennial/run"} <= said.keys():
        return None
    created = dt.datetime.fromisoformat(meta["creationTimestamp"])
    return Owned(
        name=meta["name"],
        dag=said["perennial/dag"],
        task=said["perennial/task"],
        run=said["perennial/run"],
        map_index=int(said["perennial/map-index"]),
        key=said["perennial/key"],
        attempt=int(said["perennial/attempt"]),
        age=now - created,
        over=manifests.ended(pod) or pod["status"].get("phase") in {"Succeeded", "Failed"},
    )


def wanted(pod: Owned, state: str | None, *, closed: bool) -> bool:
    """Whether somebody may still wait for a pod. ``state`` is its task's, None when task or run is gone."""
    if pod.over:
        return pod.age < KEEP_ENDED
    return pod.age < GRACE or not (closed or state is None or state in ENDED_TASKS)


def reap(
    pods: Sequence[Mapping[str, Any]],
    state_of: Callable[[Owned], str | None],
    book: Ledger,
    delete: Callable[[str], None],
    now: dt.datetime,
) -> list[str]:
    """Deletes the pods that nobody wants, closes their attempts, and returns the pods' names. ``now`` is the wall clock."""
    gone = []
    for pod in filter(None, (owned(one, now) for one in pods)):
        closed = any(one.attempt == pod.attempt and one.outcome for one in book.attempts(pod.key))
        if wanted(pod, state_of(pod), closed=closed):
            continue
        delete(pod.name)
        book.finish_attempt(
            pod.key, pod.attempt, "killed", {"reason": "its task had ended or was gone; removed by sweep"}
        )
        gone.append(pod.name)
    return gone
