"""Publishing and reading artifacts: a reader sees nothing, or the whole of one verified version.

An artifact is a folder. Its files lie in ``<uri>/<attempt>/``; ``<uri>/manifest.json`` names the attempt and every
file with size and digest, and is written last. Replacing the manifest is the one atomic act, by rename on a local
disk and by a single put on an object store, so a writer that is killed leaves the old version or the new one.
"""

from __future__ import annotations

import datetime as dt
import fcntl
import functools
import os
import shutil
import tempfile
import uuid
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from artifacts import remote
from artifacts.cache import GB, Cache
from artifacts.content import Artifact, ArtifactCorrupt, ArtifactMissing, FileEntry, Manifest, digest_of, entries_of
from artifacts.data_store import DataStore, NfsStore, check_address, check_writable, store_of
from artifacts.refs import Digest, Ref, Uri, join, local_path
from artifacts.settings import settings
from artifacts.source import Source

__all__ = [
    "Artifact",
    "ArtifactCorrupt",
    "ArtifactMissing",
    "Draft",
    "FileEntry",
    "Manifest",
    "children",
    "digest_of",
    "exists",
    "manifest",
    "objects",
    "prefetch",
    "publish",
    "read",
    "read_bytes",
    "read_ref",
    "remove",
    "remove_all",
    "write_bytes",
]

MANIFEST = "manifest.json"
PREFETCHES_AT_ONCE = 8


@dataclass
class Draft:
    """An artifact in the making: write files below ``path``, add facts; it is published when the block ends."""

    path: Path
    facts: dict[str, Any] = field(default_factory=dict)
    manifest: Manifest | None = None


def _store(uri: Uri) -> DataStore | None:
    """The declared store of a URI, if any; raises what is wrong with the URI, or with the store on this machine."""
    check_address(uri)
    store = store_of(uri, settings().stores)
    if store is not None:
        store.check()
    return store


def _place(uri: Uri) -> remote.Place:
    return remote.place_of(uri, _store(uri))


def _writable(uri: Uri) -> None:
    check_writable(uri, _store(uri))


def read_bytes(uri: Uri) -> bytes:
    """The content of one object; raises FileNotFoundError when it is not there."""
    path = local_path(uri)
    if path is None:
        return remote.read(_place(uri))
    _store(uri)
    return path.read_bytes()


def write_bytes(uri: Uri, content: bytes) -> None:
    """Replaces one object atomically and durably: a reader sees the old content or the new, never a part."""
    _writable(uri)
    path = local_path(uri)
    if path is None:
        remote.write(_place(uri), content)
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
    if path is None:
        return remote.exists(_place(uri))
    _store(uri)
    return path.exists()


def remove(uri: Uri) -> None:
    """Removes one object; nothing happens when it is not there."""
    _writable(uri)
    path = local_path(uri)
    if path is None:
        remote.remove(_place(uri))
    else:
        path.unlink(missing_ok=True)


def objects(uri: Uri) -> tuple[str, ...]:
    """The paths of all objects below a URI, sorted; none below is no error."""
    path = local_path(uri)
    if path is None:
        return tuple(sorted(remote.below(_place(uri))))
    _store(uri)
    return tuple(sorted(str(found.relative_to(path)) for found in path.rglob("*") if found.is_file()))


def modified(uri: Uri) -> dt.datetime:
    """When one object was last written, by the store's own clock; raises FileNotFoundError when it is not there."""
    path = local_path(uri)
    if path is None:
        return remote.modified(_place(uri))
    return dt.datetime.fromtimestamp(path.stat().st_ctime, dt.UTC)


def remove_all(uri: Uri) -> None:
    """Removes every object below a URI; nothing happens when there is none. Not atomic: others may see a part gone."""
    _writable(uri)
    path = local_path(uri)
    if path is not None:
        shutil.rmtree(path, ignore_errors=True)
        return
    for name in objects(uri):
        remove(join(uri, name))


def manifest(uri: Uri) -> Manifest | None:
    """The manifest of a published artifact, or None when nothing has been published there."""
    check_address(uri)
    try:
        return Manifest.model_validate_json(read_bytes(join(uri, MANIFEST)))
    except FileNotFoundError:
        return None
    except ValidationError as error:
        raise ArtifactCorrupt(
            f"{join(uri, MANIFEST)}: is no manifest ({error.error_count()} faults); build it again"
        ) from error


