"""A folder of this machine that remote artifacts are read through, by digest: bounded, shared by processes, crash-safe.

``<hex>/`` is a whole artifact, ``<hex>.partial/`` one that is being fetched, ``<hex>.json`` its size and whether it was
only prefetched; the time of that file is its last use. ``leases/`` holds one file per process, locked while it lives, with
a line per artifact that it has opened: those are never evicted. Every change of what is there happens under ``lock``,
which is never held while bytes travel; ``<hex>.lock`` makes one process fetch and the others wait. All locks are the
kernel's, so they end with their process however it ends.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import threading
import uuid
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from pydantic import BaseModel, ValidationError

from artifacts.faults import CacheFull, StoreRefused
from artifacts.refs import Digest

GB = 1_000_000_000
GB_PER_GPU = 6  # decisions.md 6, after FfDL
SHARE_OF_READS = 2 / 3  # decisions.md 6: one third is kept for what is prefetched
SHARE_OF_DISK = 0.5
NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})


class Source(Protocol):
    """An artifact as the cache asks for it."""

    @property
    def digest(self) -> Digest:
        """What it must contain."""

    @property
    def size(self) -> int:
        """The bytes of its files together."""

    def whole(self, folder: Path) -> bool:
        """Whether a folder holds exactly its files."""

    def fetch(self, folder: Path) -> None:
        """Brings what is missing or damaged in a folder, each file checked; only one process does so at a time."""


class Note(BaseModel, frozen=True):
    """What is known of an entry beside its files."""

    size: int
    prefetched: bool = False


@dataclass(frozen=True)
class Entry:
    """One artifact in the cache, or on its way there."""

    name: str
    size: int
    prefetched: bool
    used_at: int
    in_use: bool


def to_evict(entries: Sequence[Entry], size: int, bound: int, *, prefetch: bool = False) -> list[str] | None:
    """The entries that make room for ``size`` more bytes, least recently used first; None when there cannot be room. Pure.

    Reads keep to two thirds of ``bound``, and take of the last third only what their own entries in use leave no choice
    about. A prefetch takes what reads do not use, at the cost of older prefetched entries only.
    """
    oldest = sorted((one for one in entries if not one.in_use), key=lambda one: (one.used_at, one.name))
    reads, fetched = ([one for one in oldest if one.prefetched is kind] for kind in (False, True))
    read_bytes = sum(one.size for one in entries if not one.prefetched)
    total = sum(one.size for one in entries)
    gone: list[str] = []
    while not prefetch and reads and read_bytes + size > bound * SHARE_OF_READS:
        read_bytes -= reads[0].size
        total -= reads[0].size
        gone.append(reads.pop(0).name)
    rest = fetched if prefetch else fetched + reads
    while rest and total + size > bound:
        total -= rest[0].size
        gone.append(rest.pop(0).name)
    return gone if total + size <= bound else None


def default_bytes(gpus: int, disk_bytes: int) -> int:
    """The bound when none is set: 6 GB per GPU (and for a machine without), at most half of the disk. Pure."""
    return min(GB_PER_GPU * GB * max(gpus, 1), int(disk_bytes * SHARE_OF_DISK))


def gpu_count() -> int:
    """NVIDIA GPUs of this machine, as far as its kernel driver shows them."""
    return sum(1 for path in Path("/dev").glob("nvidia[0-9]*") if path.name.removeprefix("nvidia").isdigit())


def _name(digest: Digest) -> str:
    return digest.removeprefix("sha256:")


class Cache:
    """The cache in one folder, as one process sees it."""

    def __init__(self, folder: Path, bound: int = 0) -> None:
        try:
            (folder / "leases").mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreRefused(
                f"cache {folder}: cannot be made ({error.strerror}); set PERENNIAL_CACHE to a folder that can be written"
            ) from None
        self.folder = folder
        self.bound = bound or default_bytes(gpu_count(), shutil.disk_usage(folder).total)
        self._mine: set[str] = set()
        self._lease: int | None = None
        self._lease_path = Path()
        self._pid = 0
        self._threads = threading.RLock()

    def open(self, source: Source) -> Path:
        """The folder of an artifact, fetched where it is not whole. It stays until this process ends. Raises CacheFull."""
        name = _name(source.digest)
        folder = self.folder / name
        self._claim(name, source.size, prefetch=False)
        if not folder.is_dir():
            self._fill(name, source)
        elif not source.whole(folder):
            with self._one_fetcher(name):
                self._fetch(folder, source)
        return folder

    def prefetch(self, source: Source) -> bool:
        """Fetches an artifact for a later reader; returns False when there is no room for it."""
        name = _name(source.digest)
        try:
            self._claim(name, source.size, prefetch=True)
        except CacheFull:
            return False
        if not (self.folder / name).is_dir():
            self._fill(name, source)
        return True

    def release(self, digests: Collection[Digest]) -> None:
        """Lets artifacts go that this process has prefetched and not opened."""
        with self._locked():
            names = {_name(digest) for digest in digests}
            unread = {name for name in names & self._mine if (note := self._note(name)) and note.prefetched}
            self._mine -= unread
            if self._lease is not None:
                os.ftruncate(self._lease, 0)
                self._note_use(self._mine)

    def _claim(self, name: str, size: int, *, prefetch: bool) -> None:
        """Puts an entry on this process's lease, making room where it is new."""
        with self._locked():
            note = self._note(name)
            if note is None:
                self._make_room(name, size, prefetch=prefetch)
                self._put_note(name, Note(size=size, prefetched=prefetch))
            elif note.prefetched and not prefetch:
                self._put_note(name, Note(size=note.size))
            with suppress(FileNotFoundError):
                os.utime(self._note_path(name))
            self._note_use({name} - self._mine)
            self._mine.add(name)

    def _make_room(self, name: str, size: int, *, prefetch: bool) -> None:
        entries = self.entries()
        gone = to_evict(entries, size, self.bound, prefetch=prefetch)
        if gone is None:
            used = sum(one.size for one in entries if one.in_use)
            raise CacheFull(
                f"cache {self.folder}: no room for {size / GB:.3f} GB ({name[:12]}): {used / GB:.3f} of "
                f"{self.bound / GB:.3f} GB are in use; raise PERENNIAL_CACHE_GB, or wait until other steps have ended"
            )
        for one in gone:
            self._evict(one)

    def _evict(self, name: str) -> None:
        """Removes an entry that is not in use. Killed between two acts, it leaves what the next eviction removes."""
        partial = self.folder / f"{name}.partial"
        shutil.rmtree(partial, ignore_errors=True)
        with suppress(FileNotFoundError):
            (self.folder / name).rename(partial)  # at once: nobody may find half of it
        shutil.rmtree(partial, ignore_errors=True)
        (self.folder / f"{name}.lock").unlink(missing_ok=True)
        self._note_path(name).unlink(missing_ok=True)

    def _fill(self, name: str, source: Source) -> None:
        with self._one_fetcher(name):
            if not (self.folder / name).is_dir():  # else another process has fetched it meanwhile, and checked it
                partial = self.folder / f"{name}.partial"
                partial.mkdir(exist_ok=True)  # what a killed process has left there is used
                self._fetch(partial, source)
                partial.rename(self.folder / name)

    def _fetch(self, folder: Path, source: Source) -> None:
        """Fetches into a folder; on a full disk once more, after everything that nobody uses is gone."""
        try:
            source.fetch(folder)
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
        else:
            return
        with self._locked():
            for one in self.entries():
                if not one.in_use:
                    self._evict(one.name)
        try:
            source.fetch(folder)
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            raise CacheFull(
                f"cache {self.folder}: the disk is full ({shutil.disk_usage(self.folder).free / GB:.3f} GB free, "
                f"{source.size / GB:.3f} GB wanted) and nothing is left to evict; free some space, or put PERENNIAL_CACHE "
                "on another disk"
            ) from None

    def entries(self) -> tuple[Entry, ...]:
        """Everything in the cache, and what is in use by a process that lives."""
        used = self._in_use()
        found = []
        for path in sorted(self.folder.glob("*.json")):
            name = path.name.removesuffix(".json")
            note = self._note(name)
            if note is not None:
                found.append(Entry(name, note.size, note.prefetched, path.stat().st_mtime_ns, name in used))
        return tuple(found)

    def _in_use(self) -> set[str]:
        used = set(self._mine)
        for path in (self.folder / "leases").iterdir():
            if path == self._lease_path:
                continue
            with path.open("r+") as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    used |= set(file.read().split())
                else:
                    path.unlink(missing_ok=True)  # its process is gone
        return used

    def _note_use(self, names: Collection[str]) -> None:
        """Adds entries to this process's lease, which it makes when there is none."""
        if self._lease is None:
            self._lease_path = self.folder / "leases" / uuid.uuid4().hex
            self._lease = os.open(self._lease_path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
            fcntl.flock(self._lease, fcntl.LOCK_EX)
        os.write(self._lease, "".join(f"{name}\n" for name in sorted(names)).encode())

    def _note_path(self, name: str) -> Path:
        return self.folder / f"{name}.json"

    def _note(self, name: str) -> Note | None:
        try:
            return Note.model_validate_json(self._note_path(name).read_bytes())
        except (FileNotFoundError, ValidationError):
            return None

    def _put_note(self, name: str, note: Note) -> None:
        temporary = self._note_path(name).with_suffix(".new")
        temporary.write_text(note.model_dump_json())
        temporary.replace(self._note_path(name))

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with self._threads:
            if self._pid != os.getpid():  # what the parent of a fork holds is on the parent's lease
                self._mine, self._lease, self._pid = set(), None, os.getpid()
            with (self.folder / "lock").open("w") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                yield

    @contextmanager
    def _one_fetcher(self, name: str) -> Iterator[None]:
        with (self.folder / f"{name}.lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield
