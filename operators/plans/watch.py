"""The specs of the ``watch`` DAG's steps, and the policy's memory as the ledger holds it. Reads manifests only."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any

from artifacts.refs import Digest, Uri, join
from artifacts.store import children, manifest
from monitoring.contract import CheckRow, CheckSpec, ReferenceRef, ReferenceSpec, RetrainRow
from operators.ledger import Entry
from operators.pipelines import Pipeline
from operators.versions import Version
from serving.contract import Deployed, FeedbackRef, PredictionsRef


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
    row: Pipeline, live: Deployed, log: Sequence[PredictionsRef], checked: Sequence[Entry]
) -> tuple[PredictionsRef, ...]:
    """The partitions that the live version answered and that no check has looked at, oldest first."""
    done = {str(entry.body["partition"]) for entry in checked if entry.body["package_digest"] == live.package.digest}
    return tuple(
        ref
        for ref in log
        if row.calendar.ends(ref.partition) > live.promoted_at and ref.partition.isoformat() not in done
    )


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
    own = [ref for ref in log if row.calendar.ends(ref.partition) > live.promoted_at and ref.partition <= partition]
    return CheckSpec(
        model=row.model,
        reference=frozen,
        predictions=tuple(own[-row.drift.merge_partitions :]),
        feedback=labels(row, store, own[0].partition, partition),
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
    decisions: Sequence[Entry], ends: Mapping[int, Entry], releases: Sequence[Entry]
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
            )
        )
    return tuple(rows)


def _promoted(end: Entry, outcomes: Mapping[Any, Any]) -> bool | None:
    """Whether a closed retrain put a version in front; one that made none, or found one that was live, did not."""
    if end.body["outcome"] != "trained":
        return False
    outcome = outcomes.get(end.body.get("package"))
    return None if outcome is None else outcome == "promoted"
