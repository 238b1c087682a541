"""Runs a planned step as a local process: reuse, attach, start, follow, explain. No Airflow.

One file lock per key is held from the check for a result until the process is gone, and the process inherits it: a
twin waits for the real end of the work, also when the one who started it was killed, and then finds the result.
"""

from __future__ import annotations

import datetime as dt
import fcntl
import logging
import os
import select
import signal
import subprocess
import sys
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from pydantic import BaseModel, ValidationError

from artifacts.refs import short
from artifacts.settings import ROOT
from artifacts.step import EXIT_BAD_DATA, EXIT_BAD_SPEC, Failure, failure_of, failure_uri, progress_uri
from artifacts.store import read_bytes, remove
from operators import follow, torch_job
from operators.jobs import hardware, local, sampling
from operators.jobs.accounts import Accounts
from operators.jobs.contract import declared
from operators.jobs.diagnosis import Evidence, diagnose
from operators.jobs.keeper import Keeper
from operators.jobs.states import State
from operators.jobs.utilisation import Policy
from operators.ledger import Ledger
from operators.progress_log import POLL_SECONDS, Log, ProgressTeller
from operators.steps import PlannedStep, finished, write_plan

GRACE_SECONDS = 5.0
STOP_POLL_SECONDS = 0.05
MARK = "PERENNIAL_STEP_MARK"
CHUNK_BYTES = 65_536
LAST_LINES = 50


class StepRefused(ValueError):
    """The step's spec, data or code is at fault; running it again cannot help. ``code`` is one of ``operators.jobs.codes``."""

    def __init__(self, reason: str, code: str = "") -> None:
        super().__init__(reason)
        self.code = code


class StepFailed(RuntimeError):
    """The step did not end well for a reason that may be gone next time. ``code`` is one of ``operators.jobs.codes``."""

    def __init__(self, reason: str, code: str = "") -> None:
        super().__init__(reason)
        self.code = code


