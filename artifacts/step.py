"""The step door: ``python -m <module> <spec.json> <result.json>``, the same for every piece of payload work.

The result is written last and atomically; no result means that it did not happen. Beside the result lie
``progress.json`` while the step runs and ``failure.json`` when it failed, so whoever started it can say why.

Exit codes: 0 done, 64 bad spec or store settings, 65 refused data, 75 try again, 1 any other error (sysexits.h where it
has a word). Only 75 says that the infrastructure was at fault, and that the same again may end well.
"""

from __future__ import annotations

import ctypes
import math
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import NoReturn, TypeVar

from pydantic import BaseModel, Field, ValidationError

from artifacts.cache import NO_ROOM
from artifacts.faults import CacheFull, StoreAway, StoreRefused
from artifacts.refs import Digest, Uri, join, key_digest
from artifacts.secret import without_password
from artifacts.store import ArtifactCorrupt, ArtifactMissing, exists, read_bytes, write_bytes

EXIT_BAD_SPEC = 64
EXIT_BAD_DATA = 65
EXIT_TRY_AGAIN = 75
PR_SET_PDEATHSIG = 1
PROGRESS_SECONDS = 0.5

SpecT = TypeVar("SpecT", bound=BaseModel)


class DataFault(ValueError):
    """The data is at fault: one line per problem, each with file, field, value and fix. A retry cannot help."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(self.problems))


class TryAgain(RuntimeError):
    """Something outside failed that may work next time, such as a server that does not answer."""


class LostPeer(TryAgain):
    """Another process of the same work is gone; why, that one knows, so its own words are never replaced by these."""


class Failure(BaseModel, frozen=True, extra="forbid"):
    """Why a step failed. ``kind`` decides who acts: bad_spec and bad_data are never retried."""

    kind: str = Field(pattern="^(bad_spec|bad_data|try_again|error)$")
    reason: str
    detail: str = ""


class Progress(BaseModel, frozen=True, extra="forbid"):
    """How far a running step is. ``fraction`` is in [0, 1], ``eta_seconds`` None while nothing is known."""

    fraction: float = Field(ge=0, le=1)
    doing: str
    eta_seconds: float | None = None


_progress_uri: Uri | None = None
_progress_started = 0.0
_progress_written = 0.0


def progress(fraction: float, doing: str, eta_seconds: float | None = None) -> None:
    """Says how far the running step is; cheap to call often, silent outside a step.

    Who knows better gives ``eta_seconds``, such as work that went on from a checkpoint.
    """
    global _progress_written  # noqa: PLW0603  one step per process
    now = time.monotonic()
    if _progress_uri is None or now - _progress_written < PROGRESS_SECONDS:
        return
    _progress_written = now
    spent = now - _progress_started
    eta = spent / fraction * (1 - fraction) if fraction > 0 and eta_seconds is None else eta_seconds
    state = Progress(fraction=min(max(fraction, 0.0), 1.0), doing=doing, eta_seconds=eta)
    with suppress(
        StoreAway
    ):  # a store that is away for a moment must not end the work for the sake of its progress bar
        write_bytes(_progress_uri, state.model_dump_json().encode())


def step_key(module: str, spec: BaseModel, code: Digest) -> Digest:
    """The identity of a step's work: its module, its spec without the place for the output, and its code."""
    return key_digest({"module": module, "spec": spec.model_dump(mode="json", exclude={"output"}), "code": code})


def explain(error: ValidationError, place: str) -> list[str]:
    """One line per problem of a spec: place, field, what is wrong, and the value that is there."""
    lines = []
    for fault in error.errors():
        field = ".".join(str(part) for part in fault["loc"]) or "(whole)"
        given = without_password(fault["input"]) if isinstance(fault["input"], str) else fault["input"]
        value = "" if fault["type"] == "missing" or isinstance(given, dict) else f" (got {given!r})"
        lines.append(f"{place}: {field}: {fault['msg'].removeprefix('Value error, ')}{value}")
    return lines


def follow_parent() -> None:
    """Makes the kernel end this process when the one that started it dies, so no step outlives its task."""
    if os.environ.get("PERENNIAL_FOLLOW_PARENT") == "1":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


