"""Which drift retrains are to be audited, what their replay reads, and what is concluded. Reads manifests only."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from artifacts.refs import Digest, Uri
from monitoring.audit import due, effect
from monitoring.contract import DriftPolicy, Effect, EffectEvidence, RetrainRow
from monitoring.effect_contract import EffectRef, EffectSpec
from monitoring.holds import BROKEN_BY
from operators.ledger import FAILED, Entry
from operators.pipelines import Pipeline
from operators.plans import watch as plans
from serving.contract import PackageRef, PredictionsRef


class Audit(NamedTuple):
    """A drift retrain that can be judged by now. ``new`` and ``promoted_at`` are None when its version did not stay in front."""

    decision: int
    row: RetrainRow
    old: Digest
    new: Digest | None = None
    promoted_at: dt.datetime | None = None
    taken_back: bool = False


class Told(NamedTuple):
    """What the ledger says of one model; ``retrains`` are those of ``plans.watch.retrains``, ``effects`` the audits so far."""

    decisions: Sequence[Entry]
    ends: Mapping[int, Entry]
    releases: Sequence[Entry]
    promotions: Sequence[Entry]
    retrains: Sequence[RetrainRow]
    effects: Sequence[Entry]

    def promoted(self) -> dict[str, dt.datetime]:
        """Package digest -> when it first went in front."""
        return {
            str(entry.body["package"]): entry.at
            for entry in reversed(self.releases)
            if entry.body["outcome"] == "promoted"
        }

    def taken_back(self) -> set[str]:
        """The packages that a rollback has put out of front."""
        left: Any = [entry.body.get("from") for entry in self.promotions if entry.body.get("rollback")]
        return {str(version["digest"]) for version in left if version}


def audits(told: Told, now: dt.datetime, policy: DriftPolicy) -> tuple[Audit, ...]:
    """The drift retrains without an audit that have come to an end: at once when refused, ``audit_after`` the promotion.

    A version that was taken back has not helped. A run that broke down says nothing of its trigger.
    """
    audited = {int(str(entry.body["decision"])) for entry in told.effects}
    promotions, taken_back = told.promoted(), told.taken_back()
    drift = (entry for entry in told.decisions if entry.body.get("trigger") == "drift")
    found = []
    for decision, row in zip(drift, told.retrains, strict=True):
        end = told.ends.get(decision.id)
        if end is None or decision.id in audited or row.cause not in BROKEN_BY or end.body["outcome"] == FAILED:
            continue
        old, new = str(decision.body.get("package_digest")), str(end.body.get("package"))
        if row.promoted is False or (row.promoted and new in taken_back):
            found.append(Audit(decision.id, row, old, taken_back=bool(row.promoted)))
        elif row.promoted and new in promotions and due(promotions[new], now, policy):
            found.append(Audit(decision.id, row, old, new, promotions[new]))
    return tuple(found)


def answered(row: Pipeline, audit: Audit, store: Uri) -> tuple[PredictionsRef, ...]:
    """The partitions that closed between a promotion and its audit, oldest first; none when nothing was promoted."""
    if audit.promoted_at is None:
        return ()
    until, calendar = audit.promoted_at + row.drift.audit_after, row.calendar
    return tuple(
        ref
        for ref in plans.logged(row, store)
        if calendar.ends(ref.partition) > audit.promoted_at and calendar.as_of(ref.partition) <= until
    )


def replay(row: Pipeline, audit: Audit, old: PackageRef, store: Uri, output: Uri) -> EffectSpec:
    """The old champion on what the new version answered; a later look reads the same partitions."""
    if audit.new is None:
        raise ValueError(f"decision {audit.decision} has promoted nothing; there is nothing to replay")
    logged = answered(row, audit, store)
    return EffectSpec(
        model=row.model,
        old=old,
        new=audit.new,
        predictions=logged,
        feedback=plans.labels(row, store, logged[0].partition, logged[-1].partition),
        policy=row.drift,
        seed=row.recipe.SEED,
        output=output,
    )


def conclude(audit: Audit, replayed: EffectRef | None, why_not: str | None, policy: DriftPolicy) -> Effect:
    """The effect of one drift retrain; ``why_not`` says why a promoted one has no replay."""
    figures = {} if replayed is None else replayed.model_dump(include=set(FIGURES))
    found = effect(
        EffectEvidence(
            decided_at=audit.row.decided_at,
            promoted=audit.new is not None,
            score_before=audit.row.score_before,
            score_after=audit.row.score_after,
            **figures,
        ),
        policy,
    )
    return found.model_copy(update={"reasons": (*found.reasons, why_not)}) if why_not else found


FIGURES = ("task", "labelled", "loss_old", "loss_new", "gain_lower")
