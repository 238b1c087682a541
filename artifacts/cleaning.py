"""Removes attempts that no manifest names: what a killed writer left, and what a newer version has replaced.

An attempt goes when three things hold. Its manifest names another one, or there is none. Nothing was written to it and
nothing was published in its place for the grace time, so whoever opened it before it was replaced has had that long to
read. And, on a local disk, no writer holds its lock: a machine may sleep longer than any grace. Manifests, results and
specs stay: they are small, and the ledger points at them.
"""

from __future__ import annotations

import datetime as dt
import fcntl
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from pydantic import BaseModel

from artifacts import store
from artifacts.refs import Uri, join, local_path
from artifacts.store import MANIFEST, ArtifactCorrupt, exists, manifest

ATTEMPT = re.compile(r"attempt-[0-9a-f]{32}")
TEMPORARY = re.compile(r"\..+\.[0-9a-f]{32}")


class Cleaned(BaseModel, frozen=True, extra="forbid"):
    """What was removed, and what was left because it could not be judged."""

    attempts: tuple[Uri, ...] = ()
    temporaries: int = 0
    problems: tuple[str, ...] = ()


class Place(Protocol):
    """A store as the cleaner sees it."""

    def attempts(self) -> Mapping[Uri, list[str]]:
        """The names of all attempts, by artifact."""

    def changed(self, uri: Uri) -> dt.datetime:
        """When an object, or anything in a folder, was last written."""

    def remove(self, uri: Uri, attempt: str) -> bool:
        """Removes an attempt unless it is being written, or has been published meanwhile; returns whether it did."""

    def temporaries(self, before: dt.datetime) -> int:
        """Removes half-written single objects that are older, and returns how many."""


def clean(root: Uri, grace: dt.timedelta, now: dt.datetime) -> Cleaned:
    """Removes below ``root`` every attempt that has been unnamed and untouched for ``grace``; ``now`` is the wall clock."""
    place: Place = _Disk(root) if local_path(root) else _Objects(root)
    removed, problems, before = [], [], now - grace
    for uri, names in place.attempts().items():
        try:
            removed += [join(uri, name) for name in _stale(place, uri, names, before) if place.remove(uri, name)]
        except ArtifactCorrupt as error:
            problems.append(f"{error}; nothing of it is removed")
        except FileNotFoundError:
            continue  # somebody is at work here just now
    return Cleaned(attempts=tuple(removed), temporaries=place.temporaries(before), problems=tuple(problems))


def _stale(place: Place, uri: Uri, names: list[str], before: dt.datetime) -> list[str]:
    unnamed = [name for name in names if not _named(uri, name)]
    where = join(uri, MANIFEST)
    if not unnamed or (exists(where) and place.changed(where) >= before):
        return []
    return [name for name in unnamed if place.changed(join(uri, name)) < before]


def _named(uri: Uri, attempt: str) -> bool:
    found = manifest(uri)
    return found is not None and found.attempt == attempt


class _Disk:
    def __init__(self, root: Uri) -> None:
        self._root = _path(root)
        self._left: list[Path] = []

    def attempts(self) -> Mapping[Uri, list[str]]:
        found = {}
        for folder, names, files in os.walk(self._root):
            attempts = [name for name in names if ATTEMPT.fullmatch(name)]
            names[:] = [name for name in names if name not in attempts]
            self._left += [Path(folder, name) for name in files if TEMPORARY.fullmatch(name)]
            if attempts:
                found[Path(folder).as_uri()] = attempts
        return found

    def changed(self, uri: Uri) -> dt.datetime:
        path = _path(uri)
        return max(map(_touched, (path, *path.rglob("*"))))

    def remove(self, uri: Uri, attempt: str) -> bool:
        path = _path(join(uri, attempt))
        descriptor = os.open(path, os.O_RDONLY)
        try:
            # Named is asked again under the lock: the writer may have published it just now.
            if not _free(descriptor) or _named(uri, attempt):
                return False
            shutil.rmtree(path)
        finally:
            os.close(descriptor)
        return True

    def temporaries(self, before: dt.datetime) -> int:
        old = [path for path in self._left if path.exists() and _touched(path) < before]
        for path in old:
            path.unlink(missing_ok=True)
        return len(old)


class _Objects:
    def __init__(self, root: Uri) -> None:
        self._root = root
        self._objects: dict[Uri, list[Uri]] = {}

    def attempts(self) -> Mapping[Uri, list[str]]:
        found: dict[Uri, list[str]] = {}
        for path in store.objects(self._root):
            parts = path.split("/")
            place = next((number for number, part in enumerate(parts) if ATTEMPT.fullmatch(part)), None)
            if place is not None:
                uri, name = join(self._root, *parts[:place]), parts[place]
                names = found.setdefault(uri, [])
                if name not in names:
                    names.append(name)
                self._objects.setdefault(join(uri, name), []).append(join(self._root, path))
        return found

    def changed(self, uri: Uri) -> dt.datetime:
        return max(map(store.modified, self._objects.get(uri) or [uri]))

    def remove(self, uri: Uri, attempt: str) -> bool:
        if _named(uri, attempt):
            return False
        store.remove_all(join(uri, attempt))
        return True

    def temporaries(self, before: dt.datetime) -> int:  # noqa: ARG002  as on a disk
        return 0  # an object store shows an object when its put is complete


def _free(descriptor: int) -> bool:
    """Whether no writer holds a folder; also where the file system has no locks, and the age alone has to tell."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def _path(uri: Uri) -> Path:
    path = local_path(uri)
    if path is None:
        raise ValueError(f"{uri}: is no file:// URI")
    return path


def _touched(path: Path) -> dt.datetime:
    # Not st_mtime: a copy keeps the times of its source, and would look old on the day on which it was made.
    return dt.datetime.fromtimestamp(path.lstat().st_ctime, dt.UTC)
