"""Each tenant's account: what was used (the ledger), what is promised (a record, compare-and-set), what still fits."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable
from typing import Any

from pydantic import JsonValue

from artifacts.records import Conflict, Records
from operators.jobs.budget import Admission, Budget, Standing, admission, estimate, reserved_elsewhere, used
from operators.jobs.contract import TorchJob
from operators.jobs.metering import METER, USAGE, Meter, Usage
from operators.ledger import Entry, Ledger

TRIES = 20  # of a reservation that others are writing beside


def usages(book: Ledger) -> tuple[Usage, ...]:
    """Every meter that was read, oldest first."""
    return tuple(map(_usage, book.entries(USAGE)))


def open_meters(book: Ledger) -> tuple[Meter, ...]:
    """The meters that nobody has read yet: pods and processes that run, or that were lost."""
    read = {entry.body["uid"] for entry in book.entries(USAGE)}
    return tuple(Meter.model_validate(one.body) for one in book.entries(METER) if one.body["uid"] not in read)


def begin(book: Ledger, meter: Meter) -> None:
    """Records that a pod runs; the same pod again is no second one."""
    book.append(METER, meter.tenant, meter.model_dump(mode="json"), unique=f"meter:{meter.uid}")


def end(book: Ledger, meter: Meter, ended: dt.datetime, **read: Any) -> Usage:
    """Reads a meter; the first reading of a uid stays. ``read``: seconds, code, closed_by of the usage."""
    read.setdefault("seconds", max(0.0, (ended - meter.started).total_seconds()))
    body: dict[str, Any] = {**meter.model_dump(mode="json"), "ended": ended.isoformat(), **read}
    return _usage(book.append(USAGE, meter.tenant, body, unique=f"usage:{meter.uid}"))


def _usage(entry: Entry) -> Usage:
    return Usage.model_validate({**entry.body, "at": entry.at})


class Accounts:
    """The budgets of a deployment. A tenant without one is metered and never held up."""

    def __init__(
        self, book: Ledger, records: Records, budgets: Iterable[Budget], now: Callable[[], dt.datetime]
    ) -> None:
        self._book = book
        self._records = records
        self._budgets = {(one.tenant, one.unit): one for one in budgets}
        self._now = now

    def budget(self, job: TorchJob) -> Budget | None:
        """The budget that a job is paid from."""
        return self._budgets.get((job.tenant, job.unit))

    def standing(self, job: TorchJob, name: str = "") -> Standing | None:
        """How the job's budget stands, without what is promised to the job ``name`` itself."""
        budget = self.budget(job)
        if budget is None:
            return None
        _, promised = self._promised(budget)
        gone = used(budget, usages(self._book), self._now())
        return Standing(budget=budget, used=gone, reserved=reserved_elsewhere(promised, name))

    def reserve(self, name: str, job: TorchJob) -> Admission:
        """Promises a job its estimate where it fits; of two that ask at once for the last hours one gets them."""
        budget = self.budget(job)
        if budget is None:
            return Admission(verdict="admit", reason=f"{job.tenant}: no budget in {job.unit}-hours")
        for _ in range(TRIES):
            version, promised = self._promised(budget)
            before = usages(self._book)
            wanted = estimate(job, before)
            gone = used(budget, before, self._now())
            found = admission(Standing(budget=budget, used=gone, reserved=reserved_elsewhere(promised, name)), wanted)
            if found.verdict in {"queue", "never"}:
                return found
            try:
                self._write(budget, {**promised, name: wanted}, version)
            except Conflict:
                continue
            return found
        raise Conflict(f"budget of {budget.tenant}: {TRIES} others wrote it at the same time; try again")

    def settle(self, name: str, job: TorchJob) -> None:
        """Takes a promise back once the job is over; what it used is in the ledger by then."""
        budget = self.budget(job)
        for _ in range(TRIES if budget else 0):
            if budget is None:
                return
            version, promised = self._promised(budget)
            if name not in promised:
                return
            try:
                self._write(budget, {key: value for key, value in promised.items() if key != name}, version)
            except Conflict:
                continue
            return

    def used_up(self, job: TorchJob) -> bool:
        """Whether a running job's budget is gone: used by ended jobs, whatever is promised."""
        standing = self.standing(job)
        return standing is not None and standing.used >= standing.budget.seconds

    def _promised(self, budget: Budget) -> tuple[int, dict[str, float]]:
        record = self._records.get(_record(budget))
        return record.version, {name: float(str(value)) for name, value in record.value.items()}

    def _write(self, budget: Budget, promised: dict[str, float], version: int) -> None:
        value: dict[str, JsonValue] = dict(promised)
        self._records.put(_record(budget), value, version)


def _record(budget: Budget) -> str:
    return f"budget/{budget.tenant}/{budget.unit}"
