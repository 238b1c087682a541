"""Keeps one attempt's books while it runs: states, budget, meter, utilisation. The runner acts; this remembers and advises."""

from __future__ import annotations

import datetime as dt
import statistics
from collections.abc import Callable, Mapping
from typing import Any

from artifacts.step import Progress
from operators.jobs import accounts, metering
from operators.jobs.accounts import Accounts
from operators.jobs.budget import Admission
from operators.jobs.history import History, Job
from operators.jobs.metering import Meter
from operators.jobs.sampling import Busy, phase
from operators.jobs.states import State
from operators.jobs.utilisation import Advice, Policy, Sample, advice, smaller, windows

UTILISATION = "utilisation"
STALL_SECONDS = 900.0  # decisions.md 4.9: no-progress watchdog 15 min
BUDGET_LOOK_SECONDS = 60.0
NOTHING = Advice(act="nothing", reason="")


class Keeper:
    """The books of one job. ``clock`` is monotonic seconds."""

    def __init__(
        self,
        history: History,
        job: Job,
        words: Mapping[str, str],
        clock: Callable[[], float],
        accounts: Accounts | None = None,
        policy: Policy = Policy(),  # noqa: B008  a frozen value
    ) -> None:
        self._history, self.job, self._clock, self.policy = history, job, clock, policy
        self._words = words
        self._accounts = accounts
        self._busy: Busy | None = None
        self._samples: list[Sample] = []
        self._told = 0
        self._begun = self._sampled = self._moved = self._asked = clock()
        self._progress: Progress | None = None
        self._used_up_at: float | None = None
        self._meters: dict[str, Meter] = {}

    def move(self, state: State, reason: str = "", **said: str) -> None:
        """Takes the job to a state and says why."""
        self.job = self._history.move(self.job, state, reason, **said)

    def admit(self) -> Admission:
        """Asks the tenant's budget; QUEUED while it is full, ADMITTED when it is not."""
        found = (
            self._accounts.reserve(self.job.name, self.job.declared)
            if self._accounts
            else Admission(verdict="admit", reason="no budgets")
        )
        if found.verdict == "queue":
            self.move("QUEUED", found.reason)
        elif found.verdict != "never":
            self.move("ADMITTED", found.reason)
        return found

    def started(self, uid: str, at: dt.datetime, busy: Busy | None = None) -> None:
        """A pod or process runs: the meter begins. ``busy`` tells how busy it is."""
        if uid in self._meters:
            return
        meter = metering.meter(self.job.declared, self.job.name, uid, at, metering.run_type(self._words))
        accounts.begin(self._history.book, meter)
        self._meters[uid] = meter
        self._busy = busy or self._busy
        self._begun = self._sampled = self._moved = self._clock()

    def ended(self, uid: str, at: dt.datetime, **read: Any) -> None:
        """A pod or process is over: the meter is read, once."""
        if uid in self._meters:
            accounts.end(self._history.book, self._meters[uid], at, **read)

    def close(self, state: State, reason: str = "", *, code: str = "", made: str = "") -> None:
        """The end of the job: its promise is taken back, and how busy it was is written down."""
        if self._samples:
            self._tell("summary", "")
        if not self.job.over:
            self.move(state, reason.partition("\n")[0], code=code, made=made)
        if self._accounts:
            self._accounts.settle(self.job.name, self.job.declared)

    def look(self, progress: Progress | None) -> Advice:
        """Notes how far the work is, takes a sample when one is due, and says what is to be done."""
        now = self._clock()
        if progress is not None and progress != self._progress:
            self._progress, self._moved = progress, now
            self._follow(progress)
        if now - self._sampled < self.policy.sample_seconds or self._busy is None:
            return NOTHING
        self._sampled = now
        self._samples.append(self._sample(now))
        return self._budget(now) or self._utilisation(now)

    def stalled(self) -> float | None:
        """Seconds without any progress when they are too many, else None (field report 82)."""
        still = self._clock() - self._moved
        return still if still > STALL_SECONDS else None

    def _follow(self, progress: Progress) -> None:
        state: State = "DOWNLOADING" if phase(progress.doing) == "downloading" else "PROCESSING"
        if progress.fraction >= 1:
            state = "STORING"
        order = ("STARTING", "DOWNLOADING", "PROCESSING", "STORING")
        if self.job.state in order and order.index(state) > order.index(self.job.state):
            self.move(state, progress.doing)

    def _sample(self, now: float) -> Sample:
        done = self._progress
        return Sample(
            at=now - self._begun,
            busy=self._busy() if self._busy else (),
            phase=phase(done.doing) if done else "training",
            steps=done.fraction if done else None,
        )

    def _budget(self, now: float) -> Advice | None:
        """A budget that is used up ends its running jobs, after the time to save."""
        if self._accounts is None or now - self._asked < BUDGET_LOOK_SECONDS:
            return None
        self._asked = now
        budget = self._accounts.budget(self.job.declared)
        if budget is None or not self._accounts.used_up(self.job.declared):
            self._used_up_at = None
            return None
        self._used_up_at = self._used_up_at or now
        if now - self._used_up_at < budget.grace_minutes * 60:
            return None
        return Advice(act="halt", reason=f"{budget.tenant}: {budget.hours:g} {budget.unit}-hours are used up")

    def _utilisation(self, now: float) -> Advice:
        found = windows(self._samples, self.policy)
        if len(found) <= self._told:
            return NOTHING
        self._told = len(found)
        job = self.job.declared
        before = [
            entry.recorded_at.timestamp()
            for entry in self._history.book.entries(UTILISATION)
            if entry.body["act"] == "downscale" and entry.body["key"] == self.job.key
        ]
        wall = dt.datetime.now(dt.UTC).timestamp()
        what = advice(found, self.policy, wall, before, can_shrink=smaller(job) is not None)
        self._tell(what.act, what.reason)
        return what

    def _tell(self, act: str, reason: str) -> None:
        counted = [max(one.busy) for one in self._samples if one.busy]
        busy = round(statistics.fmean(counted), 4) if counted else None
        body = {"key": self.job.key, "act": act, "reason": reason, "busy": busy, "samples": len(counted)}
        self._history.book.append(UTILISATION, self.job.name, body)
