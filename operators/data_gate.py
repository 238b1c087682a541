"""What the data gate says against a partition: the newest checks of its raw day, its views and its training set."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

from artifacts.refs import Uri, join
from artifacts.step import failure_of
from artifacts.store import exists, read_bytes
from feature_repo.contract import ValidateSpec
from operators.ledger import Attempt
from operators.pipelines import Pipeline

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
    spec_uri = join(str(body["folder"]), "spec.json")
    if not exists(spec_uri):  # the plan is written after the attempt has begun
        return None
    spec = ValidateSpec.model_validate_json(read_bytes(spec_uri))
    return spec.suite if any(target.partition == partition for target in spec.targets) else None


def _refusal(attempt: Attempt) -> str | None:
    if attempt.finished is None:
        return None
    result: Uri = join(str(attempt.begun.body["folder"]), "result.json")
    words = failure_of(result)
    return words.reason if words is not None and words.kind == "bad_data" else None
