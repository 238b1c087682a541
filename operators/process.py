"""Runs a planned step as a local process: reuse, attach, start, follow, explain. No Airflow.

One file lock per key is held from the check for a result until the process is gone, and the process inherits it: a
twin waits for the real end of the work, also when the one who started it was killed, and then finds the result.
"""

from __future__ import annotations

import fcntl
import logging
import os
import select
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import psutil
from pydantic import BaseModel, ValidationError

from artifacts.refs import short
from artifacts.settings import ROOT
from artifacts.step import EXIT_BAD_DATA, EXIT_BAD_SPEC, Failure, Progress, failure_of, failure_uri, progress_uri
from artifacts.store import read_bytes, remove
from operators import follow, torch_job
from operators.jobs import hardware
from operators.ledger import Ledger
from operators.steps import PlannedStep, finished, write_plan

POLL_SECONDS = 0.5
PROGRESS_STEP = 0.05
PROGRESS_SECONDS = 15.0
GRACE_SECONDS = 5.0
STOP_POLL_SECONDS = 0.05
MARK = "PERENNIAL_STEP_MARK"
CHUNK_BYTES = 65_536


class Log(Protocol):
    """Where lines go: a logger of the standard library or of Airflow."""

    def info(self, event: str, *args: Any) -> Any:
        """Writes one line."""


class StepRefused(ValueError):
    """The step's spec, data or code is at fault; running it again cannot help."""


class StepFailed(RuntimeError):
    """The step did not end well for a reason that may be gone next time."""


def verdict(code: int, place: str, failure: Failure | None, *, distributed: bool) -> Exception:
    """The error that an exit code and the step's own words amount to; says why, and whether a retry may help.

    ``place`` is what the outside saw, such as "exit 1" or "OOMKilled (exit 137 on node-3)". An error of the step's own code
    is not retried (decisions.md 4.7), except in a distributed job, where the rank that reports an error is often not the
    one that had it.
    """
    if code < 0:
        hint = "; the kernel kills like this when memory runs out" if code == -signal.SIGKILL else ""
        return StepFailed(f"killed by {signal.Signals(-code).name}{hint} ({place})")
    kind = failure.kind if failure else {EXIT_BAD_SPEC: "bad_spec", EXIT_BAD_DATA: "bad_data"}.get(code, "")
    final = kind in {"bad_spec", "bad_data"} or (kind == "error" and not distributed)
    reason = failure.reason if failure else "it left no reason"
    return (StepRefused if final else StepFailed)(f"{reason} ({place})" if "\n" not in reason else f"{place}: {reason}")


