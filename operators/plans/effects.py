"""Which drift retrains are to be audited, what their replay reads, and what is concluded. Reads manifests only."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import NamedTuple

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
    """A drift retrain that can be judged by now. ``new`` and ``promoted_at`` are None when its version was not promoted."""

    decision: int
    row: RetrainRow
    old: Digest
    new: Digest | None = None
    promoted_at: dt.datetime | None = None


def audits(
    decisions: Sequence[Entry],
    ends: Mapping[int, Entry],
    releases: Sequence[Entry],
    retrains: Sequence[RetrainRow],
    done: Sequence[Entry],
    now: dt.datetime,
    policy: DriftPolicy,
) -> tuple[Audit, ...]:
    """The drift retrains without an audit that have come to an end: at once when refused, ``audit_after`` the promotion.

    ``retrains`` are those of ``plans.watch.retrains``. A run that broke down says nothing of its trigger.
    """
    audited = {int(str(entry.body["decision"])) for entry in done}
    promotions = {str(entry.body["package"]): entry.at for entry in reversed(releases) if _promoted(entry)}
    drift = (entry for entry in decisions if entry.body.get("trigger") == "drift")
    found = []
    for decision, row in zip(drift, retrains, strict=True):
        end = ends.get(decision.id)
        if end is None or decision.id in audited or row.cause not in BROKEN_BY or end.body["outcome"] == FAILED:
            continue
        old = str(decision.body.get("package_digest"))
        if row.promoted is False:
            found.append(Audit(decision.id, row, old))
        elif row.promoted and (at := promotions.get(str(end.body["package"]))) and due(at, now, policy):
            found.append(Audit(decision.id, row, old, str(end.body["package"]), at))
    return tuple(found)


def _promoted(release: Entry) -> bool:
    return release.body["outcome"] == "promoted"


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


FIGURES = ("labelled", "log_loss_old", "log_loss_new", "gain_lower")
