"""When the ranks look up from their work: to save, to stop when told to, and to give up when one of them hangs.

Clocks and signals differ between ranks, so what they say is summed first, and all ranks do the same at the same step.
"""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import NamedTuple, NoReturn

from artifacts.step import TryAgain, give_up
from training.contract import CheckpointPolicy, FitOptions
from training.distributed import Ranks

LOOK_SECONDS = 0.25
"""Time between two looks: short beside any grace period, long beside the 0.2 ms that one costs."""
LONGEST_STRIDE = 256
READING_SHARE = 0.05  # of the progress bar
WATCHES_PER_LIMIT = 8


class Orders(NamedTuple):
    """What all ranks do now."""

    save: bool
    stop: bool


@contextmanager
def stoppable() -> Iterator[threading.Event]:
    """An event that SIGTERM sets while the block runs: a fit then saves and leaves, rather than dies."""
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield asked
        return
    before = signal.signal(signal.SIGTERM, lambda *_: asked.set())
    try:
        yield asked
    finally:
        signal.signal(signal.SIGTERM, before)


def interval(policy: CheckpointPolicy, run_seconds: float) -> float:
    """Seconds between two checkpoints: min(15 min, 5 % of the run), unless the policy says otherwise (decisions.md 4.10)."""
    return min(policy.longest_seconds, policy.run_share * run_seconds)


def stride(step_seconds: float, limit: float) -> int:
    """How many steps until the next look."""
    return min(LONGEST_STRIDE, max(1, int(min(LOOK_SECONDS, limit) / max(step_seconds, 1e-9))))


@dataclass
class Pace:
    """Decides for all ranks at once; every rank calls ``look`` with the same steps."""

    ranks: Ranks
    policy: CheckpointPolicy
    first: int
    steps: int
    asked: threading.Event
    began: float = field(default_factory=time.monotonic)
    saved: float = field(default_factory=time.monotonic)
    rows: int = 0
    next: int = 0

    def look(self, step: int, *, now: bool = False) -> Orders:
        """What to do after ``step`` steps; ``now`` asks at once, where the work rests anyway."""
        if step < self.next and not now:
            return Orders(save=False, stop=False)
        clock, done = time.monotonic(), max(1, step - self.first)
        mine = (clock - self.began, clock - self.saved) if self.ranks.leads else (0.0, 0.0)
        asked, spent, unsaved = self.ranks.total(float(self.asked.is_set()), *mine)
        limit = interval(self.policy, spent / done * self.steps)
        self.next = step + stride(spent / done, limit)
        self._say(step, spent / done)
        save = asked > 0 or unsaved >= limit
        if save:
            self.saved = clock
        return Orders(save=save, stop=asked > 0)

    def _say(self, step: int, step_seconds: float) -> None:
        rate = self.rows / max(time.monotonic() - self.began, 1e-9)
        fraction = READING_SHARE + (1 - READING_SHARE) * step / self.steps
        doing = f"step {step} of {self.steps}, {rate:,.0f} rows/s"
        self.ranks.say(fraction, doing, step_seconds * (self.steps - step))


@dataclass
class Watch:
    """Ends this process when it has made no step for too long, so that the job fails at once and is resumed.

    A collective that waits for a rank which hangs would else hold all of them, and look busy (field reports 82, 84).
    """

    ranks: Ranks
    seconds: float
    step: int = 0
    doing: str = "setting up"
    beat: float = math.inf
    over: threading.Event = field(default_factory=threading.Event)

    def say(self, step: int, doing: str) -> None:
        """This rank is alive, and what it begins."""
        self.step, self.doing, self.beat = step, doing, time.monotonic()

    def run(self) -> None:
        """Tells the others of this rank, and ends the process when the limit is passed."""
        count = 0
        while not self.over.wait(self.seconds / WATCHES_PER_LIMIT):
            count += 1
            with suppress(RuntimeError):  # a store whose host is gone; the collective says so, or the limit does
                self.ranks.store.set(f"beat/{self.ranks.rank}", f"{count} at step {self.step} ({self.doing})")
            if time.monotonic() - self.beat > self.seconds:
                self._end()

    def _end(self) -> NoReturn:
        found, quiet = self._told(), []
        if not self.over.wait(2 * self.seconds / WATCHES_PER_LIMIT):
            quiet = [rank for rank, words in self._told().items() if rank != self.ranks.rank and words == found[rank]]
        where = ", ".join(f"rank {rank} {words.partition(' ')[2]}" for rank, words in sorted(found.items()))
        silent = f"; no sign of life from rank(s) {', '.join(map(str, quiet))}" if quiet else ""
        give_up(TryAgain(f"hang: no step for {self.seconds:g} s; {where}{silent}; it goes on from its last checkpoint"))

    def _told(self) -> dict[int, str]:
        """What each rank said last, by rank."""
        found = {}
        for rank in range(self.ranks.world):
            with suppress(RuntimeError):
                key = f"beat/{rank}"
                found[rank] = self.ranks.store.get(key).decode() if self.ranks.store.check([key]) else "0 said nothing"
        return found


@contextmanager
def watching(ranks: Ranks, options: FitOptions) -> Iterator[Watch]:
    """A watch that runs beside the block; time counts from the first step on."""
    watch = Watch(ranks, options.hang_seconds)
    thread = threading.Thread(target=watch.run, name="hang watch", daemon=True)
    thread.start()
    try:
        yield watch
    finally:
        watch.over.set()
        thread.join()
