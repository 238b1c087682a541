"""Runs one command and, when it ends for any reason, ends every process that it left behind, within 6 seconds.

``python -m operators.stack [--pid-file F] <command...>`` starts; ``python -m operators.stack --stop F`` stops and waits.
honcho alone is not enough: tasks have process groups of their own and keep its pipes open. As a subreaper this process
becomes the parent of every orphan below it, also of those that made a session of their own, so none can hide.
"""

from __future__ import annotations

import argparse
import ctypes
import fcntl
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import IO

import psutil

from operators import follow

PR_SET_CHILD_SUBREAPER = 36
COMMAND_SECONDS = 2.0  # for the command to end its own children in its own order
TERM_SECONDS = 2.0  # for what is left
KILL_SECONDS = 1.0
STOP_SECONDS = 10.0
CLAIM_SECONDS = 0.5  # whoever only asks whether a stack runs holds the lock for a moment
POLL_SECONDS = 0.05
EXIT_TAKEN = 73  # sysexits.h: the output file cannot be created
EXIT_INTERRUPTED = 130


class Taken(RuntimeError):
    """A live process holds the pid file; ``holder`` is its pid, None when it has not written it yet."""

    def __init__(self, pid_file: Path, holder: int | None) -> None:
        self.holder = holder
        super().__init__(
            f"a stack is running already (pid {holder}, {pid_file}); stop it with `python -m operators.stack --stop {pid_file}`"
        )


def descendants(pid: int) -> list[psutil.Process]:
    """The live processes below one, zombies left out."""
    try:
        children = psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []
    return [one for one in children if _alive(one)]


def _alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def proportional_memory(pid: int) -> int:
    """Memory in bytes of a process and all below it, pages that several share counted once (sum of Linux's PSS)."""
    total = 0
    for one in (pid, *(child.pid for child in descendants(pid))):
        with suppress(OSError):
            lines = Path(f"/proc/{one}/smaps_rollup").read_text().splitlines()
            total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) * 1024
    return total


def claim(pid_file: Path) -> IO[str]:
    """Takes a pid file for this process; the lock on it ends with the process, so a stale file never blocks.

    Raises Taken when a live process holds it.
    """
    pid_file.parent.mkdir(parents=True, exist_ok=True)
    file = pid_file.open("a+")
    until = time.monotonic() + CLAIM_SECONDS
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            if time.monotonic() > until:
                holder = running(pid_file)
                file.close()
                raise Taken(pid_file, holder) from None
            time.sleep(POLL_SECONDS)
    file.truncate(0)
    file.write(f"{os.getpid()}\n")
    file.flush()
    return file


def running(pid_file: Path) -> int | None:
    """The pid of the live stack that holds a pid file, or None."""
    try:
        with pid_file.open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return int(file.read() or 0) or None
    except FileNotFoundError:
        return None
    return None


def stop(pid_file: Path, seconds: float = STOP_SECONDS) -> bool:
    """Stops the stack that holds a pid file and waits until it is gone; returns whether there was one.

    Raises TimeoutError when it is still there after ``seconds``.
    """
    pid = running(pid_file)
    if pid is None:
        return False
    try:
        supervisor = psutil.Process(pid)
        supervisor.terminate()
    except psutil.NoSuchProcess:
        return True
    # The pid file goes before the process that held it has left, so the process itself is what to wait for.
    until = time.monotonic() + seconds
    while _alive(supervisor):
        if time.monotonic() > until:
            raise TimeoutError(f"the stack (pid {pid}) is still running after {seconds:.0f} s")
        time.sleep(POLL_SECONDS)
    return True


class Supervisor:
    """One command and everything that comes of it."""

    def __init__(self, command: list[str]) -> None:
        self._command = command
        self._asked = 0
        self._asked_at = 0.0

    def ask(self, _signal: int, _frame: FrameType | None) -> None:
        """Notes that somebody wants the stack to end; a second time means at once."""
        self._asked += 1
        self._asked_at = self._asked_at or time.monotonic()

    def run(self) -> int:
        """Runs the command to its end, or until asked; returns its exit code, or 130."""
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        for wish in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(wish, self.ask)
        # A group of its own: a terminal's Ctrl-C reaches this process only, which then decides who ends when. It follows
        # its starter, so even a SIGKILL here ends the command, which can then end its own children.
        words = [sys.executable, "-S", "-P", follow.__file__, str(os.getpid()), *self._command]
        child = subprocess.Popen(words, process_group=0)  # noqa: S603  the command is what this program is for
        told = False
        while child.poll() is None and not self._overdue():
            reap_orphans(child.pid)
            if self._asked and not told:
                child.send_signal(signal.SIGTERM)
                told = True
            time.sleep(POLL_SECONDS)
        code = child.returncode
        sweep(os.getpid())
        return EXIT_INTERRUPTED if self._asked or code is None else code

    def _overdue(self) -> bool:
        return self._asked > 1 or (self._asked == 1 and time.monotonic() - self._asked_at > COMMAND_SECONDS)


def sweep(pid: int) -> None:
    """Ends everything below a process: SIGTERM first, SIGKILL to what is left, until nothing is."""
    for end, seconds in ((signal.SIGTERM, TERM_SECONDS), (signal.SIGKILL, KILL_SECONDS)):
        until = time.monotonic() + seconds
        told: set[psutil.Process] = set()
        while (left := set(descendants(pid))) and time.monotonic() < until:
            for one in left - told:  # a process that dies may leave a new orphan, which has not been told yet
                with suppress(psutil.NoSuchProcess):
                    one.send_signal(end)
            told |= left
            _reap()
            time.sleep(POLL_SECONDS)
        if not left:
            return


def reap_orphans(child: int) -> None:
    """Takes note of every orphan that has ended, so that none stays behind as a zombie; leaves ``child`` to its owner.

    A task's JVM outlives the task's Python by a moment, and becomes ours.
    """
    with suppress(ChildProcessError):
        while (ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) and ended.si_pid != child:
            os.waitpid(ended.si_pid, 0)


def _reap() -> None:
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m operators.stack", description="Runs or stops the embedded stack.")
    parser.add_argument("--pid-file", type=Path, help="where the running stack's pid lies")
    parser.add_argument("--stop", type=Path, metavar="PID_FILE", help="stop that stack, wait, and leave")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    return parser.parse_args(argv)


def main(argv: list[str]) -> int:
    """Starts or stops; returns the exit code."""
    arguments = _arguments(argv)
    if arguments.stop is not None:
        there = stop(arguments.stop)
        return _say("stack: stopped" if there else "stack: none was running")
    if not arguments.command:
        return _say("stack: there is no command to run") or os.EX_USAGE
    if arguments.pid_file is None:
        return Supervisor(arguments.command).run()
    try:
        held = claim(arguments.pid_file)
    except Taken as error:
        return _say(f"stack: {error}") or EXIT_TAKEN
    try:
        return Supervisor(arguments.command).run()
    finally:
        arguments.pid_file.unlink(missing_ok=True)
        held.close()


def _say(line: str) -> int:
    sys.stderr.write(f"{line}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
