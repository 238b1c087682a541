"""A cluster at the client's level for the job operator's tests: one job, whose life is a list of looks."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

BEGAN = dt.datetime(2013, 9, 1, 12, tzinfo=dt.UTC)


def stamp(seconds: float) -> str:
    """A time of the cluster's clock."""
    return (BEGAN + dt.timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def pod(
    number: int, start: float | None = None, end: float | None = None, code: int = 0, why: str = "", disrupted: str = ""
) -> dict[str, Any]:
    """A pod that waits, runs or has ended; ``disrupted`` is why it was taken away."""
    state: dict[str, Any] = {"waiting": {"reason": "ContainerCreating"}}
    if start is not None:
        state = {"running": {"startedAt": stamp(start)}}
    if start is not None and end is not None:
        times = {"startedAt": stamp(start), "finishedAt": stamp(end)}
        state = {"terminated": {"exitCode": code, "reason": why or ("Error" if code else "Completed"), **times}}
    conditions = [{"type": "DisruptionTarget", "status": "True", "reason": disrupted}] if disrupted else []
    return {
        "metadata": {"uid": f"pod-{number}", "name": f"p{number}"},
        "spec": {"nodeName": f"gpu-{number}"},
        "status": {"containerStatuses": [{"name": "base", "state": state}], "conditions": conditions},
    }


@dataclass(frozen=True)
class Look:
    """What one look at the job sees. ``then`` happens before it, such as a result that is written."""

    pods: tuple[dict[str, Any], ...] = ()
    suspended: bool = False
    condition: str = ""
    words: str = ""
    gone: bool = False
    then: Callable[[], None] = lambda: None


@dataclass
class FakeCluster:
    """Remembers what it was asked; each look at the job is the next of ``looks``, and the last one stays."""

    looks: list[Look]
    objects: dict[tuple[str, str], Mapping[str, Any]] = field(default_factory=dict)
    created: list[str] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    told: list[dict[str, Any]] = field(default_factory=list)
    now: Look = field(default_factory=Look)

    def create(self, manifest: Mapping[str, Any]) -> bool:
        """Creates once."""
        key = (manifest["kind"], manifest["metadata"]["name"])
        if key in self.objects:
            return False
        self.objects[key] = manifest
        self.created.append(f"{key[0]} {key[1]}")
        return True

    def job(self, kind: str, name: str) -> dict[str, Any] | None:
        """The next look."""
        if (kind, name) not in self.objects:
            return None
        self.now = self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]
        self.now.then()
        if self.now.gone:
            return None
        met = [{"type": self.now.condition, "status": "True", "reason": self.now.words}] if self.now.condition else []
        return {"spec": {"suspend": self.now.suspended}, "status": {"conditions": met}}

    def pods(self, _: str) -> list[dict[str, Any]]:
        """The pods of the last look."""
        return list(self.now.pods)

    def events(self, _: str) -> list[dict[str, Any]]:
        """What was told."""
        return self.told

    def delete(self, kind: str, name: str) -> None:
        """Remembers it."""
        self.deleted.append(f"{kind} {name}")
        self.objects.pop((kind, name), None)
