"""A published artifact as the cache fetches it: from a remote store, or from a mount that is slow to read."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from artifacts import remote
from artifacts.content import ArtifactCorrupt, FileEntry, Manifest, intact
from artifacts.data_store import DataStore, NfsStore
from artifacts.refs import Digest, Uri, join, local_path


@dataclass(frozen=True)
class Source:
    """A published artifact as it is fetched."""

    uri: Uri
    manifest: Manifest
    store: DataStore | None

    @property
    def cached(self) -> bool:
        """Whether it is read through the cache."""
        return local_path(self.uri) is None or (isinstance(self.store, NfsStore) and self.store.cache)

    @property
    def digest(self) -> Digest:
        """The digest of its content."""
        return self.manifest.digest

    @property
    def size(self) -> int:
        """The bytes of its files together."""
        return sum(entry.size for entry in self.manifest.files)

    def damaged(self, folder: Path) -> list[FileEntry]:
        """The files that are not there as the manifest says."""
        return [entry for entry in self.manifest.files if not intact(folder / entry.path, entry)]

    def whole(self, folder: Path) -> bool:
        """Whether a folder holds all its files."""
        return not self.damaged(folder)

    def fetch(self, folder: Path) -> None:
        """Brings what is missing or damaged; raises ArtifactCorrupt when the store itself has no better."""
        source = join(self.uri, self.manifest.attempt)
        for entry in self.damaged(folder):
            path = folder / entry.path
            path.parent.mkdir(parents=True, exist_ok=True)
            arriving = path.with_name(f".{path.name}.arriving")
            try:
                _bring(source, self.store, entry.path, arriving)
            except FileNotFoundError:
                raise ArtifactCorrupt(f"{self.uri}: file '{entry.path}' is missing; build it again") from None
            if not intact(arriving, entry):
                arriving.unlink()
                raise ArtifactCorrupt(f"{self.uri}: file '{entry.path}' differs from the manifest; build it again")
            arriving.replace(path)


def _bring(source: Uri, store: DataStore | None, name: str, target: Path) -> None:
    folder = local_path(source)
    if folder is None:
        remote.download(remote.place_of(source, store), name, target)
    else:
        shutil.copyfile(folder / name, target)