def environment(step: PlannedStep, outer: Mapping[str, str]) -> dict[str, str]:
    """What a step's process gets: the outer environment without Airflow's, whose secrets are not a step's business."""
    kept = {name: value for name, value in outer.items() if not name.lstrip("_").startswith("AIRFLOW")}
    ours = {"PERENNIAL_FOLLOW_PARENT": "1", "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
    return {**kept, **(hardware.environment(step.job, "local") if step.job else {}), **ours}


def command(step: PlannedStep, python: str = sys.executable) -> tuple[str, ...]:
    """The command of a step on this machine."""
    if step.job is not None:
        return torch_job.local_command(step.job, python, step.module, step.spec_uri, step.result_uri)
    return (python, "-m", step.module, step.spec_uri, step.result_uri)


@contextmanager
def held(path: Path, waiting: Callable[[], None]) -> Iterator[int]:
    """Holds an exclusive lock on a file; calls ``waiting`` once when somebody else holds it. Yields the descriptor."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waiting()
            fcntl.flock(file, fcntl.LOCK_EX)
        try:
            yield file.fileno()
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)  # closing is not enough: a stray grandchild may have inherited it


@dataclass
class ProcessRunner:
    """Runs one planned step; ``stop`` may be called from a signal handler."""

    step: PlannedStep
    ledger: Ledger
    locks: Path
    task: Mapping[str, str] = field(default_factory=dict)
    log: Log = field(default_factory=lambda: logging.getLogger("perennial.step"))
    grace_seconds: float = GRACE_SECONDS
    _process: subprocess.Popen[bytes] | None = None
    _mark: str = field(default_factory=lambda: uuid.uuid4().hex)

    def run(self) -> BaseModel:
        """The step's result: reused when the work is done, waited for while a twin does it, else made now.

        Raises StepRefused when a retry cannot help and StepFailed when it may.
        """
        where = self.locks / f"{short(self.step.key)}.lock"
        with held(
            where, lambda: self.log.info("%s: the same work is running; waiting for it", self.step.module)
        ) as lock:
            result = finished(self.step)
            if result is not None:
                self.log.info("%s: reused %s", self.step.module, self.step.result_uri)
                return result
            return self._attempt(lock)

    def _attempt(self, lock: int) -> BaseModel:
        for stale in (self.step.result_uri, failure_uri(self.step.result_uri), progress_uri(self.step.result_uri)):
            remove(stale)  # what lies here is of an earlier attempt, or of an artifact that is no longer whole
        body = {"module": self.step.module, "folder": self.step.folder, **self.task}
        attempt = self.ledger.begin_attempt(self.step.key, body)
        write_plan(self.step, attempt)
        started = time.monotonic()
        outcome, reason = "failed", ""
        try:
            self._follow(lock)
            result = self._result()
            outcome = "done"
        except StepRefused as error:
            outcome, reason = "refused", str(error)
            raise
        except BaseException as error:
            reason = f"{type(error).__name__}: {error}"
            raise
        finally:
            seconds = round(time.monotonic() - started, 3)
            first = reason.partition("\n")[0]
            self.ledger.finish_attempt(self.step.key, attempt, outcome, {"reason": first, "seconds": seconds})
        self.log.info("%s: done in %.1f s: %s", self.step.module, seconds, self.step.result_uri)
        return result

    def _result(self) -> BaseModel:
        try:
            return self.step.result_type.model_validate_json(read_bytes(self.step.result_uri))
        except FileNotFoundError as error:
            raise StepFailed(f"exit 0, but there is no {self.step.result_uri}") from error
        except ValidationError as error:
            raise StepRefused(f"{self.step.result_uri} is no {self.step.result_type.__name__}: {error}") from error

    def _follow(self, lock: int) -> None:
        """Starts the process, passes its lines and its progress on, and raises what its end amounts to."""
        words = command(self.step)
        self.log.info("%s: %s", self.step.module, " ".join(words))
        launcher = (sys.executable, "-S", "-P", str(Path(follow.__file__)), str(os.getpid()))
        self._process = subprocess.Popen(  # noqa: S603  the words come from the plan
            [*launcher, *words],
            cwd=ROOT,
            env=environment(self.step, os.environ) | {MARK: self._mark},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            process_group=0,
            pass_fds=(lock,),
        )
        try:
            code = self._pump(self._process)
        finally:
            self.stop()  # also after a good end: nothing that the step started may outlive it
            if self._process.stdout:
                self._process.stdout.close()
        if code != 0:
            raise verdict(code, f"exit {code}", failure_of(self.step.result_uri), distributed=self.step.job is not None)

    def _pump(self, process: subprocess.Popen[bytes]) -> int:
        pipe = process.stdout
        if pipe is None:
            raise StepFailed("the process has no output pipe")
        os.set_blocking(pipe.fileno(), False)
        teller, rest, open_ = ProgressTeller(self.step, self.log), b"", True
        while True:
            over = process.poll() is not None  # asked before reading: what it wrote last is then already in the pipe
            if open_ and select.select([pipe], [], [], 0 if over else POLL_SECONDS)[0]:
                chunk = os.read(pipe.fileno(), CHUNK_BYTES)
                open_ = bool(chunk)
                *lines, rest = (rest + chunk).split(b"\n")
                if len(rest) > CHUNK_BYTES:  # a progress bar that never ends its line
                    lines, rest = [*lines, rest], b""
                self._say(lines)
            elif over:  # a grandchild may keep the pipe open for ever; the step's own end is what counts
                self._say([rest] if rest else [])
                return int(process.returncode)
            elif not open_:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(POLL_SECONDS)
            teller.tell()

    def _say(self, lines: list[bytes]) -> None:
        for line in lines:
            self.log.info("%s", line.decode(errors="replace").rstrip("\r"))

    def stop(self) -> None:
        """Ends the process and everything that it started: SIGTERM, and SIGKILL to what is left after the grace time."""
        if self._process is None:
            return
        for end in (signal.SIGTERM, signal.SIGKILL):
            until = time.monotonic() + self.grace_seconds
            told: set[psutil.Process] = set()
            while (left := self._alive()) and time.monotonic() < until:
                for one in left - told:
                    with suppress(psutil.NoSuchProcess):
                        one.send_signal(end)
                told |= left
                time.sleep(STOP_POLL_SECONDS)
            if not left:
                return

    def _alive(self) -> set[psutil.Process]:
        """The step's processes: its tree, and those that left the tree but carry the mark in their environment."""
        found = set()
        running = self._process is not None and self._process.poll() is None
        tree = set(below(self._process.pid)) if running and self._process else set()
        for one in psutil.process_iter():
            with suppress(psutil.Error):
                if one.status() != psutil.STATUS_ZOMBIE and (one in tree or one.environ().get(MARK) == self._mark):
                    found.add(one)
        return found


class ProgressTeller:
    """Logs a step's progress when it moved by 5 percentage points, or every 15 seconds while it moves at all."""

    def __init__(self, step: PlannedStep, log: Log) -> None:
        self._uri = progress_uri(step.result_uri)
        self._log = log
        self._module = step.module
        self._told = Progress(fraction=0, doing="")
        self._told_at = self._asked_at = time.monotonic()

    def tell(self) -> None:
        """Reads progress.json at most twice a second and logs it when it is worth a line."""
        now = time.monotonic()
        if now - self._asked_at < POLL_SECONDS:
            return
        self._asked_at = now
        try:
            state = Progress.model_validate_json(read_bytes(self._uri))
        except (OSError, ValidationError):
            return
        moved = state.fraction - self._told.fraction >= PROGRESS_STEP
        if moved or (state != self._told and now - self._told_at >= PROGRESS_SECONDS):
            eta = f", {state.eta_seconds:.0f} s to go" if state.eta_seconds is not None else ""
            self._log.info("%s: %3.0f %% %s%s", self._module, 100 * state.fraction, state.doing, eta)
            self._told, self._told_at = state, now


def below(pid: int) -> list[psutil.Process]:
    """A process and all its descendants, as far as they are still there."""
    try:
        root = psutil.Process(pid)
        return [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []
