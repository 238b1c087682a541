"""Budgets in GPU-hours (core-hours where there are no GPUs) per tenant: estimate, reserve, settle, warn, queue. Pure.

Concurrent quotas by card are Kueue's; this is what a tenant may use up in a rolling window (decisions.md 6).
"""

from __future__ import annotations

import datetime as dt
import statistics
from collections.abc import Iterable, Mapping
from typing import Literal

from pydantic import BaseModel, Field

from operators.jobs.contract import TorchJob
from operators.jobs.metering import Usage

HOUR = 3600.0
ENOUGH_HISTORY = 3  # runs; the median of fewer is a coin's throw


class Budget(BaseModel, frozen=True, extra="forbid"):
    """What one tenant may use in a rolling window. From ``warn_share`` on it is told so; what does not fit any more waits."""

    tenant: str
    hours: float = Field(gt=0)
    unit: Literal["gpu", "core"] = "gpu"
    days: int = Field(default=7, gt=0)
    warn_share: float = Field(default=0.8, gt=0, le=1)
    grace_minutes: float = Field(default=15, ge=0, description="What a running job gets to save when it is used up.")

    @property
    def seconds(self) -> float:
        """The budget in unit-seconds."""
        return self.hours * HOUR


class Standing(BaseModel, frozen=True, extra="forbid"):
    """How much of a budget is gone: used, and promised to jobs that have not ended. Unit-seconds."""

    budget: Budget
    used: float
    reserved: float

    @property
    def share(self) -> float:
        """The part of the budget that is used or promised."""
        return (self.used + self.reserved) / self.budget.seconds


class Admission(BaseModel, frozen=True, extra="forbid"):
    """Whether a job may begin. ``never`` is for one that would not fit into the whole budget."""

    verdict: Literal["admit", "warn", "queue", "never"]
    reason: str


def used(budget: Budget, usages: Iterable[Usage], now: dt.datetime) -> float:
    """Billable unit-seconds that ended within the window before ``now``, both on the data clock."""
    since = now - dt.timedelta(days=budget.days)
    return sum(
        usage.unit_seconds
        for usage in usages
        if usage.billable and usage.tenant == budget.tenant and usage.unit == budget.unit and since < usage.at <= now
    )


def estimate(job: TorchJob, usages: Iterable[Usage]) -> float:
    """What a job will use, unit-seconds: the median of what its like have used, else what it declares."""
    before = [one.unit_seconds for one in usages if one.model == job.model and one.unit == job.unit and not one.code]
    return statistics.median(before) if len(before) >= ENOUGH_HISTORY else job.estimate_hours * HOUR * job.units


def admission(standing: Standing, wanted: float) -> Admission:
    """Whether ``wanted`` unit-seconds more still fit; full budgets queue, and never more than the budget is promised."""
    budget = standing.budget
    after = standing.used + standing.reserved + wanted
    share = after / budget.seconds
    said = (
        f"{budget.tenant}: {standing.used / HOUR:.2f} used + {standing.reserved / HOUR:.2f} reserved + {wanted / HOUR:.2f} wanted of "
        f"{budget.hours:g} {budget.unit}-hours in {budget.days} days ({share:.0%})"
    )
    if wanted > budget.seconds:
        return Admission(
            verdict="never", reason=f"{said}; the job alone is larger than the budget: raise it, or use less"
        )
    if after > budget.seconds:
        return Admission(verdict="queue", reason=f"{said}; it waits until usage leaves the window")
    if share >= budget.warn_share:
        return Admission(verdict="warn", reason=f"{said}; above {budget.warn_share:.0%}")
    return Admission(verdict="admit", reason=said)


def reserved_elsewhere(reservations: Mapping[str, float], job: str) -> float:
    """What is promised to other jobs."""
    return sum(seconds for name, seconds in reservations.items() if name != job)
