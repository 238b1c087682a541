"""What a step call is, what it is planned to be, and whether its work is already done; no Airflow, no process.

A plan turns resolved inputs into a spec, the spec into a key, and the key into a folder of the store:
``<store>/steps/<module>/<short key>/`` holds step.json (the identity), spec.json, result.json, progress.json, failure.json.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ValidationError

from artifacts.refs import Digest, Ref, Uri, code_digest, join, key_digest, local_path, short
from artifacts.secret import passwords_in
from artifacts.settings import ROOT
from artifacts.step import step_key
from artifacts.store import ArtifactCorrupt, ArtifactMissing, manifest, read, read_bytes, write_bytes
from training.contract import TorchJob

Image = Literal["features", "training", "serving", "monitoring"]
ResultT = TypeVar("ResultT", bound=BaseModel)

LAYERS: Mapping[Image, tuple[str, ...]] = {
    "features": ("artifacts", "feature_repo"),
    "training": ("artifacts", "feature_repo", "training"),
    "serving": ("artifacts", "feature_repo", "training", "serving"),
    "monitoring": ("artifacts", "feature_repo", "training", "serving", "monitoring"),
}
PENDING: Uri = "file:///pending"
"""What a spec function writes as ``output`` when the place depends on the key; ``StepCall.output`` then fills it in."""


@dataclass(frozen=True)
class Skip:
    """A spec function's answer when there is nothing to do, with the reason for the log and the UI."""

    reason: str


@dataclass(frozen=True)
class StepCall:
    """One step as a DAG file writes it.

    ``spec`` gets the resolved inputs by name and returns the spec, a Skip, or None for "nothing to do". ``job`` is set for
    a distributed training. ``output`` gives the place of the output when it depends on the key, which excludes the place.
    ``effect=True`` is for a step that acts on something outside the store, such as a server that may have restarted: it
    runs each time that it is asked. ``salt`` gets the same inputs as ``spec``; a text that it returns makes another key.
    """

    module: str
    image: Image
    spec: Callable[..., BaseModel | Skip | None]
    result: type[BaseModel]
    job: Callable[[Any], TorchJob] | TorchJob | None = None
    output: Callable[[Any, Digest], Uri] | None = None
    effect: bool = False
    salt: Callable[..., str | None] | None = None


@dataclass(frozen=True)
class PlannedStep:
    """A step that is ready to run: everything is known, nothing has happened."""

    module: str
    image: Image
    spec: BaseModel
    result_type: type[BaseModel]
    job: TorchJob | None
    key: Digest
    folder: Uri
    effect: bool = False

    @property
    def spec_uri(self) -> Uri:
        """Where the step reads its spec."""
        return join(self.folder, "spec.json")

    @property
    def result_uri(self) -> Uri:
        """Where the step writes its result, last."""
        return join(self.folder, "result.json")

    @property
    def identity_uri(self) -> Uri:
        """Where the folder says whose it is, since its name holds only a part of the key."""
        return join(self.folder, "step.json")

    def xcom(self) -> dict[str, str]:
        """What travels to later tasks: a reference, well under a kilobyte."""
        return {"result": self.result_uri, "key": self.key}


class Identity(BaseModel, frozen=True, extra="forbid"):
    """Whose folder it is, and which attempt wrote the spec that lies in it."""

    module: str
    key: Digest
    attempt: int


@functools.cache
def layer_digest(image: Image) -> Digest:
    """The digest of the code that an image's steps run. Cached: a process does not outlive a change of its code."""
    return code_digest(ROOT, LAYERS[image])


def plan(call: StepCall, inputs: Mapping[str, Any], store: Uri, code: Digest | None = None) -> PlannedStep | Skip:
    """Turns a call and its resolved inputs into a planned step; raises pydantic's ValidationError for a bad spec.

    Raises ValueError for a spec with a password in it: it would lie in the store, in logs and in the UI.
    """
    spec = call.spec(**inputs)
    if spec is None or isinstance(spec, Skip):
        return spec or Skip(f"{call.module}: nothing to do for {dict(inputs)}")
    if found := passwords_in(spec.model_dump(mode="json")):
        raise ValueError(
            f"{call.module}: {', '.join(found)}: a URL with a password, and a spec is read by many; leave it out"
        )
    key = step_key(call.module, spec, code or layer_digest(call.image))
    if call.salt is not None and (salt := call.salt(**inputs)):
        key = key_digest({"key": key, "salt": salt})
    if call.output is not None:
        spec = type(spec).model_validate({**spec.model_dump(), "output": call.output(spec, key)})
    job = call.job if call.job is None or isinstance(call.job, TorchJob) else call.job(spec)
    folder = join(store, "steps", call.module, short(key))
    return PlannedStep(call.module, call.image, spec, call.result, job, key, folder, call.effect)


def write_plan(step: PlannedStep, attempt: int) -> None:
    """Writes identity and spec into the step's folder."""
    identity = Identity(module=step.module, key=step.key, attempt=attempt)
    write_bytes(step.identity_uri, identity.model_dump_json(indent=1).encode())
    write_bytes(step.spec_uri, step.spec.model_dump_json(indent=1).encode())


def finished(step: PlannedStep) -> BaseModel | None:
    """The result of this very work when it is done and what it made still lies there unaltered; else None."""
    if step.effect:
        return None
    try:
        identity = Identity.model_validate_json(read_bytes(step.identity_uri))
        result = step.result_type.model_validate_json(read_bytes(step.result_uri))
    except (FileNotFoundError, ValidationError):
        return None
    return result if identity.key == step.key and all(map(intact, made(result))) else None


def made(result: BaseModel) -> Iterator[Ref]:
    """The artifacts that a result stands for: itself when it is a reference, else the references in its own fields."""
    if isinstance(result, Ref):
        yield result
        return
    for name in type(result).model_fields:
        value = getattr(result, name)
        yield from (item for item in (value if isinstance(value, tuple) else (value,)) if isinstance(item, Ref))


def intact(ref: Ref) -> bool:
    """Whether an artifact is the version that its reference names; on a local disk every file is digested."""
    try:
        if local_path(ref.uri) is not None:
            read(ref.uri, ref.digest)
            return True
        found = manifest(ref.uri)  # an object store checks its own content; downloading all of it here would not pay
    except (ArtifactCorrupt, ArtifactMissing):
        return False
    return found is not None and found.digest == ref.digest


def load(xcom: Mapping[str, str], result_type: type[ResultT]) -> ResultT:
    """The result that a payload task's XCom points at; raises LookupError when it has been removed."""
    try:
        return result_type.model_validate_json(read_bytes(xcom["result"]))
    except FileNotFoundError as error:
        raise LookupError(f"{xcom['result']}: the result is gone; clear the task that makes it") from error
