"""Whether a package may be served and promoted: G8, G9 and the rules of a release, from figures alone. Pure.

A check that could not run is a failure or inconclusive, never a pass; a figure that is not finite never passes.
"""

from __future__ import annotations

import math
from typing import Literal

from pydantic import BaseModel, Field

from feature_repo.contract import Task
from serving.contract import ReleasePolicy
from training.contract import Verdict
from training.measures import DECIDING
from training.significance import holm

SERVABLE, BUDGET = "G8 servable", "G9 budget"
NO_EVIDENCE = "NO_EVIDENCE"

Status = Literal["pass", "fail", "inconclusive"]


def shown(value: float) -> float:
    """A figure that JSON can hold."""
    return value if math.isfinite(value) else 1e308


class StagingFigures(BaseModel, frozen=True, extra="forbid"):
    """What the real server did with a new version."""

    load_seconds: float
    asked: int
    answered: int
    worst_difference: float = Field(description="Largest absolute difference to a golden score; NaN when none came.")


def servable(found: StagingFigures, limit_seconds: float, tolerance: float) -> Verdict:
    """G8: the real server loaded it in time and answered every golden request within the tolerance."""
    problems = []
    if not found.load_seconds <= limit_seconds:
        problems.append(f"it took {found.load_seconds:.1f} s to load, more than {limit_seconds:.1f}")
    if found.asked == 0 or found.answered < found.asked:
        problems.append(f"{found.answered} of {found.asked} golden requests were answered")
    if not found.worst_difference <= tolerance:
        problems.append(f"a golden score is off by {found.worst_difference:.3g}, more than {tolerance:g}")
    figures: dict[str, float | int | str | None] = {
        "load_seconds": round(found.load_seconds, 3),
        "golden": found.answered,
        "worst_difference": shown(found.worst_difference),
    }
    good = f"loaded in {found.load_seconds:.1f} s, {found.answered} golden requests within {tolerance:g}"
    return Verdict(
        gate=SERVABLE, status="fail" if problems else "pass", reason="; ".join(problems) or good, figures=figures
    )


class LoadPoint(BaseModel, frozen=True, extra="forbid"):
    """One point of a load test; percentiles are NaN when nothing was answered."""

    loop: Literal["closed", "open"]
    batch: int
    concurrency: int
    rate: float | None = Field(default=None, description="Requests per second asked; None in a closed loop.")
    requests: int
    errors: int
    rows_per_second: float
    p50_ms: float
    p95_ms: float
    p99_ms: float


class Load(BaseModel, frozen=True, extra="forbid"):
    """A load test beside what was promised."""

    points: tuple[LoadPoint, ...]
    limit_ms: float = Field(description="The promised p99.")
    requests_per_second: float = Field(description="At this rate.")
    idle_p99_ms: float | None = Field(
        default=None,
        description="Of requests that compute nothing, at the promised rate; measured where the promise was missed.",
    )
    bytes: int | None = Field(default=None, description="Of the engine's files.")
    champion_bytes: int | None = None

    @property
    def promised(self) -> LoadPoint | None:
        """The open loop at the promised rate, the best of its tries."""
        tries = [point for point in self.points if point.rate == self.requests_per_second]
        return min(tries, key=lambda point: (point.errors, shown(point.p99_ms)), default=None)

    @property
    def capacity(self) -> float:
        """The highest asked rate at which the promise was kept without errors; 0 when it was at none."""
        kept = (p.rate or 0.0 for p in self.points if p.loop == "open" and p.p99_ms <= self.limit_ms and not p.errors)
        return max(kept, default=0.0)


def budget(load: Load, error_rate: float, size_factor: float) -> Verdict:
    """G9: the promised p99 at the promised rate, errors within the promise, and not much larger than the champion."""
    promised, problems = load.promised, []
    if promised is None or not promised.requests:
        problems.append(f"nothing was answered at {load.requests_per_second:g} requests a second")
    else:
        if not promised.p99_ms <= load.limit_ms:
            problems.append(
                f"p99 is {promised.p99_ms:.2f} ms at {load.requests_per_second:g} requests a second, promised are "
                f"{load.limit_ms:g} ms{_idle_words(load)}"
            )
        if not promised.errors <= error_rate * (promised.requests + promised.errors):
            problems.append(
                f"{promised.errors} errors beside {promised.requests} answers, promised are {error_rate:.2%}"
            )
    if load.bytes is not None and load.champion_bytes and not load.bytes <= size_factor * load.champion_bytes:
        problems.append(f"{load.bytes} bytes are more than {size_factor:g} x the champion's {load.champion_bytes}")
    figures: dict[str, float | int | str | None] = {
        "p99_ms": shown(promised.p99_ms) if promised else None,
        "requests_per_second": load.requests_per_second,
        "capacity": load.capacity,
        "bytes": load.bytes,
    }
    good = f"p99 {figures['p99_ms']} ms at {load.requests_per_second:g} requests a second, capacity {load.capacity:g}"
    status: Literal["pass", "fail"] = "fail" if problems else "pass"
    return Verdict(gate=BUDGET, status=status, reason="; ".join(problems) or good, figures=figures)


