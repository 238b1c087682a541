"""Publishing and reading artifacts: a reader sees nothing, or the whole of one verified version.

An artifact is a folder. Its files lie in ``<uri>/<attempt>/``; ``<uri>/manifest.json`` names the attempt and every
file with size and digest, and is written last. Replacing the manifest is the one atomic act, by rename on a local
disk and by a single put on an object store, so a writer that is killed leaves the old version or the new one.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field, JsonValue, ValidationError

from artifacts.refs import Digest, Ref, Uri, file_digest, folder_digest, join, local_path

MANIFEST = "manifest.json"


class ArtifactMissing(LookupError):
    """Nothing has been published under this URI; the producer has to run first."""


class ArtifactCorrupt(ValueError):
    """What lies there is not what its manifest or its reference says; it must be built again, never used."""


class FileEntry(BaseModel, frozen=True, extra="forbid"):
    """One file of an artifact."""

    path: str
    size: int = Field(ge=0)
    digest: Digest


class Manifest(BaseModel, frozen=True, extra="forbid"):
    """What an artifact contains. ``facts`` are what its producer wants readers to know without opening a file."""

    kind: str
    attempt: str
    files: tuple[FileEntry, ...]
    digest: Digest
    facts: dict[str, JsonValue] = {}


@dataclass
class Draft:
    """An artifact in the making: write files below ``path``, add facts; it is published when the block ends."""

    path: Path
    facts: dict[str, Any] = field(default_factory=dict)
    manifest: Manifest | None = None


@dataclass(frozen=True)
class Artifact:
    """A published artifact whose files have been checked against the manifest."""

    uri: Uri
    path: Path
    manifest: Manifest

    def file(self, name: str) -> Path:
        """The local path of one of its files."""
        if name not in {entry.path for entry in self.manifest.files}:
            raise ArtifactMissing(f"{self.uri} has no file '{name}'; it has {[e.path for e in self.manifest.files]}")
        return self.path / name


def _fsspec() -> Any:
    import fsspec  # noqa: PLC0415  every DAG file and task imports this module, and on local disks none needs it

    return fsspec


def read_bytes(uri: Uri) -> bytes:
    """The content of one object; raises FileNotFoundError when it is not there."""
    path = local_path(uri)
    if path is not None:
        return path.read_bytes()
    with _fsspec().open(uri, "rb") as file:
        return bytes(file.read())


def write_bytes(uri: Uri, content: bytes) -> None:
    """Replaces one object atomically and durably: a reader sees the old content or the new, never a part."""
    path = local_path(uri)
    if path is None:
        with _fsspec().open(uri, "wb") as file:  # an object store shows an object when its put is complete
            file.write(content)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        _fsync(path.parent)  # the rename itself has to survive a power cut
    finally:
        temporary.unlink(missing_ok=True)


def exists(uri: Uri) -> bool:
    """Whether one object is there (for an artifact ask ``manifest``)."""
    path = local_path(uri)
    if path is not None:
        return path.exists()
    filesystem, where = _fsspec().url_to_fs(uri)
    return bool(filesystem.exists(where))


def remove(uri: Uri) -> None:
    """Removes one object; nothing happens when it is not there."""
    path = local_path(uri)
    if path is not None:
        path.unlink(missing_ok=True)
        return
    filesystem, where = _fsspec().url_to_fs(uri)
    with suppress(FileNotFoundError):
        filesystem.rm_file(where)


def manifest(uri: Uri) -> Manifest | None:
    """The manifest of a published artifact, or None when nothing has been published there."""
    try:
        return Manifest.model_validate_json(read_bytes(join(uri, MANIFEST)))
    except FileNotFoundError:
        return None
    except ValidationError as error:
        raise ArtifactCorrupt(
            f"{join(uri, MANIFEST)}: is no manifest ({error.error_count()} faults); build it again"
        ) from error


def _entries(folder: Path) -> tuple[FileEntry, ...]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return tuple(
        FileEntry(path=str(path.relative_to(folder)), size=path.stat().st_size, digest=file_digest(path))
        for path in files
    )


def digest_of(files: tuple[FileEntry, ...]) -> Digest:
    """The folder digest of some manifest entries."""
    return folder_digest((entry.path, entry.size, entry.digest) for entry in files)


@contextmanager
def publish(uri: Uri, kind: str) -> Iterator[Draft]:
    """Publishes what the block writes, whole or not at all; an earlier version stays visible until then.

    Yields a draft with an empty local folder. When the block raises, nothing is published and the attempt is removed.
    """
    attempt = f"attempt-{uuid.uuid4().hex}"
    target = local_path(uri)
    folder = target / attempt if target else Path(tempfile.mkdtemp(prefix="perennial-"))
    folder.mkdir(parents=True, exist_ok=True)
    draft = Draft(folder)
    try:
        yield draft
        files = _entries(folder)
        if target is None:
            filesystem, where = _fsspec().url_to_fs(join(uri, attempt))
            for entry in files:
                filesystem.pipe_file(f"{where}/{entry.path}", (folder / entry.path).read_bytes())
        else:
            _sync(folder, files)
        draft.manifest = Manifest(kind=kind, attempt=attempt, files=files, digest=digest_of(files), facts=draft.facts)
        write_bytes(join(uri, MANIFEST), draft.manifest.model_dump_json(indent=1).encode())
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    if target is None:
        shutil.rmtree(folder, ignore_errors=True)


def _sync(folder: Path, files: tuple[FileEntry, ...]) -> None:
    for entry in files:
        _fsync(folder / entry.path)
    for path in (*(path for path in folder.rglob("*") if path.is_dir()), folder, folder.parent):
        _fsync(path)


def _fsync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read(uri: Uri, digest: Digest | None = None) -> Artifact:
    """Opens a published artifact after checking every file; with ``digest``, also that it is the expected version.

    Raises ArtifactMissing when nothing is published there and ArtifactCorrupt when the content differs.
    """
    found = manifest(uri)
    if found is None:
        raise ArtifactMissing(f"{uri}: nothing has been published here; run the step that makes it")
    if digest is not None and found.digest != digest:
        raise ArtifactCorrupt(
            f"{uri}: digest is {found.digest}, the reference says {digest}; it was rebuilt or altered"
        )
    if digest_of(found.files) != found.digest:
        raise ArtifactCorrupt(f"{uri}: the manifest's digest does not fit its own file list; build it again")
    folder = _fetch(uri, found)
    for entry in found.files:
        path = folder / entry.path
        if not path.is_file() or path.stat().st_size != entry.size or file_digest(path) != entry.digest:
            raise ArtifactCorrupt(f"{uri}: file '{entry.path}' is missing or differs from the manifest; build it again")
    return Artifact(uri, folder, found)


def read_ref(ref: Ref) -> Artifact:
    """Opens what a reference names and checks that it is exactly that version."""
    return read(ref.uri, ref.digest)


def _fetch(uri: Uri, found: Manifest) -> Path:
    target = local_path(uri)
    if target is not None:
        return target / found.attempt
    folder = Path(tempfile.gettempdir()) / "perennial-cache" / found.digest.removeprefix("sha256:")
    filesystem, where = _fsspec().url_to_fs(join(uri, found.attempt))
    for entry in found.files:
        path = folder / entry.path
        if not path.is_file() or file_digest(path) != entry.digest:
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
            try:
                content = filesystem.cat_file(f"{where}/{entry.path}")
            except FileNotFoundError:
                continue  # the caller compares every file with the manifest, and says which one is missing
            temporary.write_bytes(content)
            temporary.replace(path)
    return folder


def children(uri: Uri) -> tuple[str, ...]:
    """The names of the artifacts published directly below a URI, sorted; half-written ones are not listed."""
    path = local_path(uri)
    if path is not None:
        return tuple(sorted(found.parent.name for found in path.glob(f"*/{MANIFEST}")))
    filesystem, where = _fsspec().url_to_fs(uri)
    return tuple(sorted(found.split("/")[-2] for found in filesystem.glob(f"{where}/*/{MANIFEST}")))
