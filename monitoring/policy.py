"""When drift is worth a retrain: the hits of a check, and the state machine over the checks of one model. Pure.

Rules and numbers: decisions.md 1.3 and 1.4, as fields of ``DriftPolicy``. Nothing here reads a clock or a store: the
caller gives what the ledger remembers, so the same evidence gives the same decision and the same trigger id.

STABLE -> WATCH (a hit) -> TRIGGERED (the debounce agrees) -> RETRAINING -> COOLDOWN -> STABLE; OPEN while the breaker is
open, DATA_INCIDENT while the feed is broken, CHECK_FAILED while the check cannot be run, INSUFFICIENT_DATA while the window
is too small.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Sequence
from typing import NamedTuple

from artifacts.refs import Digest, key_digest
from monitoring.audit import precision
from monitoring.contract import DRIFTED, Cause, CheckRef, CheckRow, Decision, DriftPolicy, Situation
from monitoring.evidence import Seen
from monitoring.holds import passing, standing
from monitoring.share import moved_most
from monitoring.worth import staleness


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
    most = moved_most(check.findings) if hit else None
    return CheckRow(
        partition=check.partition,
        package_digest=check.package_digest,
        outcome=check.outcome,
        hit=hit,
        score=check.score,
        reasons=reasons if most is None else (*reasons, most),
        quality_dropped=quality_dropped(check),
        share_only=hit and len(reasons) == 1 and check.score is not None and check.score >= policy.trigger_share,
        drifted=_weights(check, DRIFTED),
        warned=_weights(check, frozenset({"warn"})),
        quality_only=hit and quality_dropped(check) and len(reasons) == 1,
        excess=check.quality.excess if check.quality is not None else None,
        labels=_labelled_days(check),
        first=check.first,
    )


def _weights(check: CheckRef, kinds: frozenset[str]) -> dict[str, float]:
    return {finding.feature: finding.weight for finding in check.findings if finding.kind in kinds}


def _labelled_days(check: CheckRef) -> tuple[dt.date, dt.date] | None:
    quality = check.quality
    return None if quality is None or quality.first is None or quality.last is None else (quality.first, quality.last)


def trigger_id(model: str, live: Digest, window_end: dt.date, policy: DriftPolicy) -> Digest:
    """The identity of a trigger: the same evidence gives the same id, whenever it is looked at."""
    return key_digest({
        "model": model,
        "live": live,
        "window_end": window_end.isoformat(),
        "policy_version": policy.version,
    })


def decide(history: Sequence[CheckRow], situation: Situation, policy: DriftPolicy) -> Decision:
    """What to do after the last check of ``history`` (oldest first); every answer has its reasons."""
    rows = _per_partition(history)
    last, audited = rows[-1], precision(situation.effects, policy)
    seen = Seen(rows, audited.trigger_share, {alert.partition: alert.words for alert in situation.alerts}, policy)
    answer = _incident(last, situation) or _answer(seen, situation)
    raised = (audited.words,) if audited.trigger_share > policy.trigger_share else ()
    return answer.model_copy(update={"reasons": (*answer.reasons, *raised), "trigger_share": audited.trigger_share})


def _incident(last: CheckRow, situation: Situation) -> Decision | None:
    """A broken feed, or a data gate that failed or is late: a retrain would learn from that."""
    if situation.failed_gate:
        reason = f"{last.partition}: the data gate has not passed; mend the data before anything learns from it"
        return Decision(state="DATA_INCIDENT", retrain=False, reasons=(reason, *situation.failed_gate))
    if last.outcome == "incident":
        reason = "the log or its features are broken, and a retrain would learn from that; mend the feed"
        return Decision(state="DATA_INCIDENT", retrain=False, reasons=(f"{last.partition}: {reason}", *last.reasons))
    if last.outcome == "failed":
        reason = "the check could not be run, and that is no pass"
        return Decision(state="CHECK_FAILED", retrain=False, reasons=(f"{last.partition}: {reason}", *last.reasons))
    return None


def _answer(seen: Seen, situation: Situation) -> Decision:
    policy, last = seen.policy, seen.rows[-1]
    evidence = _evidence(seen, situation)
    block = standing(situation, policy, evidence.cause if evidence else None)
    if evidence is None and last.outcome == "insufficient":
        return Decision(state="INSUFFICIENT_DATA", retrain=False, reasons=_too_small(seen.rows, policy))
    if evidence is None and block is None:
        return _quiet(seen)
    identity = trigger_id(situation.model, last.package_digest, last.partition, policy)
    block = block or passing(last, identity, situation, policy)
    if block is not None:
        merged = ("the evidence asks for a retrain; merged", *evidence.reasons) if evidence else ()
        by = block.by if evidence else None
        return Decision(state=block.state, retrain=False, reasons=(block.why, *merged), suppressed_by=by)
    assert evidence is not None  # noqa: S101  without evidence and block the answer was quiet
    return Decision(
        state="TRIGGERED", retrain=True, reasons=evidence.reasons, trigger_id=identity, cause=evidence.cause
    )


class _Evidence(NamedTuple):
    """Why a retrain is asked for, and which kind of reason it is."""

    cause: Cause
    reasons: tuple[str, ...]


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


def _evidence(seen: Seen, situation: Situation) -> _Evidence | None:
    """Why a retrain is asked for; drift first, then what is due without drift: enough new labels, and age."""
    drift = _drift(seen)
    if drift is not None:
        return drift
    wanted = seen.policy.feedback_rows
    if wanted is not None and situation.new_labels >= wanted:
        return _Evidence("labels", (f"{situation.new_labels} rows were labelled since training (due at {wanted})",))
    stale = staleness(situation, seen.policy)
    return _Evidence("staleness", stale) if stale else None


def _drift(seen: Seen) -> _Evidence | None:
    """Why the checks argue for a retrain. The newest check must be a hit itself."""
    last, policy = seen.rows[-1], seen.policy
    if not seen.hit(last):
        return None
    if last.quality_dropped and last.score is not None and last.score >= policy.urgent_share:
        urgent = f"urgent: {last.score:.2f} of the importance has drifted and quality fell"
        return _Evidence("urgent", (urgent, *seen.reasons(last)))
    hits = seen.agreeing()
    if len(hits) < policy.hits:
        return None
    days = ", ".join(str(row.partition) for row in reversed(hits))
    agreed = f"{len(hits)} of {policy.window} consecutive checks hit ({days})"
    return _Evidence("drift", (agreed, *seen.reasons(last)))


def _quiet(seen: Seen) -> Decision:
    """WATCH from the first hit until ``leave_checks`` checks in a row stayed below ``leave_share``; else STABLE."""
    watching, calm, policy = False, 0, seen.policy
    for row in (row for row in seen.rows if row.outcome == "checked"):
        if seen.hit(row):
            watching, calm = True, 0
        elif watching:
            calm = calm + 1 if row.score is not None and row.score < policy.leave_share else 0
            watching = calm < policy.leave_checks
    hint = f"watching: {policy.hits} hits in {policy.window} checks would trigger"
    return Decision(
        state="WATCH" if watching else "STABLE",
        retrain=False,
        reasons=(*seen.reasons(seen.rows[-1]), *((hint,) if watching else ())) or ("no drift",),
    )