class Downscaled(Exception):
    """A job hardly used what it held; ``step`` is the same work on fewer processes."""

    def __init__(self, step: PlannedStep, reason: str) -> None:
        super().__init__(reason)
        self.step = step
        self.code = "Q102"


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
    accounts: Accounts | None = None
    policy: Policy = field(default_factory=Policy)
    budget_poll_seconds: float = 15.0
    _keeper: Keeper | None = None
    _last: deque[str] = field(default_factory=lambda: deque(maxlen=LAST_LINES))
    _began: float = 0.0
    _ended: float | None = None
    _uid: str = ""
    _followed: bool = False
    _killed: bool = False
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
            while True:
                try:
                    return self._attempt(lock)
                except Downscaled as ask:
                    self.log.info("%s: goes on with fewer processes: %s", self.step.module, ask)
                    self.step = ask.step

    def _attempt(self, lock: int) -> BaseModel:
        for stale in (self.step.result_uri, failure_uri(self.step.result_uri), progress_uri(self.step.result_uri)):
            remove(stale)  # what lies here is of an earlier attempt, or of an artifact that is no longer whole
        body = {"module": self.step.module, "folder": self.step.folder, **self.task}
        attempt = self.ledger.begin_attempt(self.step.key, body)
        write_plan(self.step, attempt)
        started = time.monotonic()
        outcome, reason, code, made = "failed", "", "", ""
        self._ended, self._keeper = None, None
        if self.step.job is not None:
            self._keeper = local.keeper(self.step, attempt, self.ledger, self.task, self.accounts, self.policy)
        try:
            self._admit()
            self._follow(lock)
            result = self._result()
            outcome, made = "done", getattr(result, "digest", "")
        except (StepRefused, Downscaled) as error:
            outcome, reason, code = (
                "refused" if isinstance(error, StepRefused) else "downscaled",
                str(error),
                error.code,
            )
            raise
        except BaseException as error:
            code = "H101" if self._killed else error.code if isinstance(error, StepFailed) else "S201"
            reason = f"{type(error).__name__}: {error}"
            raise
        finally:
            seconds = round(time.monotonic() - started, 3)
            first = reason.partition("\n")[0]
            self.ledger.finish_attempt(self.step.key, attempt, outcome, {"reason": first, "seconds": seconds})
            self._close(outcome, first, code, made)
        self.log.info("%s: done in %.1f s: %s", self.step.module, seconds, self.step.result_uri)
        return result

    def _admit(self) -> None:
        """Waits until the tenant's budget has room for the job; raises StepRefused for one that never fits."""
        if self._keeper is None or self.step.job is None:
            return
        until = time.monotonic() + declared(self.step.job).deadline.total_seconds()
        while (found := self._keeper.admit()).verdict == "queue":
            self.log.info("%s: queued: %s", self.step.module, found.reason)
            if time.monotonic() > until:
                raise StepFailed(f"queued for longer than its deadline: {found.reason}", "Q101")
            time.sleep(self.budget_poll_seconds)  # what frees a budget is time that passes; nobody announces it
        if found.verdict == "never":
            raise StepRefused(found.reason, "Q101")
        self.log.info("%s: %s", self.step.module, found.reason)
        for line in local.variables(declared(self.step.job)):
            self.log.info("%s: %s", self.step.module, line)

    def _close(self, outcome: str, reason: str, code: str, made: str) -> None:
        if self._keeper is None:
            return
        if self._process is not None and self._ended is not None:
            seconds = self._ended - self._began
            at = dt.datetime.now(dt.UTC) - dt.timedelta(seconds=time.monotonic() - self._ended)
            self._keeper.ended(self._uid, at, seconds=round(seconds, 4), code=code)
        end: State = "COMPLETED" if outcome == "done" else "HALTED" if code[:1] in {"H", "Q"} else "FAILED"
        self._keeper.close(end, reason, code=code, made=made)

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
        self._last.clear()
        self._began = time.monotonic()
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
        self._followed, self._killed = True, False
        self._meter()
        try:
            code = self._pump(self._process)
        finally:
            self._followed = False
            self.stop()  # also after a good end: nothing that the step started may outlive it
            self._ended = self._ended or time.monotonic()
            if self._process.stdout:
                self._process.stdout.close()
        if code != 0:
            raise self._death(code)

    def _death(self, code: int) -> Exception:
        """Why the process ended badly; a job's reason begins with its code and what to do is in the line after it."""
        failure = failure_of(self.step.result_uri)
        error = verdict(code, f"exit {code}", failure, distributed=self.step.job is not None)
        if self.step.job is None or not isinstance(error, StepRefused | StepFailed):
            return error
        kind, said = (failure.kind, failure.reason) if failure else ("", "")
        log = tuple(self._last)
        found = diagnose(Evidence(exit=code, kind=kind, said=said, log=log, distributed=True))
        kept = type(error) if found.retry else StepRefused
        return kept(f"{found.line}\nto do: {found.fix}\n{error}", found.code)

    def _meter(self) -> None:
        if self._keeper is None or self._process is None or self.step.job is None:
            return
        pid, job = self._process.pid, declared(self.step.job)
        self._uid = local.uid(pid)
        at = dt.datetime.now(dt.UTC) - dt.timedelta(seconds=time.monotonic() - self._began)
        cores = job.cpus_per_process * job.world_size
        self._keeper.move("STARTING", f"process {pid}")
        self._keeper.started(self._uid, at, sampling.processes(lambda: below(pid), cores))

    def _pump(self, process: subprocess.Popen[bytes]) -> int:
        pipe = process.stdout
        if pipe is None:
            raise StepFailed("the process has no output pipe")
        os.set_blocking(pipe.fileno(), False)
        teller, rest, open_ = ProgressTeller(self.step, self.log), b"", True
        exited = os.pidfd_open(process.pid)
        try:
            while True:
                over = process.poll() is not None  # asked before reading: what it wrote last is then in the pipe
                waited = [pipe.fileno(), exited] if open_ else [exited]
                ready = select.select(waited, [], [], 0 if over else POLL_SECONDS)[0]
                if exited in ready and self._ended is None:
                    self._ended = time.monotonic()
                if pipe.fileno() in ready:
                    chunk = os.read(pipe.fileno(), CHUNK_BYTES)
                    open_ = bool(chunk)
                    *lines, rest = (rest + chunk).split(b"\n")
                    if len(rest) > CHUNK_BYTES:  # a progress bar that never ends its line
                        lines, rest = [*lines, rest], b""
                    self._say(lines)
                elif over:  # a grandchild may keep the pipe open for ever; the step's own end is what counts
                    self._say([rest] if rest else [])
                    return int(process.returncode)
                teller.tell()
                self._watch(teller)
        finally:
            os.close(exited)

    def _watch(self, teller: ProgressTeller) -> None:
        """Ends a job that stands still, hardly uses what it holds, or whose budget is used up."""
        if self._keeper is None:
            return
        advice = self._keeper.look(teller.state)
        if advice.act == "notify":
            self.log.info("%s: hardly uses what it holds: %s", self.step.module, advice.reason)
        if advice.act == "downscale" and (step := local.smaller(self.step)) is not None:
            raise Downscaled(step, advice.reason)
        if advice.act in {"halt", "downscale"}:
            raise StepRefused(advice.reason, "Q102")
        if (
            self.step.job is not None
            and time.monotonic() - self._began > declared(self.step.job).deadline.total_seconds()
        ):
            raise StepRefused(f"C203 longer than its deadline of {declared(self.step.job).deadline}", "C203")
        if (still := self._keeper.stalled()) is not None:
            raise StepFailed(f"S202 no progress for {still:.0f} s; all ranks are ended", "S202")

    def _say(self, lines: list[bytes]) -> None:
        for line in lines:
            text = line.decode(errors="replace").rstrip("\r")
            self._last.append(text)
            self.log.info("%s", text)

    def stop(self) -> None:
        """Ends the process and everything that it started: SIGTERM, and SIGKILL to what is left after the grace time."""
        if self._process is None:
            return
        self._killed = self._killed or self._followed
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


def below(pid: int) -> list[psutil.Process]:
    """A process and all its descendants, as far as they are still there."""
    try:
        root = psutil.Process(pid)
        return [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []
