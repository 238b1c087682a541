"""When drift is worth a retrain: the hits of a check, and the state machine over the checks of one model. Pure.

Rules and numbers: decisions.md 1.3 and 1.4, as fields of ``DriftPolicy``. Nothing here reads a clock or a store: the
caller gives what the ledger remembers, so the same evidence gives the same decision and the same trigger id.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

from artifacts.refs import Digest, key_digest
from monitoring.contract import CheckRef, CheckRow, Decision, DriftPolicy, RetrainRow

DAY = dt.timedelta(days=1)


def is_hit(check: CheckRef, policy: DriftPolicy) -> tuple[bool, tuple[str, ...]]:
    """Whether one check argues for a retrain, and why; a check that says "checked" without a score raises ValueError."""
    if check.outcome != "checked":
        return False, (f"{check.partition}: {check.outcome}, so nothing can be said of drift",)
    if check.score is None or not math.isfinite(check.score):
        raise ValueError(f"{check.partition}: the check has no finite score; a check that could not run is no pass")
    reasons = []
    if check.score >= policy.trigger_share:
        reasons.append(f"{check.score:.2f} of the importance has drifted (trigger {policy.trigger_share:.2f})")
    if check.prediction_psi is not None and check.prediction_threshold is not None:
        if not math.isfinite(check.prediction_psi):
            raise ValueError(f"{check.partition}: the prediction's PSI is {check.prediction_psi}; that is no pass")
        if check.prediction_psi >= check.prediction_threshold:
            reasons.append(
                f"predictions moved: PSI {check.prediction_psi:.2f} (threshold {check.prediction_threshold:.2f})"
            )
    if quality_dropped(check):
        reasons.append(_drop_words(check))
    quiet = (
        f"{check.score:.2f} of the importance has drifted, below {policy.trigger_share:.2f}; predictions are in range"
    )
    return bool(reasons), tuple(reasons) or (quiet,)


def quality_dropped(check: CheckRef) -> bool:
    """Whether labels confirm that skill fell below what it was at promotion."""
    return check.quality is not None and check.quality.difference_upper < 0


def _drop_words(check: CheckRef) -> str:
    if check.quality is None:
        raise ValueError("a drop needs a quality figure")
    return f"skill fell {check.quality.skill_at_promotion:.3f} -> {check.quality.skill:.3f} on {check.quality.labelled} labels"


def row_of(check: CheckRef, policy: DriftPolicy) -> CheckRow:
    """What the ledger remembers of a check."""
    hit, reasons = is_hit(check, policy)
    return CheckRow(
        partition=check.partition,
        package_digest=check.package_digest,
        outcome=check.outcome,
        hit=hit,
        score=check.score,
        reasons=reasons,
        quality_dropped=quality_dropped(check),
        first=check.first,
    )


def trigger_id(model: str, live: Digest, window_end: dt.date, policy: DriftPolicy) -> Digest:
    """The identity of a trigger: the same evidence gives the same id, whenever it is looked at."""
    return key_digest({
        "model": model,
        "live": live,
        "window_end": window_end.isoformat(),
        "policy_version": policy.version,
    })


def decide(
    history: Sequence[CheckRow],
    retrains: Sequence[RetrainRow],
    *,
    retraining: bool,
    now: dt.datetime,
    model: str,
    policy: DriftPolicy,
    newest: dt.date | None = None,
    breaker_closed_at: dt.datetime | None = None,
) -> Decision:
    """What to do after the last check of ``history`` (oldest first).

    ``now`` is the data clock. ``newest`` is the newest closed partition: a check of an older one is evidence, and never
    triggers. ``breaker_closed_at`` is when a person closed the breaker or any version was promoted, if that ever was.
    """
    rows = _per_partition(history)
    last = rows[-1]
    if last.outcome == "incident":
        reason = "the log or its features are broken, and a retrain would learn from that; mend the feed"
        return Decision(state="DATA_INCIDENT", retrain=False, reasons=(f"{last.partition}: {reason}", *last.reasons))
    if last.outcome == "failed":
        reason = "the check could not be run, and that is no pass"
        return Decision(state="CHECK_FAILED", retrain=False, reasons=(f"{last.partition}: {reason}", *last.reasons))
    if last.outcome == "insufficient":
        return Decision(state="INSUFFICIENT_DATA", retrain=False, reasons=_too_small(rows, policy))
    evidence = _evidence(rows, policy)
    block = _standing_block(retrains, now, policy, breaker_closed_at, retraining=retraining)
    if block is None and not evidence:
        return _quiet(rows, policy)
    if block is None and newest is not None and last.partition < newest:
        why = f"{last.partition} is not the newest closed partition; {newest} decides"
        block = Block("WATCH", "superseded", why)
    block = block or _spent(retrains, now, policy)
    if block is not None:
        merged = ("the evidence asks for a retrain; merged", *evidence) if evidence else ()
        suppressed_by = block.by if evidence else None
        return Decision(state=block.state, retrain=False, reasons=(block.why, *merged), suppressed_by=suppressed_by)
    identity = trigger_id(model, last.package_digest, last.partition, policy)
    return Decision(state="TRIGGERED", retrain=True, reasons=evidence, trigger_id=identity)


class Block(NamedTuple):
    """Why evidence does not lead to a retrain now."""

    state: Literal["WATCH", "RETRAINING", "COOLDOWN", "OPEN"]
    by: str
    why: str


def _per_partition(history: Sequence[CheckRow]) -> list[CheckRow]:
    """The newest row of each partition in order of partitions, of the version that the last row is about."""
    if not history:
        raise ValueError("history is empty; decide after a check")
    live = history[-1].package_digest
    rows = {row.partition: row for row in history if row.package_digest == live}
    return [rows[day] for day in sorted(rows) if day <= history[-1].partition]


def _too_small(rows: Sequence[CheckRow], policy: DriftPolicy) -> tuple[str, ...]:
    run = 0
    while run < len(rows) and rows[-1 - run].outcome == "insufficient":
        run += 1
    reason = f"{rows[-1].partition}: too few rows to say anything, the {run}. time in a row"
    alert = (f"alert: {run} windows in a row were too small; find out where the requests went",)
    return (reason, *rows[-1].reasons, *(alert if run >= policy.insufficient_alert else ()))


def _evidence(rows: Sequence[CheckRow], policy: DriftPolicy) -> tuple[str, ...]:
    """Why the checks argue for a retrain, or nothing. The newest check must be a hit itself."""
    last = rows[-1]
    if not last.hit:
        return ()
    if last.quality_dropped and last.score is not None and last.score >= policy.urgent_share:
        return (f"urgent: {last.score:.2f} of the importance has drifted and quality fell", *last.reasons)
    hits = [row for row in _disjoint(rows, policy.window) if row.hit]
    if len(hits) < policy.hits:
        return ()
    days = ", ".join(str(row.partition) for row in reversed(hits))
    return (f"{len(hits)} of {policy.window} consecutive checks hit ({days})", *last.reasons)


def _disjoint(rows: Sequence[CheckRow], number: int) -> list[CheckRow]:
    """The rows of the last ``number`` consecutive windows, newest first, none sharing a day with another.

    Merged windows overlap, and overlapping windows would count the same days twice. A partition without a row takes
    its place in the sequence and is no hit.
    """
    by_partition = {row.partition: row for row in rows}
    found, day = [], rows[-1].partition
    for _ in range(number):
        row = by_partition.get(day)
        if row is not None and row.outcome == "checked":
            found.append(row)
        day = ((row.first or row.partition) if row is not None else day) - DAY
    return found


def _quiet(rows: Sequence[CheckRow], policy: DriftPolicy) -> Decision:
    """WATCH from the first hit until ``leave_checks`` checks in a row stayed below ``leave_share``; else STABLE."""
    watching, calm = False, 0
    for row in (row for row in rows if row.outcome == "checked"):
        if row.hit:
            watching, calm = True, 0
        elif watching:
            calm = calm + 1 if row.score is not None and row.score < policy.leave_share else 0
            watching = calm < policy.leave_checks
    hint = f"watching: {policy.hits} hits in {policy.window} checks would trigger"
    return Decision(
        state="WATCH" if watching else "STABLE",
        retrain=False,
        reasons=(*rows[-1].reasons, *((hint,) if watching else ())) or ("no drift",),
    )


def _standing_block(
    retrains: Sequence[RetrainRow],
    now: dt.datetime,
    policy: DriftPolicy,
    closed_at: dt.datetime | None,
    *,
    retraining: bool,
) -> Block | None:
    """What holds whatever the evidence says: a retrain in flight, an open breaker, the cool-down."""
    if retraining or any(row.ended_at is None for row in retrains):
        return Block("RETRAINING", "single flight", "a training of this model is in flight")
    vain = _without_effect(retrains, policy, closed_at)
    if vain >= policy.breaker:
        why = f"the last {vain} drift retrains were without effect; a person or a promotion must close the breaker"
        return Block("OPEN", "breaker", why)
    ends = [row.ended_at for row in retrains if row.ended_at is not None]
    if ends and now < max(ends) + policy.cool_down:
        why = f"the last drift retrain ended at {max(ends):%Y-%m-%dT%H:%MZ}; cooling down for {policy.cool_down}"
        return Block("COOLDOWN", "cool-down", why)
    return None


def _without_effect(retrains: Sequence[RetrainRow], policy: DriftPolicy, closed_at: dt.datetime | None) -> int:
    """How many of the newest decided drift retrains, in a row, did not help."""
    decided = [
        row for row in retrains if row.promoted is not None and (closed_at is None or row.decided_at > closed_at)
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


def _spent(retrains: Sequence[RetrainRow], now: dt.datetime, policy: DriftPolicy) -> Block | None:
    """Whether the budget of drift retrains is used up."""
    recent = [row.decided_at for row in retrains if row.decided_at > now - policy.budget_window]
    if len(recent) < policy.budget:
        return None
    free = sorted(recent)[len(recent) - policy.budget] + policy.budget_window
    why = f"{len(recent)} drift retrains in {policy.budget_window.days} days use up the budget; next at {free:%Y-%m-%dT%H:%MZ}"
    return Block("COOLDOWN", "budget", why)
