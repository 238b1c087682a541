"""What a retrain is worth: how much a model loses by its age, and the cost test. Pure.

Losses are log loss per request and day above a fresh model's; a cost is log loss x days (``DriftPolicy.retrain_cost``).
"""

from __future__ import annotations

import datetime as dt
import math

from monitoring.contract import AgeLoss, CheckRow, DriftPolicy, Situation

DAY = dt.timedelta(days=1)


def excess_at(curve: AgeLoss, age: float) -> float:
    """The expected loss at an age in days, never below 0; straight between the points, level after the last."""
    days, excess = (0, *curve.days), (0.0, *curve.excess)
    for place in range(1, len(days)):
        if age <= days[place]:
            share = (max(age, 0) - days[place - 1]) / (days[place] - days[place - 1])
            return max(excess[place - 1] + share * (excess[place] - excess[place - 1]), 0.0)
    return max(excess[-1], 0.0)


def accumulated(curve: AgeLoss, age: int) -> float:
    """The expected loss of all days since the newest training day, which never falls with age."""
    return math.fsum(excess_at(curve, day) for day in range(1, age + 1))


def staleness(situation: Situation, policy: DriftPolicy) -> tuple[str, ...]:
    """Why the live version is due by its age, or nothing.

    It is due once the loss since its newest training day has added up to one retrain's cost. For a loss that grows evenly
    with age this is the spacing with the least cost per day: k T^2 / 2 = C minimises (C + k T^2 / 2) / T. A retrain that was
    tried since and refused was paid for, so the loss counts anew from then.
    """
    if policy.retrain_cost is None or situation.ageing is None or situation.trained_through is None:
        return ()
    age = (situation.now.date() - situation.trained_through).days
    tried = max((row.decided_at.date() for row in situation.retrains), default=situation.trained_through)
    lost = accumulated(situation.ageing, age) - accumulated(situation.ageing, (tried - situation.trained_through).days)
    if lost < policy.retrain_cost:
        return ()
    return (
        f"stale: trained through {situation.trained_through}, {age} days ago; the expected loss since then or since the last "
        f"retrain, {lost:.3f} log loss x days, has reached the cost of one, {policy.retrain_cost:.3f}",
    )


def expected_loss(last: CheckRow, situation: Situation) -> float | None:
    """The largest of the known figures of what waiting costs per day; None when nothing is known.

    Figures: skill lost on labels, the age curve, and what past drift retrains gained against the old champion's replay.
    """
    known = [] if last.excess is None else [last.excess]
    if situation.ageing is not None and situation.trained_through is not None:
        known.append(excess_at(situation.ageing, (situation.now.date() - situation.trained_through).days))
    gains = [effect.gain for effect in situation.effects if effect.gain is not None]
    if gains:
        known.append(math.fsum(gains) / len(gains))
    return max(known) if known else None


def not_worth_it(last: CheckRow, situation: Situation, policy: DriftPolicy) -> str | None:
    """Why waiting for the schedule is cheaper than a retrain now; None when it is not, or when a figure is missing."""
    loss = expected_loss(last, situation)
    if policy.retrain_cost is None or situation.scheduled is None or loss is None:
        return None
    days = max((situation.scheduled.at - situation.now) / DAY, 0.0)
    if loss * days > policy.retrain_cost:
        return None
    return (
        f"waiting {days:.1f} days for the schedule costs about {loss * days:.3f} log loss x days ({loss:.3f} a day), a retrain "
        f"{policy.retrain_cost:.3f}"
    )
