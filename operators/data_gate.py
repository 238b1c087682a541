"""What the data gate has said of a partition: the checks of its raw day, its views and its training set, from the ledger."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

from artifacts.refs import Digest, Uri, join
from artifacts.step import failure_of, step_key
from artifacts.store import exists, read_bytes
from feature_repo.contract import ValidateSpec
from operators.ledger import Attempt
from operators.pipelines import Pipeline
from operators.steps import PENDING

MODULE = "feature_repo.validate"


def failed_gate(row: Pipeline, attempts: Sequence[Attempt], partition: dt.date) -> tuple[str, ...]:
    """Why data of a partition were refused, a line per suite whose newest check refused them; ``attempts`` newest first.

    A check that could not be run, or that has not ended, is no word against the data.
    """
    said: dict[str, str | None] = {}
    for attempt in attempts:
        suite = _suite(row, attempt, partition)
        if suite is not None and suite not in said:
            said[suite] = _refusal(attempt)
    return tuple(f"{suite}: {reason}" for suite, reason in said.items() if reason is not None)


def _suite(row: Pipeline, attempt: Attempt, partition: dt.date) -> str | None:
    """The suite that an attempt held against a partition of this model's data; None when it was about something else."""
    body = attempt.begun.body
    if body.get("module") != MODULE or body.get("dag") not in {f"features__{row.repo.name}", f"retrain__{row.model}"}:
        return None
    spec = _spec(attempt)
    found = spec is not None and any(target.partition == partition for target in spec.targets)
    return spec.suite if spec is not None and found else None


def held_before(wanted: ValidateSpec, attempts: Sequence[Attempt], code: Digest) -> ValidateSpec:
    """The check of a range that has held with the wanted day in it, or else what was wanted.

    Only a check by this very code counts, with the same policy, of the same bytes of the day and with the same history, so
    what it gives is the key of work that is done; ``attempts`` newest first.
    """
    for attempt in attempts:
        if attempt.outcome != "done" or attempt.begun.body.get("module") != MODULE:
            continue
        spec = _spec(attempt)
        if spec is None or attempt.key != step_key(MODULE, spec, code):
            continue
        if _question(spec) == _question(wanted) and all(target in spec.targets for target in wanted.targets):
            return spec.model_copy(update={"output": wanted.output})
    return wanted


def _question(spec: ValidateSpec) -> ValidateSpec:
    """A check without what it is about and where its report goes."""
    return spec.model_copy(update={"targets": (), "output": PENDING})


def _spec(attempt: Attempt) -> ValidateSpec | None:
    uri = join(str(attempt.begun.body["folder"]), "spec.json")
    return (
        ValidateSpec.model_validate_json(read_bytes(uri)) if exists(uri) else None
    )  # it is written once that has begun


def _refusal(attempt: Attempt) -> str | None:
    if attempt.finished is None:
        return None
    result: Uri = join(str(attempt.begun.body["folder"]), "result.json")
    words = failure_of(result)
    return words.reason if words is not None and words.kind == "bad_data" else None
