"""The versions of a model as the ledger knows them: what was trained, packaged and registered, with its references."""

from __future__ import annotations

from typing import TypeVar

from pydantic import BaseModel

from artifacts.refs import Digest, Uri
from artifacts.store import read_bytes
from operators.ledger import Entry, Ledger
from serving.contract import PackageRef
from training.contract import EvaluationRef, FitRef, VersionRef

VERSION = "version"
BACKFILL = "backfill"
"""Trigger of a version that was made to be compared, and is never released."""

ResultT = TypeVar("ResultT", bound=BaseModel)


class Version(BaseModel, frozen=True, extra="forbid"):
    """One registered version. The URIs name the results of the steps that made it, which hold the full references."""

    registered: VersionRef
    evaluation_fit: Uri
    final_fit: Uri
    evaluation: Uri
    package: Uri
    trigger: str
    decision: int | None = None

    def evaluation_fit_ref(self) -> FitRef:
        """The fit that the quality gates compare."""
        return _load(self.evaluation_fit, FitRef)

    def final_fit_ref(self) -> FitRef:
        """The fit that is served, and whose rows are the drift reference."""
        return _load(self.final_fit, FitRef)

    def evaluation_ref(self) -> EvaluationRef:
        """The evidence it was judged by."""
        return _load(self.evaluation, EvaluationRef)

    def package_ref(self) -> PackageRef:
        """What is served."""
        return _load(self.package, PackageRef)


def _load(uri: Uri, kind: type[ResultT]) -> ResultT:
    try:
        return kind.model_validate_json(read_bytes(uri))
    except FileNotFoundError as error:
        raise LookupError(
            f"{uri}: the {kind.__name__} of a registered version is gone; restore it from a copy of the store, or roll back"
        ) from error


def record(ledger: Ledger, version: Version) -> Entry:
    """Writes a version into the ledger; the same training key a second time is the same version.

    A backfill's version that is asked for anew by a run that may release it becomes that run's, as it was registered.
    """
    registered = version.registered
    unique = f"version:{registered.model}:{registered.training_key}"
    first = ledger.append(VERSION, registered.model, version.model_dump(mode="json"), unique=unique)
    if not first.existed or first.body["trigger"] != BACKFILL or version.trigger == BACKFILL:
        return first
    taken = Version.model_validate(first.body).model_copy(
        update={"trigger": version.trigger, "decision": version.decision}
    )
    return ledger.append(VERSION, registered.model, taken.model_dump(mode="json"), unique=f"{unique}:taken")


def versions(ledger: Ledger, model: str) -> tuple[Version, ...]:
    """All versions of a model, in the order in which they were registered; of one training key the last entry counts."""
    found = (Version.model_validate(entry.body) for entry in ledger.entries(VERSION, model))
    return tuple({version.registered.training_key: version for version in found}.values())


def by_package(ledger: Ledger, model: str, digest: Digest) -> Version:
    """The version that a package belongs to; raises LookupError when the ledger does not know it."""
    for version in versions(ledger, model):
        if version.registered.package.digest == digest:
            return version
    raise LookupError(
        f"the ledger has no version of '{model}' with package {digest}; it was not made by the retrain DAG"
    )