@contextmanager
def publish(uri: Uri, kind: str) -> Iterator[Draft]:
    """Publishes what the block writes, whole or not at all; an earlier version stays visible until then.

    Yields a draft with an empty local folder. When the block raises, nothing is published and the attempt is removed.
    """
    _writable(uri)
    attempt = f"attempt-{uuid.uuid4().hex}"
    target = local_path(uri)
    folder = target / attempt if target else Path(tempfile.mkdtemp(prefix="perennial-"))
    lock = _claimed(folder)
    draft = Draft(folder)
    try:
        yield draft
        files = entries_of(folder)
        if target is None:
            _upload(join(uri, attempt), folder, files)
        else:
            _sync(folder, files)
        draft.manifest = Manifest(kind=kind, attempt=attempt, files=files, digest=digest_of(files), facts=draft.facts)
        write_bytes(join(uri, MANIFEST), draft.manifest.model_dump_json(indent=1).encode())
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    finally:
        os.close(lock)
    if target is None:
        shutil.rmtree(folder, ignore_errors=True)


def _upload(uri: Uri, folder: Path, files: tuple[FileEntry, ...]) -> None:
    """Puts an attempt's files, and asks the store whether it has them; on any error removes what it can."""
    place = _place(uri)
    try:
        for entry in files:
            remote.upload(place, entry.path, folder / entry.path)
        _check_upload(place, files)
    except BaseException:
        with suppress(Exception):  # the first error is the one to tell
            for entry in files:
                remove(join(uri, entry.path))
        raise


def _check_upload(place: remote.Place, files: tuple[FileEntry, ...]) -> None:
    there = remote.below(place) if files else {}
    if lost := [entry.path for entry in files if there.get(entry.path) != entry.size]:
        raise ArtifactCorrupt(f"{place.uri}: {lost} were put, but the store lists {there}; write it again")


def _claimed(folder: Path) -> int:
    """Makes an attempt's folder and locks it: while the descriptor is open, cleaning takes it for one that is being written."""
    while True:
        folder.mkdir(parents=True, exist_ok=True)
        try:
            descriptor = os.open(folder, os.O_RDONLY)
        except FileNotFoundError:
            continue  # cleaned away before it could be locked
        with suppress(OSError):  # a file system without locks; there the age alone has to tell
            fcntl.flock(descriptor, fcntl.LOCK_SH)
        if os.fstat(descriptor).st_nlink:
            return descriptor
        os.close(descriptor)


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
    source = Source(uri, found, _store(uri))
    if source.cached:
        return Artifact(uri, _cache().open(source), found)
    folder = Path(str(local_path(uri))) / found.attempt
    if damaged := source.damaged(folder):
        raise ArtifactCorrupt(
            f"{uri}: file '{damaged[0].path}' is missing or differs from the manifest; build it again"
        )
    return Artifact(uri, folder, found)


def read_ref(ref: Ref) -> Artifact:
    """Opens what a reference names and checks that it is exactly that version."""
    return read(ref.uri, ref.digest)


@functools.cache
def _cache() -> Cache:
    return Cache(settings().cache_folder, int(settings().cache_gb * GB))


def prefetch(uris: Iterable[Uri]) -> tuple[Uri, ...]:
    """Fetches artifacts side by side into the cache, where reads have left room; returns those that are there now.

    What has not been published or has a false manifest is passed over: the reader will say so. So is what needs no fetching.
    """

    def bring(uri: Uri) -> Source | None:
        store = _store(uri)
        found = manifest(uri) if local_path(uri) is None or isinstance(store, NfsStore) else None
        sound = found is not None and digest_of(found.files) == found.digest
        source = Source(uri, found, store) if found and sound else None
        return source if source and source.cached and _cache().prefetch(source) else None

    with ThreadPoolExecutor(PREFETCHES_AT_ONCE) as pool:
        sources = [source for source in pool.map(bring, uris) if source is not None]
    if sources:
        _cache().release([source.digest for source in sources])
    return tuple(source.uri for source in sources)


def children(uri: Uri) -> tuple[str, ...]:
    """The names of the artifacts published directly below a URI, sorted; half-written ones are not listed."""
    path = local_path(uri)
    if path is None:
        parts = [found.split("/") for found in objects(uri)]
        return tuple(sorted(part[0] for part in parts if part[1:] == [MANIFEST]))
    _store(uri)  # an artifact on a disk may hold many files; only its manifest is looked for
    return tuple(sorted(found.parent.name for found in path.glob(f"*/{MANIFEST}")))
