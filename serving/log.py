"""The prediction log: appended before an answer is sent, and read back line by line.

A segment is ``<root>/<model>/<partition>/<kind>-<process start>-<pid>[-<n>].jsonl``; one process writes it, one
``write()`` per request. A process that is killed loses nothing that it wrote; a machine that dies loses at most the
time between two syncs. The last line of a segment may be torn, and was then never acknowledged.
"""

from __future__ import annotations

import datetime as dt
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import BaseModel, ValidationError

from artifacts.step import DataFault, explain

Kind = Literal["predictions", "feedback"]
Row = TypeVar("Row", bound=BaseModel)
OPEN_SEGMENTS = 8


class LogUnwritable(RuntimeError):
    """The log could not take a line (disk full, folder gone); the request must not be acknowledged."""


class SegmentWriter:
    """Appends to this process's segments. Not thread-safe: one event loop writes, ``sync`` may run in a thread."""

    def __init__(self, root: Path, started: dt.datetime) -> None:
        self._root = root
        self._stem = f"{started:%Y%m%dT%H%M%S%f}-{os.getpid()}"
        self._files: dict[tuple[str, dt.date, Kind], int] = {}
        self._failures = 0
        self._dirty: set[int] = set()

    def append(self, kind: Kind, model: str, partition: dt.date, answers: Iterable[BaseModel]) -> None:
        """Writes one line per row with a single write(); raises LogUnwritable when not all of it was taken."""
        content = b"".join(row.model_dump_json().encode() + b"\n" for row in answers)
        key = (model, partition, kind)
        try:
            descriptor = self._files.get(key)
            if descriptor is None:
                descriptor = self._open(key)
            written = os.write(descriptor, content)
        except OSError as error:
            raise LogUnwritable(f"{self._root}: {error.strerror}") from error
        self._dirty.add(descriptor)
        if written != len(content):  # the torn line must stay the last of its segment
            self._failures += 1
            with suppress(OSError):  # a full disk may refuse the fsync as well
                self._close(key)
            raise LogUnwritable(f"{self._root}: wrote {written} of {len(content)} bytes; is the disk full?")

    def _open(self, key: tuple[str, dt.date, Kind]) -> int:
        while len(self._files) >= OPEN_SEGMENTS:
            self._close(next(iter(self._files)))
        model, partition, kind = key
        folder = self._root / model / partition.isoformat()
        folder.mkdir(parents=True, exist_ok=True)
        name = f"{kind}-{self._stem}{f'-{self._failures}' if self._failures else ''}.jsonl"
        descriptor = os.open(folder / name, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o640)
        self._files[key] = descriptor
        return descriptor

    def _close(self, key: tuple[str, dt.date, Kind]) -> None:
        descriptor = self._files.pop(key)
        self._dirty.discard(descriptor)
        os.fsync(descriptor)
        os.close(descriptor)

    def take_dirty(self) -> list[int]:
        """Duplicates of the descriptors written since the last call; ``sync`` makes them durable and closes them."""
        taken = []
        for descriptor in list(self._dirty):
            taken.append(os.dup(descriptor))  # one that fails stays dirty, for the next call
            self._dirty.discard(descriptor)
        return taken

    def close(self) -> None:
        """Makes everything durable and closes the segments."""
        for key in list(self._files):
            self._close(key)


def sync(descriptors: Iterable[int]) -> None:
    """Makes what was written through these descriptors durable, and closes them; may run in any thread."""
    failed: OSError | None = None
    for descriptor in descriptors:
        try:
            os.fsync(descriptor)
        except OSError as error:
            failed = error  # the others are made durable and closed all the same
        finally:
            os.close(descriptor)
    if failed is not None:
        raise failed


def segments(root: Path, kind: Kind, model: str, partition: dt.date) -> list[Path]:
    """The segments of one partition, oldest process first."""
    return sorted((root / model / partition.isoformat()).glob(f"{kind}-*.jsonl"))


def lines(segment: Path) -> Iterator[tuple[int, bytes]]:
    """The whole lines of a segment with their numbers; a torn last line is left out."""
    with segment.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if line.endswith(b"\n"):
                yield number, line


def rows(segment: Path, kind: type[Row]) -> Iterator[Row]:
    """The rows of a segment; a whole line that is no such row raises DataFault with its place."""
    for number, line in lines(segment):
        try:
            yield kind.model_validate_json(line)
        except ValidationError as error:
            raise DataFault(explain(error, f"{segment}:{number}")) from error


def answered(root: Path, model: str, partition: dt.date) -> set[str]:
    """The request ids that have been answered in a partition so far."""
    found = segments(root, "predictions", model, partition)
    return {json.loads(line)["request_id"] for segment in found for _, line in lines(segment)}
