"""What the data gate has said of a partition: the checks of its raw day, its views and its training set, from the ledger."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence

from pydantic import ValidationError

from artifacts.refs import Digest, Uri, join
from artifacts.step import failure_of, step_key
from artifacts.store import read_bytes
from feature_repo.contract import ValidateSpec
from operators.ledger import Attempt
from operators.pipelines import Pipeline
from operators.steps import PENDING

MODULE = "feature_repo.validate"
LOOKED_AT = 1000
"""Newest step attempts among which a check that has held is looked for: days of an hourly repo and its models."""


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
    for spec in _held(wanted, attempts, code):
        if all(target in spec.targets for target in wanted.targets):
            return spec.model_copy(update={"output": wanted.output})
    return wanted


def not_held(wanted: ValidateSpec, attempts: Sequence[Attempt], code: Digest) -> ValidateSpec | None:
    """The check without the days that another one has held as they are now; None when no day is left."""
    left = wanted.targets
    for spec in _held(wanted, attempts, code):
        left = tuple(target for target in left if target not in spec.targets)
        if not left:
            return None
    return wanted.model_copy(update={"targets": left})


def _held(wanted: ValidateSpec, attempts: Sequence[Attempt], code: Digest) -> Iterator[ValidateSpec]:
    for attempt in attempts:
        if attempt.outcome == "done" and attempt.begun.body.get("module") == MODULE:
            spec = _spec(attempt)
            same = spec is not None and attempt.key == step_key(MODULE, spec, code)
            if spec is not None and same and _question(spec) == _question(wanted):
                yield spec


def _question(spec: ValidateSpec) -> ValidateSpec:
    """A check without what it is about and where its report goes."""
    return spec.model_copy(update={"targets": (), "output": PENDING})


def _spec(attempt: Attempt) -> ValidateSpec | None:
    """What an attempt was asked; None before its plan is written, and when another release wrote it in another form."""
    uri = join(str(attempt.begun.body["folder"]), "spec.json")
    try:
        return ValidateSpec.model_validate_json(read_bytes(uri))
    except (FileNotFoundError, ValidationError):
        return None


def _refusal(attempt: Attempt) -> str | None:
    if attempt.finished is None:
        return None
    result: Uri = join(str(attempt.begun.body["folder"]), "result.json")
    words = failure_of(result)
    return words.reason if words is not None and words.kind == "bad_data" else None
