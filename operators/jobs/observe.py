"""What a Job's or TrainJob's status and its pods amount to. Pure: API objects in, a state with its reason out."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import AwareDatetime, BaseModel

from operators import manifests
from operators.jobs.render import TRAINER_CONTAINER
from operators.jobs.states import WORKING, State

CONTAINERS = (manifests.CONTAINER, TRAINER_CONTAINER)
DONE, BROKEN = ("Complete", "SuccessCriteriaMet"), ("Failed", "FailureTarget")


class Seen(BaseModel, frozen=True, extra="forbid"):
    """Where a job is by the cluster's word. ``running`` counts pods whose container runs."""

    state: State
    reason: str = ""
    running: int = 0


class PodTimes(BaseModel, frozen=True, extra="forbid"):
    """When a pod's container ran; ``ended`` is None while it does. ``evicted`` says why it was taken away, if it was."""

    uid: str
    started: AwareDatetime
    ended: AwareDatetime | None = None
    evicted: str = ""


def seen(body: Mapping[str, Any], pods: Iterable[Mapping[str, Any]], before: State) -> Seen:
    """The state of a job that was ``before``. Suspended is QUEUED, never an error; EVICTED when it had pods before."""
    status = body.get("status") or {}
    conditions = {one["type"]: one for one in status.get("conditions") or [] if one.get("status") == "True"}
    for names, state in ((DONE, "COMPLETED"), (BROKEN, "FAILED")):
        for name in names:
            if name in conditions:
                return Seen(state=state, reason=_words(conditions[name]))
    running = sum(one.ended is None for one in times(pods))
    if (body.get("spec") or {}).get("suspend"):
        held = before in WORKING
        said = _words(conditions.get("Suspended", {})) or "suspended"
        return Seen(state="EVICTED" if held else "QUEUED", reason=said)
    if running == 0:
        return Seen(state="ADMITTED", reason="its pods are being placed")
    return Seen(state="STARTING", reason=f"{running} pods run", running=running)


def times(pods: Iterable[Mapping[str, Any]]) -> tuple[PodTimes, ...]:
    """When each pod ran; one whose container has not begun has no times, and costs nothing."""
    found = []
    for pod in pods:
        status = pod.get("status") or {}
        for one in status.get("containerStatuses") or []:
            state = one.get("state") or {}
            ended = state.get("terminated") or {}
            started = ended.get("startedAt") or (state.get("running") or {}).get("startedAt")
            if one["name"] in CONTAINERS and started:
                found.append(
                    PodTimes(
                        uid=pod["metadata"]["uid"],
                        started=started,
                        ended=ended.get("finishedAt"),
                        evicted=_disruption(status),
                    )
                )
    return tuple(found)


def why(
    body: Mapping[str, Any], pods: Iterable[Mapping[str, Any]], events: Iterable[Mapping[str, Any]]
) -> tuple[int | None, str, tuple[str, ...]]:
    """Exit code (negative for a signal), the first failed container's reason, and the newest events, oldest first."""
    ends = []
    for pod in pods:
        for one in (pod.get("status") or {}).get("containerStatuses") or []:
            end = (one.get("state") or {}).get("terminated") or {}
            if one["name"] in CONTAINERS and (end.get("exitCode") or end.get("reason") == "OOMKilled"):
                ends.append((end.get("finishedAt") or "", pod, one["name"]))
    status = body.get("status") or {}
    words = next((_words(one) for one in status.get("conditions") or [] if one["type"] in BROKEN), "")
    lines = tuple(f"{one.get('reason', '')}: {one.get('message', '')}" for one in events)
    if not ends:
        return None, words, lines
    _, pod, name = min(ends, key=lambda end: str(end[0]))
    code, reason = manifests.death(_as_base(pod, name))
    disruption = _disruption(pod.get("status") or {})
    return code, f"{disruption}: {reason}" if disruption else reason, lines


def unready(found: Seen, nodes: int, admitted: dt.datetime | None, now: dt.datetime, limit: float) -> str | None:
    """Why a job that was admitted is taken back: not all of its pods ran in time, and those that run hold GPUs for nothing."""
    if admitted is None or found.state not in {"ADMITTED", "STARTING"} or found.running >= nodes:
        return None
    waited = (now - admitted).total_seconds()
    return f"pods not ready in time: {found.running} of {nodes} run after {waited:.0f} s" if waited > limit else None


def _as_base(pod: Mapping[str, Any], name: str) -> dict[str, Any]:
    statuses = [
        one | {"name": manifests.CONTAINER} for one in pod["status"]["containerStatuses"] if one["name"] == name
    ]
    return {**pod, "status": {**pod["status"], "containerStatuses": statuses}}


def _disruption(status: Mapping[str, Any]) -> str:
    for one in status.get("conditions") or []:
        if one.get("type") == "DisruptionTarget" and one.get("status") == "True":
            return f"DisruptionTarget {one.get('reason', '')}".strip()
    return ""


def _words(condition: Mapping[str, Any]) -> str:
    return ": ".join(str(condition[name]) for name in ("reason", "message") if condition.get(name))