def _idle_words(load: Load) -> str:
    return "" if load.idle_p99_ms is None else f"; a request that computes nothing takes {load.idle_p99_ms:.2f} ms"


class Arm(BaseModel, frozen=True, extra="forbid"):
    """What one version did with the requests of a judgement."""

    requests: int = Field(ge=0)
    errors: int = Field(ge=0)
    not_finite: int = Field(default=0, ge=0, description="Answers that were NaN or infinite.")
    points: int = Field(default=0, ge=0, description="Seconds with at least one answer.")
    p50_ms: float | None = Field(default=None, description="Median over the points of the per-second p50.")
    p99_ms: float | None = Field(default=None, description="Median over the points of the per-second p99.")


class Labels(BaseModel, frozen=True, extra="forbid"):
    """What labelled rows say of the packages, in process: known before a single request has been sent."""

    labelled: int = Field(ge=0)
    task: Task = "classification"
    loss: float | None = Field(description="The candidate's deciding figure: log loss, or a regression's MAE.")
    claimed_loss: float | None = Field(description="What the package's evaluation says of the same window.")
    champion_loss: float | None = None

    @property
    def title(self) -> str:
        """What the deciding figure is called."""
        return DECIDING[self.task].title


class Evidence(Labels, frozen=True, extra="forbid"):
    """Everything that the release rules look at."""

    candidate: Arm
    champion: Arm | None = None
    equal_share: float | None = Field(description="Served scores that equal the package's own within tolerance.")
    difference_served: float | None = Field(default=None, description="Mean absolute difference of served scores.")
    difference_offline: float | None = Field(default=None, description="The same on rows of the dataset, in process.")
    budget: Verdict | None = Field(default=None, description="G9; None while it was not measured.")
    latency_p: dict[str, float] = Field(
        default={}, description="One-sided Mann-Whitney p values of 'p50' and 'p99': candidate slower."
    )


class Ruling(BaseModel, frozen=True, extra="forbid"):
    """The release rules' answer; ``against`` and ``missing`` are the reasons."""

    status: Status
    reasons: tuple[str, ...]


def rule(evidence: Evidence, policy: ReleasePolicy) -> Ruling:
    """Fail when any rule speaks against the candidate; else inconclusive when evidence is missing; else pass."""
    against = quality(evidence, policy)
    if against and not evidence.candidate.requests:
        return Ruling(status="fail", reasons=tuple(against))  # it was not asked, so nothing of that is missing
    missing = _missing(evidence, policy)
    against += _served(evidence, policy)
    if evidence.budget is not None and evidence.budget.status != "pass":
        against.append(f"{evidence.budget.gate}: {evidence.budget.reason}")
    if evidence.champion is not None:
        against += [*_slower(evidence, policy), *_different(evidence, policy)]
    if against:
        return Ruling(status="fail", reasons=tuple(against + missing))
    if missing:
        return Ruling(status="inconclusive", reasons=tuple(f"{NO_EVIDENCE}: {reason}" for reason in missing))
    return Ruling(status="pass", reasons=(_good(evidence),))


def marginal(evidence: Evidence, policy: ReleasePolicy) -> bool:
    """Whether latency is all that speaks against a candidate: it is then measured for as long again before it counts.

    One second's p99 is the largest of some thirty requests, and what else the machine does falls on one version or the other.
    """
    if evidence.champion is None or not (slower := _slower(evidence, policy)):
        return False
    return rule(evidence, policy).reasons == tuple(slower)


def _good(evidence: Evidence) -> str:
    words = (
        f"{evidence.candidate.requests} requests: served scores equal the package's own on {evidence.equal_share:.2%}"
    )
    if evidence.champion is None:
        return f"{words}; no champion to compare with"
    return f"{words}; not slower, no more errors and no worse than the champion"


