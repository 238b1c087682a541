"""What the gates need besides the steps' results, and the artifact that keeps what they said."""

from __future__ import annotations

import json
import subprocess

from artifacts.refs import Ref, Uri, join, key_digest, short
from artifacts.settings import ROOT
from artifacts.store import publish, read_ref
from operators.ledger import Ledger
from operators.steps import layer_digest
from operators.versions import Version
from training.contract import EvaluationRef, GateEvidence, GatePolicy, Verdict
from training.gate import recipe_of
from training.measures import EVALUATION_FILE, Look, Slice, slices_in

GATE = "gate"
VERDICTS_FILE = "verdicts.json"
GIT_SECONDS = 10


def looks(book: Ledger, model: str) -> tuple[Look, ...]:
    """Every judgement of a model's versions that the ledger holds: each is a look at its dataset's test window."""
    return tuple(
        Look.model_validate({name: entry.body[name] for name in Look.model_fields})
        for entry in book.entries(GATE, model)
        if entry.body.keys() >= Look.model_fields.keys()
    )


def commit() -> str | None:
    """How git describes the code that runs here, '-dirty' where it was changed since; None where there is no repository.

    Lineage only: what was run is the code digest, which is part of the training key.
    """
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        found = subprocess.run(  # noqa: S603  our own words
            command, capture_output=True, text=True, timeout=GIT_SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return found.stdout.strip() or None


def with_history(evidence: GateEvidence, book: Ledger, champion: Version | None) -> GateEvidence:
    """The evidence with what lies outside the run's own steps; raises ArtifactCorrupt when the evaluation was altered."""
    return evidence.model_copy(
        update={
            "slices": evaluated_slices(evidence.evaluation),
            "looks": looks(book, evidence.dataset.model),
            "champion_partition": champion.registered.partition if champion else None,
            "code": layer_digest("training"),
            "commit": commit(),
        }
    )


def evaluated_slices(evaluation: EvaluationRef) -> tuple[Slice, ...]:
    """The slices of a verified evaluation."""
    return slices_in(read_ref(evaluation).file(EVALUATION_FILE).read_bytes())


def keep(store: Uri, evidence: GateEvidence, policy: GatePolicy, found: tuple[Verdict, ...]) -> Ref:
    """Publishes the verdicts with the digests of what they judged and the policy they judged by; equal ones are one artifact."""
    said = [verdict.model_dump(mode="json") for verdict in found]
    content = {
        "model": evidence.dataset.model,
        "training_key": evidence.candidate.training_key,
        "inputs": {
            "dataset": evidence.dataset.digest,
            "validations": [one.digest for one in evidence.validations],
            "candidate": evidence.candidate.digest,
            "final": evidence.final.digest,
            "evaluation": evidence.evaluation.digest,
        },
        "recipe": recipe_of(evidence.candidate),
        "policy": policy.model_dump(mode="json"),
        "verdicts": [{**verdict, "digest": key_digest(verdict)} for verdict in said],
    }
    uri = join(store, "verdicts", evidence.dataset.model, short(key_digest(content)))
    with publish(uri, "verdicts") as draft:
        (draft.path / VERDICTS_FILE).write_text(json.dumps(content, indent=1, sort_keys=True))
    if draft.manifest is None:
        raise AssertionError("a published draft has a manifest")
    return Ref(uri=uri, digest=draft.manifest.digest)
