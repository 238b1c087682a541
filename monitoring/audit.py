"""Whether past drift retrains helped, and what follows for the next. Pure.

A trigger that is mostly wrong must become harder to pull: below ``audit_precision`` over ``audit_last`` drift retrains the
trigger share rises by ``share_step``, at most to ``share_limit`` (decisions.md 1.4).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import NamedTuple

from monitoring.contract import DriftPolicy, Effect, EffectEvidence
from training.measures import DECIDING


def effect(evidence: EffectEvidence, policy: DriftPolicy) -> Effect:
    """Whether one drift retrain helped: it was promoted, and quality rose, or without labels, drift fell.

    Quality is the deciding loss of the old champion, replayed on the requests that the new version answered, minus the new
    version's. Drift has fallen when the score against the new reference is below the old one by ``breaker_cut``.
    """
    drift, quality, reasons = None, None, []
    if not evidence.promoted:
        reasons.append("its version was not promoted")
    if evidence.score_before is not None and evidence.score_after is not None:
        drift = evidence.score_after <= (1 - policy.breaker_cut) * evidence.score_before
        reasons.append(f"drift score {evidence.score_before:.2f} -> {evidence.score_after:.2f}")
    gain = None
    if evidence.loss_old is not None and evidence.loss_new is not None:
        if evidence.labelled >= policy.minimum_labels:
            gain = evidence.loss_old - evidence.loss_new
            quality = gain > 0
            reasons.append(_gain_words(evidence))
        else:
            reasons.append(f"{evidence.labelled} labels, a replay needs {policy.minimum_labels}; quality is not judged")
    judged = quality if quality is not None else drift
    if evidence.promoted and judged is None:
        reasons.append("nothing was measured yet, so the promotion speaks for it")
    return Effect(
        decided_at=evidence.decided_at,
        promoted=evidence.promoted,
        drift_improved=drift,
        quality_improved=quality,
        gain=gain,
        helped=evidence.promoted and judged is not False,
        reasons=tuple(reasons),
    )


def _gain_words(evidence: EffectEvidence) -> str:
    bound = "" if evidence.gain_lower is None else f", lower bound of the gain {evidence.gain_lower:+.4f}"
    return (
        f"{DECIDING[evidence.task].title} {evidence.loss_old:.4f} of the old champion -> {evidence.loss_new:.4f} on {evidence.labelled} labels"
        f"{bound}"
    )


def due(promoted_at: dt.datetime, now: dt.datetime, policy: DriftPolicy) -> bool:
    """Whether a promoted drift retrain is to be audited by now."""
    return now >= promoted_at + policy.audit_after


class Precision(NamedTuple):
    """The share of the newest drift retrains that helped, and the trigger share that follows from all of them."""

    share: float | None
    retrains: int
    trigger_share: float
    words: str


def precision(effects: Sequence[Effect], policy: DriftPolicy) -> Precision:
    """Judges the drift retrains in order; after a rise of the trigger share the next ``audit_last`` are judged anew."""
    ordered = sorted(effects, key=lambda each: each.decided_at)
    raised, since = policy.trigger_share, 0
    for place in range(1, len(ordered) + 1):
        window = ordered[since:place][-policy.audit_last :]
        if len(window) == policy.audit_last and _share(window) < policy.audit_precision:
            raised, since = min(raised + policy.share_step, max(policy.share_limit, policy.trigger_share)), place
    last = ordered[-policy.audit_last :]
    share = _share(last) if last else None
    words = f"{sum(each.helped for each in last)} of the last {len(last)} drift retrains helped"
    if raised > policy.trigger_share:
        words += (
            f"; precision was below {policy.audit_precision:.0%} over {policy.audit_last}, so the trigger share is "
            f"{raised:.2f} instead of {policy.trigger_share:.2f}"
        )
    return Precision(share, len(last), raised, words)


def _share(effects: Sequence[Effect]) -> float:
    return sum(each.helped for each in effects) / len(effects)