def _missing(evidence: Evidence, policy: ReleasePolicy) -> list[str]:
    missing = []
    arms = {"candidate": evidence.candidate} | ({"champion": evidence.champion} if evidence.champion else {})
    for name, arm in arms.items():
        if arm.requests < policy.requests:
            missing.append(f"{name} was asked {arm.requests} requests, {policy.requests} are needed")
        if evidence.champion is not None and arm.points < policy.points:
            missing.append(f"{name} has {arm.points} latency points, {policy.points} are needed")
    if evidence.budget is None:
        missing.append(f"{BUDGET} could not be measured")
    if evidence.labelled < policy.minimum_labelled:
        missing.append(f"{evidence.labelled} labelled rows, {policy.minimum_labelled} are needed")
    wanted = {
        "share of equal scores": evidence.equal_share,
        f"{evidence.title} of the candidate": evidence.loss,
        f"{evidence.title} that its evaluation claims": evidence.claimed_loss,
    }
    if evidence.champion is not None:
        wanted |= {
            f"{evidence.title} of the champion": evidence.champion_loss,
            "served difference to the champion": evidence.difference_served,
            "offline difference to the champion": evidence.difference_offline,
            "test of p50": evidence.latency_p.get("p50"),
            "test of p99": evidence.latency_p.get("p99"),
        }
    return missing + [f"{name} could not be measured" for name, value in wanted.items() if not _finite(value)]


def _finite(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def _served(evidence: Evidence, policy: ReleasePolicy) -> list[str]:
    """Critical: NaN, errors, and scores that are not the package's own."""
    against = []
    candidate, champion = evidence.candidate, evidence.champion
    if candidate.not_finite:
        against.append(f"{candidate.not_finite} served scores are not finite")
    if candidate.requests and _finite(evidence.equal_share) and not _share(evidence) >= policy.shadow_equal_share:
        against.append(
            f"served scores equal the package's own on {_share(evidence):.3%} of rows, less than {policy.shadow_equal_share:.1%}"
        )
    rate = candidate.errors / candidate.requests if candidate.requests else 0.0
    base = champion.errors / champion.requests if champion is not None and champion.requests else 0.0
    if rate - base > policy.error_increase:
        against.append(f"error rate {rate:.3%} against {base:.3%}, more than +{policy.error_increase:.2%}")
    return against


def _share(evidence: Evidence) -> float:
    return -math.inf if evidence.equal_share is None else evidence.equal_share


def quality(evidence: Labels, policy: ReleasePolicy) -> list[str]:
    """The package must be the model that was evaluated, and no worse than the champion on the same labels."""
    against: list[str] = []
    if evidence.loss is None or evidence.labelled < policy.minimum_labelled:
        return against
    limits = {
        "what its own evaluation says": (evidence.claimed_loss, policy.claim_factor),
        "the champion's": (evidence.champion_loss, policy.quality_factor),
    }
    for name, (other, factor) in limits.items():
        if other is not None and math.isfinite(other) and not evidence.loss <= other * factor:
            against.append(
                f"{evidence.title} {evidence.loss:.5f} on {evidence.labelled} labelled rows exceeds {factor:g} x {name} ({other:.5f})"
            )
    return against


def _slower(evidence: Evidence, policy: ReleasePolicy) -> list[str]:
    """Latency counts only when the difference is significant and larger than what is allowed."""
    if evidence.champion is None:
        return []
    limits = {"p50": policy.p50_increase, "p99": policy.p99_increase}
    against = []
    for name in sorted(holm(evidence.latency_p, policy.alpha)):
        ours, theirs = (getattr(arm, f"{name}_ms") for arm in (evidence.candidate, evidence.champion))
        if ours is None or theirs is None or not ours <= theirs * (1 + limits[name]):
            against.append(
                f"{name} {ours} ms against {theirs} ms: more than +{limits[name]:.0%} (p = {evidence.latency_p[name]:.2g})"
            )
    return against


def _different(evidence: Evidence, policy: ReleasePolicy) -> list[str]:
    served, offline = evidence.difference_served, evidence.difference_offline
    if served is None or offline is None or not (math.isfinite(served) and math.isfinite(offline)):
        return []
    # Two equal models differ by rounding alone; below the tolerance of one score a ratio says nothing.
    if served > max(policy.difference_factor * offline, policy.shadow_tolerance):
        return [f"scores differ from the champion's by {served:.4f} on average, offline by {offline:.4f}"]
    return []
