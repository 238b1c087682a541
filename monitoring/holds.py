"""What holds a retrain back: a training in flight, breaker, cool-down, budgets, the schedule, the cost test. Pure."""

from __future__ import annotations

import datetime as dt
from typing import Literal, NamedTuple

from artifacts.refs import Digest
from monitoring.contract import Cause, CheckRow, DriftPolicy, RetrainRow, Situation
from monitoring.worth import not_worth_it


class Block(NamedTuple):
    """Why evidence does not lead to a retrain now."""

    state: Literal["WATCH", "RETRAINING", "COOLDOWN", "OPEN"]
    by: str
    why: str


BROKEN_BY = frozenset({"urgent", "drift"})  # the causes that the breaker is about: age and labels are no wrong alarms


def standing(situation: Situation, policy: DriftPolicy, cause: Cause | None) -> Block | None:
    """What holds whatever the evidence says: a clock that went back, a retrain in flight, an open breaker, the cool-down.

    The breaker holds what drift asks for; a version that is due by its age goes on as the schedule does.
    """
    if situation.retraining or any(row.ended_at is None for row in situation.retrains):
        return Block("RETRAINING", "single flight", "a training of this model is in flight")
    vain = without_effect(situation, policy)
    if vain >= policy.breaker and (cause is None or cause in BROKEN_BY):
        why = f"the last {vain} drift retrains were without effect; a person or a promotion must close the breaker"
        return Block("OPEN", "breaker", why)
    known = [row.decided_at for row in situation.retrains]
    if known and situation.now < max(known):
        why = (
            f"the data clock shows {_instant(situation.now)} and has gone back: a retrain was decided at "
            f"{_instant(max(known))}; nothing is decided until the clock has passed that"
        )
        return Block("COOLDOWN", "clock", why)
    ends = [row.ended_at for row in situation.retrains if row.ended_at is not None]
    pause = cool_down(situation, policy)
    if ends and situation.now < max(ends) + pause:
        why = f"the last drift retrain ended at {_instant(max(ends))}; cooling down for {pause}"
        return Block("COOLDOWN", "cool-down", why)
    return None


def cool_down(situation: Situation, policy: DriftPolicy) -> dt.timedelta:
    """The pause after a retrain: a day, twice a long training, or the labels' delay, whichever is longest."""
    return max(policy.cool_down, policy.cool_down_trainings * situation.training_p95, situation.label_delay)


def passing(last: CheckRow, identity: Digest, situation: Situation, policy: DriftPolicy) -> Block | None:
    """What holds this very evidence: it is old or answered already, the budgets are spent, or the schedule will do."""
    if situation.newest is not None and last.partition < situation.newest:
        why = f"{last.partition} is not the newest closed partition; {situation.newest} decides"
        return Block("WATCH", "superseded", why)
    if any(row.trigger_id == identity for row in situation.retrains):
        why = f"the evidence of {last.partition} has started a retrain already"
        return Block("WATCH", "identity", why)
    return _spent(situation, policy) or _covered(last, situation, policy) or _dear(last, situation, policy)


def _covered(last: CheckRow, situation: Situation, policy: DriftPolicy) -> Block | None:
    """Whether a scheduled run of the same partition is near enough to do the work."""
    run = situation.scheduled
    if run is None or run.partition != last.partition:
        return None
    if not situation.now <= run.at <= situation.now + policy.coalesce:
        return None
    return Block("WATCH", "schedule", f"will be covered by the scheduled run of {run.partition} at {_instant(run.at)}")


def _dear(last: CheckRow, situation: Situation, policy: DriftPolicy) -> Block | None:
    why = not_worth_it(last, situation, policy)
    return None if why is None else Block("WATCH", "cost", why)


def _spent(situation: Situation, policy: DriftPolicy) -> Block | None:
    """Whether the budget of drift retrains, or of their GPU-hours, is used up."""
    recent = [row.decided_at for row in situation.retrains if row.decided_at > situation.now - policy.budget_window]
    if len(recent) >= policy.budget:
        free = sorted(recent)[len(recent) - policy.budget] + policy.budget_window
        why = f"{len(recent)} drift retrains in {policy.budget_window.days} days use up the budget; next at {_instant(free)}"
        return Block("COOLDOWN", "budget", why)
    gpu = situation.gpu
    if gpu is not None and gpu.drift + gpu.expected > policy.gpu_share * gpu.weekly:
        why = (
            f"drift retrains used {gpu.drift:.1f} GPU-hours and need {gpu.expected:.1f} more; {policy.gpu_share:.0%} of the "
            f"tenant's {gpu.weekly:.1f} are for them"
        )
        return Block("COOLDOWN", "GPU budget", why)
    return None


def without_effect(situation: Situation, policy: DriftPolicy) -> int:
    """How many of the newest decided drift retrains, in a row, did not help."""
    closed_at = situation.breaker_closed_at
    decided = [
        row
        for row in situation.retrains
        if row.promoted is not None and row.cause in BROKEN_BY and (closed_at is None or row.decided_at > closed_at)
    ]
    run = 0
    for row in sorted(decided, key=lambda row: row.decided_at, reverse=True):
        if not _vain(row, policy):
            break
        run += 1
    return run


def _vain(row: RetrainRow, policy: DriftPolicy) -> bool:
    """Not promoted, or promoted while drift stayed much as it was."""
    if not row.promoted:
        return True
    if row.score_before is None or row.score_after is None:
        return False
    return row.score_after > (1 - policy.breaker_cut) * row.score_before


def _instant(at: dt.datetime) -> str:
    return f"{at:%Y-%m-%dT%H:%MZ}"
