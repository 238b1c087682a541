"""The history of each job in the ledger: compare-and-set from state to state, and what the job is."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any

from pydantic import AwareDatetime, BaseModel, JsonValue

from artifacts.records import Conflict
from artifacts.refs import Digest
from operators.jobs.contract import TorchJob
from operators.jobs.states import TERMINAL, State, path
from operators.ledger import Entry, Ledger

JOB, JOB_STATE = "job", "job-state"


class Step(BaseModel, frozen=True, extra="forbid"):
    """One transition: when (the wall's clock, to the millisecond), to which state, why, by whom."""

    number: int
    at: AwareDatetime
    state: State
    reason: str = ""
    code: str = ""
    made: str = ""
    actor: str = "perennial"


class Job(BaseModel, frozen=True, extra="forbid"):
    """One attempt at a training, as the ledger has it. ``name`` is ``<step>-<key>-a<attempt>`` in every runner."""

    name: str
    key: Digest
    attempt: int
    declared: TorchJob
    lineage: dict[str, JsonValue] = {}
    at: AwareDatetime
    steps: tuple[Step, ...] = ()

    @property
    def state(self) -> State:
        """Where it is."""
        return self.steps[-1].state if self.steps else "DECLARED"

    @property
    def over(self) -> bool:
        """Whether it will not move again."""
        return self.state in TERMINAL

    @property
    def code(self) -> str:
        """The error code of its end; empty while it runs and when it ended well."""
        return self.steps[-1].code if self.steps else ""

    def when(self, state: State) -> dt.datetime | None:
        """When it first came to a state."""
        return next((step.at for step in self.steps if step.state == state), None)


class History:
    """The jobs of one ledger."""

    def __init__(self, book: Ledger, actor: str = "perennial") -> None:
        self.book = book
        self.actor = actor

    def declare(
        self, name: str, key: Digest, attempt: int, job: TorchJob, lineage: Mapping[str, Any] | None = None
    ) -> Job:
        """Begins the history of an attempt; declaring it again, after a lost worker, changes nothing."""
        body = {"key": key, "attempt": attempt, "job": job.model_dump(mode="json"), "lineage": dict(lineage or {})}
        self.book.append(JOB, name, body, unique=f"job:{name}")
        return self.get(name)

    def get(self, name: str) -> Job:
        """One job; raises LookupError when nobody has declared it."""
        entry = self.book.find(f"job:{name}")
        if entry is None:
            raise LookupError(f"the ledger has no job '{name}'; `python -m operators.ledger status` lists them")
        return _job(entry, list(self.book.entries(JOB_STATE, name)))

    def jobs(self, newest: int | None = None) -> tuple[Job, ...]:
        """The newest jobs, newest first."""
        entries = self.book.entries(JOB, newest=newest)
        moves: dict[str, list[Entry]] = {entry.subject: [] for entry in entries}
        for move in self.book.entries(JOB_STATE) if entries else ():
            if move.subject in moves:
                moves[move.subject].append(move)
        return tuple(_job(entry, moves[entry.subject]) for entry in reversed(entries))

    def move(self, job: Job, wanted: State, reason: str = "", *, code: str = "", made: str = "") -> Job:
        """Takes a job to a state from where the caller saw it, through the states on the way; the same state is no move.

        Raises Conflict when somebody else has moved it since, and ValueError where no edge leads there.
        """
        steps = list(job.steps)
        for state in path(job.state, wanted):
            last = state == wanted
            number = len(steps) + 1
            body: dict[str, Any] = {"state": state, "from": steps[-1].state if steps else "DECLARED", "number": number}
            body |= {
                "reason": reason if last else "passed between two looks",
                "code": code if last else "",
                "made": made if last else "",
            }
            entry = self.book.append(JOB_STATE, job.name, body, unique=f"job:{job.name}:{number}", actor=self.actor)
            if entry.existed:
                raise Conflict(f"job '{job.name}' is at {entry.body['state']}, not {job.state}; read it again")
            steps.append(_step(entry))
        return job.model_copy(update={"steps": tuple(steps)})


def _job(entry: Entry, moves: list[Entry]) -> Job:
    body: Any = entry.body
    return Job(
        name=entry.subject,
        key=body["key"],
        attempt=body["attempt"],
        declared=TorchJob.model_validate(body["job"]),
        lineage=body["lineage"],
        at=entry.recorded_at,
        steps=tuple(map(_step, moves)),
    )


def _step(entry: Entry) -> Step:
    body: Any = entry.body
    at = entry.recorded_at.replace(microsecond=entry.recorded_at.microsecond // 1000 * 1000)
    return Step(
        number=body["number"],
        at=at,
        state=body["state"],
        reason=body["reason"],
        code=body["code"],
        made=body["made"],
        actor=entry.actor,
    )
