"""The specs of the ``watch`` DAG's steps, and the policy's memory as the ledger holds it. Reads manifests only."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from artifacts.refs import Digest, Uri, join, key_digest
from artifacts.store import children, manifest
from monitoring.contract import Cause, CheckRow, CheckSpec, DriftPolicy, ReferenceRef, ReferenceSpec, RetrainRow
from monitoring.holds import BROKEN_BY
from operators.ledger import Entry
from operators.pipelines import Pipeline
from operators.versions import Version
from serving.contract import Deployed, FeedbackRef, PredictionsRef

DRIFT, ALERT, EFFECT = "drift", "alert", "effect"  # kinds of ledger entries


def logged(row: Pipeline, store: Uri) -> tuple[PredictionsRef, ...]:
    """The closed partitions of the prediction log, oldest first."""
    found = []
    root = join(store, "predictions", row.model)
    for name in children(root):
        entry = manifest(join(root, name))
        if entry is not None:
            found.append(
                PredictionsRef(
                    uri=join(root, name),
                    digest=entry.digest,
                    model=row.model,
                    partition=dt.date.fromisoformat(name),
                    rows=int(str(entry.facts["rows"])),
                )
            )
    return tuple(found)


def labels(row: Pipeline, store: Uri, since: dt.date, until: dt.date) -> tuple[FeedbackRef, ...]:
    """The labels that became known from one partition through another; a later look at the same day sees no more."""
    found = []
    root = join(store, "feedback", row.model)
    for name in children(root):
        entry = manifest(join(root, name))
        day = dt.date.fromisoformat(name)
        if entry is not None and since <= day <= until:
            rows = int(str(entry.facts["rows"]))
            found.append(
                FeedbackRef(uri=join(root, name), digest=entry.digest, model=row.model, partition=day, rows=rows)
            )
    return tuple(found)


def unchecked(
    row: Pipeline,
    live: Deployed,
    log: Sequence[PredictionsRef],
    checked: Sequence[Entry],
    inputs: Callable[[dt.date], Digest],
) -> tuple[PredictionsRef, ...]:
    """The partitions that the live version answered and that no check has looked at, oldest first.

    A check that has failed in ``failed_checks`` runs on the same inputs is left alone until these change.
    """
    own = [entry.body for entry in checked if entry.body["package_digest"] == live.package.digest]
    done = {str(body["partition"]) for body in own if not body.get("failed")}
    failures = Counter((str(body["partition"]), str(body["inputs"])) for body in own if body.get("failed"))
    tried = {partition for partition, _ in failures}

    def waits(partition: dt.date) -> bool:
        name = partition.isoformat()
        if name in done:
            return False
        return name not in tried or failures[name, inputs(partition)] < row.drift.failed_checks

    return tuple(ref for ref in log if row.calendar.ends(ref.partition) > live.promoted_at and waits(ref.partition))


def inputs(row: Pipeline, live: Deployed, store: Uri, code: Digest) -> Callable[[dt.date], Digest]:
    """What a partition's check reads, and the code that reads it, as one digest: while it stays, so does its end."""

    def digest(partition: dt.date) -> Digest:
        own = _window(row, live, partition, logged(row, store))
        read = [*own, *labels(row, store, own[0].partition, partition)] if own else []
        return key_digest({"read": [ref.digest for ref in read], "code": code})

    return digest


def _window(
    row: Pipeline, live: Deployed, partition: dt.date, log: Sequence[PredictionsRef]
) -> tuple[PredictionsRef, ...]:
    own = [ref for ref in log if row.calendar.ends(ref.partition) > live.promoted_at and ref.partition <= partition]
    return tuple(own[-row.drift.merge_partitions :])


def reference(row: Pipeline, version: Version, output: Uri) -> ReferenceSpec:
    """What the live version knows as normal."""
    return ReferenceSpec(
        model=row.model,
        package=version.package_ref(),
        final=version.final_fit_ref(),
        evaluation=version.evaluation_ref(),
        policy=row.drift,
        seed=row.recipe.SEED,
        output=output,
    )