def _fail(result_uri: Uri, failure: Failure, code: int, *, echo: bool = False) -> int:
    """Writes why, and returns the exit code; an ``echo`` of another process's failure stands behind that one's own words."""
    print(failure.detail or failure.reason, file=sys.stderr, flush=True)  # noqa: T201  a step's log is its output
    try:
        if echo and exists(failure_uri(result_uri)):
            return code
        write_bytes(failure_uri(result_uri), failure.model_dump_json(indent=1).encode())
    except (StoreRefused, OSError) as error:  # the store may be the very thing that failed; the exit code still tells
        print(f"{failure_uri(result_uri)}: cannot be written: {error}", file=sys.stderr, flush=True)  # noqa: T201
    return code


def result_folder(result_uri: Uri) -> Uri:
    """The folder that a step's result, progress and failure share."""
    return result_uri.rpartition("/")[0]


def failure_uri(result_uri: Uri) -> Uri:
    """Where a step says why it failed."""
    return join(result_folder(result_uri), "failure.json")


def progress_uri(result_uri: Uri) -> Uri:
    """Where a step says how far it is."""
    return join(result_folder(result_uri), "progress.json")


def step(work: Callable[[SpecT], BaseModel | None], spec_type: type[SpecT], argv: list[str] | None = None) -> int:
    """Runs one step from its two URIs and returns the exit code; ``None`` from ``work`` means another rank answers."""
    global _progress_uri, _progress_started, _progress_written  # noqa: PLW0603  one step per process
    arguments = sys.argv[1:] if argv is None else argv
    if len(arguments) != 2:  # noqa: PLR2004  the two words of the door
        print("usage: python -m <module> <spec.json URI> <result.json URI>", file=sys.stderr)  # noqa: T201
        return EXIT_BAD_SPEC
    spec_uri, result_uri = arguments
    follow_parent()
    try:
        spec = spec_type.model_validate_json(read_bytes(spec_uri))
    except ValidationError as error:
        return _fail(result_uri, Failure(kind="bad_spec", reason="\n".join(explain(error, spec_uri))), EXIT_BAD_SPEC)
    except FileNotFoundError:
        return _fail(result_uri, Failure(kind="bad_spec", reason=f"{spec_uri}: there is no such spec"), EXIT_BAD_SPEC)
    except (StoreRefused, ConnectionError, TimeoutError) as error:
        return _fail(result_uri, *failure_for(error))
    _progress_uri, _progress_started = progress_uri(result_uri), time.monotonic()
    _progress_written = -math.inf  # what a step before this one in the same process wrote does not count
    try:
        result = work(spec)
        if result is not None:
            write_bytes(result_uri, result.model_dump_json(indent=1).encode())
    except Exception as error:  # noqa: BLE001  the door reports whatever a step raises
        return _fail(result_uri, *failure_for(error), echo=isinstance(error, LostPeer))
    finally:
        _progress_uri = None
    return 0


def give_up(error: Exception) -> NoReturn:
    """Ends the process of the running step at once, from any thread, with the words and the exit code of an error."""
    failure, code = failure_for(error)
    if _progress_uri is not None:
        _fail(_progress_uri, failure, code)
    else:
        print(failure.reason, file=sys.stderr, flush=True)  # noqa: T201  a step's log is its output
    os._exit(code)


def failure_for(error: Exception) -> tuple[Failure, int]:
    """What an error amounts to, and the exit code that says so."""
    said = f"{type(error).__name__}: {error}"
    if isinstance(error, DataFault | ArtifactCorrupt | ArtifactMissing):
        return Failure(kind="bad_data", reason=str(error)), EXIT_BAD_DATA
    if isinstance(error, StoreRefused):
        return Failure(kind="bad_spec", reason=said), EXIT_BAD_SPEC
    if isinstance(error, StoreAway | CacheFull):
        return Failure(kind="try_again", reason=said), EXIT_TRY_AGAIN
    detail = "".join(traceback.format_exception(error))
    if isinstance(error, OSError) and error.errno in NO_ROOM:
        return Failure(
            kind="try_again", reason=f"{said}; free some space on this machine", detail=detail
        ), EXIT_TRY_AGAIN
    if isinstance(error, TryAgain | ConnectionError | TimeoutError):
        return Failure(kind="try_again", reason=said, detail=detail), EXIT_TRY_AGAIN
    return Failure(kind="error", reason=said, detail=detail), 1


def failure_of(result_uri: Uri) -> Failure | None:
    """What a step said when it failed, or None when it could not say anything (it was killed)."""
    where = failure_uri(result_uri)
    return Failure.model_validate_json(read_bytes(where)) if exists(where) else None
