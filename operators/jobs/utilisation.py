"""Whether a job uses what it holds, from samples, and what is done about it when it does not. Pure (decisions.md 6)."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Literal

from pydantic import BaseModel, Field

from operators.jobs.contract import TorchJob

Phase = Literal["starting", "downloading", "training", "checkpoint", "evaluating"]
COUNTED: frozenset[Phase] = frozenset({"training"})


class Sample(BaseModel, frozen=True, extra="forbid"):
    """One look: seconds since the start, the busy share of each unit in [0, 1], and how far the work is.

    ``steps`` is a count that grows with each step (or the fraction of the work), None where nobody tells.
    """

    at: float
    busy: tuple[float, ...]
    phase: Phase = "training"
    steps: float | None = None


class Policy(BaseModel, frozen=True, extra="forbid"):
    """The minimum-utilisation rule. All times in seconds."""

    sample_seconds: float = Field(default=15, gt=0)
    warmup_seconds: float = Field(default=600, ge=0)
    window_seconds: float = Field(default=1200, gt=0)
    least: float = Field(default=0.3, ge=0, le=1)
    notify_after: int = Field(default=2, gt=0, description="Low windows in a row before its owner is told.")
    act_after: int = Field(default=3, gt=0, description="Low windows in a row before it is made smaller.")
    between_seconds: float = Field(default=3600, ge=0, description="Never more than one downscale in this time.")
    most: int = Field(default=2, ge=0, description="Downscales of one job before it is halted.")


class Window(BaseModel, frozen=True, extra="forbid"):
    """One window: the highest median of any unit, None without enough samples."""

    busy: float | None
    stalled: bool = False


class Advice(BaseModel, frozen=True, extra="forbid"):
    """What to do, and why."""

    act: Literal["nothing", "notify", "downscale", "halt"]
    reason: str


def windows(samples: Sequence[Sample], policy: Policy) -> tuple[Window, ...]:
    """The whole windows after the warm-up, oldest first."""
    if not samples:
        return ()
    last = max(sample.at for sample in samples)
    found, begin = [], policy.warmup_seconds
    while begin + policy.window_seconds <= last:
        inside = [one for one in samples if begin <= one.at < begin + policy.window_seconds]
        found.append(_window(inside, policy))
        begin += policy.window_seconds
    return tuple(found)


def _window(inside: Sequence[Sample], policy: Policy) -> Window:
    counted = [one for one in inside if one.phase in COUNTED and one.busy]
    if len(counted) < policy.window_seconds / policy.sample_seconds / 2:
        return Window(busy=None)  # no metrics, no action
    busy = max(statistics.median(values) for values in zip(*(one.busy for one in counted), strict=False))
    told = [one.steps for one in counted if one.steps is not None]
    if len(told) > 1 and max(told) == min(told):  # a collective that spins keeps its cards busy and steps nowhere
        return Window(busy=0.0, stalled=True)
    return Window(busy=busy)


def advice(
    found: Sequence[Window], policy: Policy, now: float, downscaled: Sequence[float], *, can_shrink: bool
) -> Advice:
    """What the newest windows ask for. ``downscaled`` are the times of earlier downscales, on the clock of ``now``."""
    low = 0
    for window in reversed(found):
        if window.busy is None or window.busy >= policy.least:
            break
        low += 1
    if low < policy.notify_after:
        return Advice(act="nothing", reason=f"{low} low windows in a row")
    newest = found[-1]
    shown = "no step in the newest window" if newest.stalled else f"median {newest.busy:.0%} in the newest window"
    said = f"{low} windows in a row below {policy.least:.0%}: {shown}"
    if low < policy.act_after:
        return Advice(act="notify", reason=said)
    if len(downscaled) >= policy.most or not can_shrink:
        why = f"made smaller {len(downscaled)} times" if downscaled else "it cannot be made smaller"
        return Advice(act="halt", reason=f"{said}; {why}")
    if downscaled and now - downscaled[-1] < policy.between_seconds:
        return Advice(act="nothing", reason=f"{said}; made smaller less than {policy.between_seconds:.0f} s ago")
    return Advice(act="downscale", reason=said)


def smaller(job: TorchJob, global_batch: int | None = None) -> TorchJob | None:
    """The job with half the processes per node, or fewer where the batch splits only so; None below the least."""
    count = job.processes_per_node // 2
    while count >= job.min_processes_per_node:
        if global_batch is None or global_batch % (job.nodes * count) == 0:
            return job.model_copy(update={"processes_per_node": count})
        count -= 1
    return None
