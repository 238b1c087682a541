"""What an artifact contains: its files with their digests, and the errors that speak of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Annotated

from pydantic import AfterValidator, BaseModel, Field, JsonValue

from artifacts.refs import Digest, Uri, file_digest, folder_digest


class ArtifactMissing(LookupError):
    """Nothing has been published under this URI; the producer has to run first."""


class ArtifactCorrupt(ValueError):
    """What lies there is not what its manifest or its reference says; it must be built again, never used."""


def _inside(value: str) -> str:
    path = PurePosixPath(value)
    if path.is_absolute() or ".." in path.parts or str(path) != value or value == ".":
        raise ValueError(f"'{value}' is no relative path inside the artifact")  # a manifest may come from anywhere
    return value


class FileEntry(BaseModel, frozen=True, extra="forbid"):
    """One file of an artifact."""

    path: Annotated[str, AfterValidator(_inside)]
    size: int = Field(ge=0)
    digest: Digest


class Manifest(BaseModel, frozen=True, extra="forbid"):
    """What an artifact contains. ``facts`` are what its producer wants readers to know without opening a file."""

    kind: str
    attempt: str
    files: tuple[FileEntry, ...]
    digest: Digest
    facts: dict[str, JsonValue] = {}


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


def entries_of(folder: Path) -> tuple[FileEntry, ...]:
    """Every file below a folder, sorted by path."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return tuple(
        FileEntry(path=str(path.relative_to(folder)), size=path.stat().st_size, digest=file_digest(path))
        for path in files
    )


def digest_of(files: tuple[FileEntry, ...]) -> Digest:
    """The folder digest of some manifest entries."""
    return folder_digest((entry.path, entry.size, entry.digest) for entry in files)


def intact(path: Path, entry: FileEntry) -> bool:
    """Whether a local file is what an entry says."""
    return path.is_file() and path.stat().st_size == entry.size and file_digest(path) == entry.digest
