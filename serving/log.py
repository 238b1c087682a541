"""The prediction log: appended before an answer is sent, and read back line by line.

A segment is ``<root>/<model>/<partition>/<kind>-<hour>-<process start>-<pid>[-<n>].jsonl`` (the hour in UTC, as
20130901T14); one process writes it for at most an hour of the data clock, one ``write()`` per request. A process that is killed loses nothing that it wrote; a machine that dies loses at most the
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
from serving.retention import Room

Kind = Literal["predictions", "feedback"]
Key = tuple[str, dt.date, Kind, str]
"""Model, partition, kind and hour of a segment."""
Row = TypeVar("Row", bound=BaseModel)
KINDS: tuple[Kind, ...] = ("predictions", "feedback")
OPEN_SEGMENTS = 8
UNBOUNDED = 1 << 62


class LogUnwritable(RuntimeError):
    """The log could not take a line (disk full, folder gone); the request must not be acknowledged."""


class SegmentWriter:
    """Appends to this process's segments. Not thread-safe: one event loop writes, ``sync`` may run in a thread."""

    def __init__(self, root: Path, started: dt.datetime, room: Room | None = None) -> None:
        self._root, self.room = root, room or Room(limit=UNBOUNDED, keep_free=0)
        self._stem = f"{started:%Y%m%dT%H%M%S%f}-{os.getpid()}"
        self._files: dict[Key, int] = {}
        self._failures = 0
        self._dirty: set[int] = set()

    def append(
        self, kind: Kind, model: str, partition: dt.date, answers: Iterable[BaseModel], now: dt.datetime
    ) -> None:
        """Writes one line per row with a single write(); raises LogUnwritable when not all of it was taken.

        ``now`` is the data clock: it names the hour of the segment.
        """
        content = b"".join(row.model_dump_json().encode() + b"\n" for row in answers)
        key = (model, partition, kind, f"{now.astimezone(dt.UTC):%Y%m%dT%H}")
        if full := self.room.take(len(content)):
            raise LogUnwritable(full)
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

    def _open(self, key: Key) -> int:
        while len(self._files) >= OPEN_SEGMENTS:
            self._close(next(iter(self._files)))
        model, partition, kind, hour = key
        folder = self._root / model / partition.isoformat()
        folder.mkdir(parents=True, exist_ok=True)
        name = f"{kind}-{hour}-{self._stem}{f'-{self._failures}' if self._failures else ''}.jsonl"
        descriptor = os.open(folder / name, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o640)
        self._files[key] = descriptor
        return descriptor

    def _close(self, key: Key) -> None:
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
    """The segments of one partition, oldest hour first."""
    return sorted((root / model / partition.isoformat()).glob(f"{kind}-*.jsonl"))


def hour_of(segment: Path) -> dt.datetime:
    """The hour of the data clock in which a segment was written."""
    return dt.datetime.strptime(segment.name.split("-")[1][:11], "%Y%m%dT%H").replace(tzinfo=dt.UTC)


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
