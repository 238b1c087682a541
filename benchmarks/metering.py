"""How far the bill is from an independent clock: 30 jobs of 5 s and more, metered by the runner and watched from outside.

The other clock is the kernel's: the start from /proc/<pid>/stat (in ticks since boot), the end from a pidfd that another
thread waits on. It shares no reading with the runner. Each job is one process that pauses for its time, so that 30 of them
disturb nobody; what is metered is wall time on held cores, and does not depend on what a job does.
"""

from __future__ import annotations

import os
import select
import statistics
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from artifacts.records import connect
from artifacts.refs import Uri, file_uri, sha256
from artifacts.store import write_bytes
from benchmarks.report import report
from operators import process
from operators.jobs import accounts
from operators.jobs.contract import TorchJob
from operators.ledger import Ledger, migrate
from operators.process import ProcessRunner
from operators.steps import PlannedStep

JOBS, SHORTEST, LONGEST = 30, 5.0, 6.0
TICK = 1 / os.sysconf("SC_CLK_TCK")


class Pause(BaseModel, frozen=True):
    """What a job does."""

    seconds: float


class Paused(BaseModel, frozen=True):
    """What it leaves."""

    word: str


class Silent:
    """A log that nobody reads."""

    def info(self, event: str, *args: Any) -> None:
        """Writes nothing."""


def watch(runner: ProcessRunner, found: list[float]) -> None:
    """Waits for the runner's process, then for its end; adds its seconds by the kernel's clock."""
    while (child := runner._process) is None:
        time.sleep(0.001)
    handle = os.pidfd_open(child.pid)
    fields = Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()
    select.select([handle], [], [])
    ended = time.clock_gettime(time.CLOCK_BOOTTIME)
    os.close(handle)
    found.append(
        ended - (int(fields[19]) * TICK + TICK / 2)
    )  # the kernel cuts off what is below a tick: half of one on average


def one(number: int, folder: Path, book: Ledger) -> tuple[float, float]:
    """One job; the kernel's seconds and the metered ones."""
    pause = SHORTEST + (LONGEST - SHORTEST) * number / (JOBS - 1)
    place: Uri = file_uri(folder / f"job-{number}")
    job = TorchJob(processes_per_node=1, tenant="bench", model="pause", owner="bench")
    step = PlannedStep(
        "benchmarks.pause",
        "training",
        Pause(seconds=pause),
        Paused,
        job,
        sha256(str(number).encode()),
        place,
        effect=True,
    )
    runner = ProcessRunner(replace(step), book, folder / "locks", log=Silent())
    times: list[float] = []
    watcher = threading.Thread(target=watch, args=(runner, times))
    watcher.start()
    runner.run()
    watcher.join()
    return times[0], accounts.usages(book)[-1].seconds


def command(step: PlannedStep, *_: str) -> tuple[str, ...]:
    """The pause and the result, in a shell: no interpreter's start is in the way of 30 jobs."""
    seconds = step.spec.model_dump()["seconds"]
    result = step.result_uri.removeprefix("file://")
    return ("sh", "-c", f'sleep {seconds:.3f}; echo \'{{"word": "done"}}\' > {result}')


def main() -> None:
    """Runs the jobs one after the other."""
    setattr(process, "command", command)  # noqa: B010  the launcher is no part of what is measured
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        engine = connect(f"sqlite:///{folder / 'perennial.db'}")
        migrate(engine)
        book = Ledger(engine)
        write_bytes(file_uri(folder / "locks" / "here"), b"")
        pairs = [one(number, folder, book) for number in range(JOBS)]
    errors = [abs(metered - kernel) / kernel for kernel, metered in pairs]
    total = sum(kernel for kernel, _ in pairs)
    report(
        "metering",
        {
            "max_relative_error": max(errors),
            "median_relative_error": statistics.median(errors),
            "total_relative_error": abs(sum(metered for _, metered in pairs) - total) / total,
            "shortest_seconds": min(kernel for kernel, _ in pairs),
            "jobs": float(len(pairs)),
        },
        {"max_relative_error": "<= 0.003", "shortest_seconds": ">= 5", "jobs": ">= 30"},
    )


if __name__ == "__main__":
    main()