def check(
    row: Pipeline,
    version: Version,
    live: Deployed,
    frozen: ReferenceRef,
    partition: dt.date,
    log: Sequence[PredictionsRef],
    store: Uri,
    output: Uri,
) -> CheckSpec:
    """One closed partition against the reference; earlier ones of the same version are there to be merged in."""
    window = _window(row, live, partition, log)
    return CheckSpec(
        model=row.model,
        reference=frozen,
        predictions=window,
        feedback=labels(row, store, window[0].partition, partition),
        evaluation=version.evaluation_ref(),
        policy=row.drift,
        seed=row.recipe.SEED,
        output=output,
    )


def history(checks: Sequence[Entry], package: Digest) -> tuple[CheckRow, ...]:
    """The checks of a live version, oldest partition first."""
    rows = [CheckRow.model_validate(entry.body["row"]) for entry in checks if entry.body["package_digest"] == package]
    return tuple(sorted(rows, key=lambda row: row.partition))


def retrains(
    decisions: Sequence[Entry],
    ends: Mapping[int, Entry],
    releases: Sequence[Entry],
    checks: Sequence[Entry],
    policy: DriftPolicy,
) -> tuple[RetrainRow, ...]:
    """The retrains that drift asked for, oldest first; ``promoted`` is None until the version's release has ended."""
    outcomes = {entry.body["package"]: entry.body["outcome"] for entry in releases if entry.body["outcome"] != "failed"}
    rows = []
    for entry in decisions:
        if entry.body.get("trigger") != "drift":
            continue
        end = ends.get(entry.id)
        rows.append(
            RetrainRow(
                decided_at=entry.at,
                ended_at=end.at if end else None,
                promoted=_promoted(end, outcomes) if end else None,
                score_before=_score_before(entry, checks, policy),
                score_after=_score_after(end, checks) if end else None,
                trigger_id=entry.unique,
                cause=_cause(entry),
            )
        )
    return tuple(rows)


def _promoted(end: Entry, outcomes: Mapping[Any, Any]) -> bool | None:
    """Whether a closed retrain put a version in front; one that made none, or found one that was live, did not."""
    if end.body["outcome"] != "trained":
        return False
    outcome = outcomes.get(end.body.get("package"))
    return None if outcome is None else outcome == "promoted"


def _cause(decision: Entry) -> Cause:
    """What the policy decided it for; rows from before causes were written are drift's."""
    return cast("Cause", decision.body.get("cause", "drift"))


def _score_before(decision: Entry, checks: Sequence[Entry], policy: DriftPolicy) -> float | None:
    """The score of the check that asked; None when only its predictions or its labels did, whose end no score shows."""
    rows = (CheckRow.model_validate(entry.body["row"]) for entry in checks if entry.id == decision.body.get("check"))
    asked = next(rows, None)
    if asked is None or asked.score is None:
        return None
    return asked.score if asked.score >= policy.trigger_share or not asked.hit else None


def _score_after(end: Entry, checks: Sequence[Entry]) -> float | None:
    """The score of the new version's first check that gave one, against its own reference."""
    package = end.body.get("package")
    rows = history(checks, str(package)) if package is not None else ()
    return next((row.score for row in rows if row.score is not None), None)


def breaker_closed_at(promotions: Sequence[Entry], decisions: Sequence[Entry]) -> dt.datetime | None:
    """When a version that drift had not asked for last went live: by schedule, by hand, by age or by new labels.

    A rollback brings back what was there before, and a promotion that names no decision may be drift's own; neither closes.
    """
    drift = {entry.id for entry in decisions if entry.body.get("trigger") == "drift" and _cause(entry) in BROKEN_BY}
    closing = [
        entry.at
        for entry in promotions
        if "decision" in entry.body and not entry.body["rollback"] and entry.body["decision"] not in drift
    ]
    return max(closing, default=None)
