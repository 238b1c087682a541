"""The ledger: append-only, hash-chained history of what was decided, run, promoted and refused, with its evidence."""

from __future__ import annotations

import datetime as dt
import functools
import json
from collections.abc import Callable, Mapping
from typing import Any

import sqlalchemy as sa
from pydantic import AwareDatetime, BaseModel, JsonValue

from artifacts.clock import DataClock
from artifacts.records import Records, check_schema, connect
from artifacts.refs import Digest, canonical, key_digest, sha256
from operators.ledger.tables import entries_table, head_table, one_writer
from operators.settings import platform

GENESIS: Digest = sha256(b"perennial ledger")
DECISION, DECISION_CLOSED = "decision", "decision-closed"
RETRAIN = "retrain"
"""How a run of ``retrain`` or ``backfill`` has ended."""
FAILED = "failed"
STEP_BEGUN, STEP_FINISHED = "step-begun", "step-finished"


class Entry(BaseModel, frozen=True, extra="forbid"):
    """One line of the ledger. ``at`` is the data clock's time, ``recorded_at`` the wall's."""

    id: int
    at: AwareDatetime
    recorded_at: AwareDatetime
    kind: str
    subject: str
    actor: str
    body: dict[str, JsonValue]
    unique: str | None = None
    previous: Digest
    digest: Digest
    existed: bool = False


class Attempt(BaseModel, frozen=True, extra="forbid"):
    """One try at one piece of step work; ``outcome`` is None while it runs, or when its runner died."""

    key: str
    attempt: int
    begun: Entry
    finished: Entry | None = None

    @property
    def outcome(self) -> str | None:
        """How it ended: done, reused, refused, failed, killed; None when it has not."""
        return str(self.finished.body["outcome"]) if self.finished else None


def _wall() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


class Ledger:
    """The ledger of one database. ``now`` gives the data clock's time for entries that do not bring their own."""

    def __init__(self, engine: sa.Engine, now: Callable[[], dt.datetime] = _wall) -> None:
        self._engine = engine
        self._now = now

    def append(
        self,
        kind: str,
        subject: str,
        body: Mapping[str, Any],
        *,
        unique: str | None = None,
        actor: str = "perennial",
        at: dt.datetime | None = None,
    ) -> Entry:
        """Adds one entry; with ``unique``, a second append of the same returns the first one's entry, ``existed`` set."""
        line = self._line(kind, subject, body, unique, actor=actor, at=at)
        with one_writer(self._engine) as connection:
            return _append(connection, line)

    def _line(
        self,
        kind: str,
        subject: str,
        body: Mapping[str, Any],
        unique: str | None,
        *,
        actor: str,
        at: dt.datetime | None,
    ) -> dict[str, Any]:
        return {
            "at": (at or self._now()).astimezone(dt.UTC),
            "kind": kind,
            "subject": subject,
            "actor": actor,
            "body": canonical(body),
            "unique_key": unique,
        }

    def entries(
        self,
        kind: str | None = None,
        subject: str | None = None,
        since: dt.datetime | None = None,
        newest: int | None = None,
    ) -> tuple[Entry, ...]:
        """Entries in the order of writing; ``since`` filters on the data clock, ``newest`` keeps only the last n."""
        table = entries_table.c
        query = sa.select(entries_table).order_by(table.id.desc())
        for column, value in ((table.kind, kind), (table.subject, subject)):
            query = query.where(column == value) if value is not None else query
        if since is not None:
            query = query.where(table.at >= since.astimezone(dt.UTC))
        with self._engine.connect() as connection:
            rows = connection.execute(query.limit(newest)).mappings().all()
        return tuple(_entry(row) for row in reversed(rows))

    def get(self, entry_id: int) -> Entry:
        """One entry by its id; raises LookupError when there is none."""
        with self._engine.connect() as connection:
            row = connection.execute(sa.select(entries_table).where(entries_table.c.id == entry_id)).mappings().first()
        if row is None:
            raise LookupError(f"the ledger has no entry {entry_id}")
        return _entry(row)

    def find(self, unique: str) -> Entry | None:
        """The entry that was appended under a unique name, or None."""
        query = sa.select(entries_table).where(entries_table.c.unique_key == unique)
        with self._engine.connect() as connection:
            row = connection.execute(query).mappings().first()
        return _entry(row) if row else None

    def verify(self) -> list[str]:
        """What is wrong with the chain, one line per problem; an empty list means that no row was altered or lost."""
        problems, expected, previous = [], 1, GENESIS
        with self._engine.connect() as connection:
            head = connection.execute(sa.select(head_table.c.id, head_table.c.digest)).first()
            for row in connection.execute(sa.select(entries_table).order_by(entries_table.c.id)).mappings():
                if row["id"] != expected:
                    problems.append(f"entry {expected}: missing; the next one is {row['id']}")
                elif row["previous"] != previous:
                    problems.append(f"entry {row['id']}: does not follow the entry before it")
                if _digest(dict(row)) != row["digest"]:
                    problems.append(f"entry {row['id']}: content differs from its digest; it was edited")
                expected, previous = row["id"] + 1, row["digest"]
        last, digest = (head.id, head.digest) if head else (0, GENESIS)
        if (expected - 1, previous) != (last, digest):
            problems.append(
                f"the newest entry is {expected - 1}, the head says {last}; entries at the end were altered"
            )
        return problems

    def open_decisions(self, model: str) -> tuple[Entry, ...]:
        """Decisions for a model that nobody has closed yet, oldest first: the work that is still to be done."""
        closed = self.closures(model)
        return tuple(entry for entry in self.entries(DECISION, model) if entry.id not in closed)

    def closures(self, model: str) -> dict[int, Entry]:
        """How each closed decision of a model ended, by the decision's id: the entry that no later one supersedes."""
        return {int(str(entry.body["decision"])): entry for entry in self.entries(DECISION_CLOSED, model)}

    def close_decision(
        self, decision: Entry, outcome: str, body: Mapping[str, Any] | None = None, *, at: dt.datetime | None = None
    ) -> Entry:
        """Records how a decision ended; closing it again returns the first answer.

        One exception: work that failed may be cleared and end well after all. Its end is a further entry, which names the
        failure that it supersedes.
        """
        if decision.kind != DECISION:
            raise ValueError(f"entry {decision.id} is a '{decision.kind}', only a '{DECISION}' can be closed")
        answer = {**(body or {}), "decision": decision.id, "outcome": outcome}
        first = self.append(DECISION_CLOSED, decision.subject, answer, unique=f"closed:{decision.id}", at=at)
        if not first.existed or first.body["outcome"] != FAILED or outcome == FAILED:
            return first
        answer["supersedes"] = first.id
        return self.append(DECISION_CLOSED, decision.subject, answer, unique=f"closed:{decision.id}:again", at=at)

    def begin_attempt(
        self,
        key: Digest,
        body: Mapping[str, Any] | None = None,
        *,
        actor: str = "perennial",
        at: dt.datetime | None = None,
    ) -> int:
        """Records that work on a step's key begins and returns the attempt's number, from 1; no two get the same."""
        line = self._line(STEP_BEGUN, key, {}, None, actor=actor, at=at)
        begun = (entries_table.c.kind == STEP_BEGUN, entries_table.c.subject == key)
        with one_writer(self._engine) as connection:
            number = int(connection.scalar(sa.select(sa.func.count()).where(*begun)) or 0) + 1
            line["body"] = canonical({**(body or {}), "attempt": number})
            _append(connection, line | {"unique_key": f"begun:{key}:{number}"})
            return number

    next_attempt = begin_attempt

    def finish_attempt(
        self,
        key: Digest,
        attempt: int,
        outcome: str,
        body: Mapping[str, Any] | None = None,
        *,
        at: dt.datetime | None = None,
    ) -> Entry:
        """Records how an attempt ended; the first answer stays."""
        answer = {**(body or {}), "attempt": attempt, "outcome": outcome}
        return self.append(STEP_FINISHED, key, answer, unique=f"finished:{key}:{attempt}", at=at)

    def attempts(self, key: Digest) -> tuple[Attempt, ...]:
        """All attempts at one key, oldest first."""
        finished = {entry.body["attempt"]: entry for entry in self.entries(STEP_FINISHED, key)}
        return tuple(
            Attempt(key=key, attempt=number, begun=entry, finished=finished.get(number))
            for entry in self.entries(STEP_BEGUN, key)
            if isinstance(number := entry.body["attempt"], int)
        )

    def of_task(self, dag: str, run: str, task: str, newest: int = 1000) -> dict[int, Attempt]:
        """The last attempt of each map index of a task in a run, -1 when it is not mapped; looks at the newest steps only."""
        found = {}
        for attempt in reversed(self.status(newest)):
            said = attempt.begun.body
            if (said.get("dag"), said.get("run"), said.get("task")) == (dag, run, task):
                found[int(str(said.get("map_index", -1)))] = attempt
        return found

    def status(self, newest: int = 50) -> tuple[Attempt, ...]:
        """The newest step attempts, newest first: what runs, what ended, how."""
        begun = self.entries(STEP_BEGUN, newest=newest)
        answers: dict[tuple[str, JsonValue], Entry] = {}
        if begun:
            finished = self.entries(STEP_FINISHED)
            answers = {(entry.subject, entry.body["attempt"]): entry for entry in finished if entry.id > begun[0].id}
        return tuple(
            Attempt(key=entry.subject, attempt=number, begun=entry, finished=answers.get((entry.subject, number)))
            for entry in reversed(begun)
            if isinstance(number := entry.body["attempt"], int)
        )


def _append(connection: sa.Connection, line: Mapping[str, Any]) -> Entry:
    unique = line["unique_key"]
    if unique is not None:
        query = sa.select(entries_table).where(entries_table.c.unique_key == unique)
        if (found := connection.execute(query).mappings().first()) is not None:
            return _entry(found, existed=True)
    head = connection.execute(sa.select(head_table.c.id, head_table.c.digest)).first()
    last, previous = (head.id, head.digest) if head else (0, GENESIS)
    row = {**line, "id": last + 1, "recorded_at": _wall(), "previous": previous}
    row["digest"] = _digest(row)
    connection.execute(entries_table.insert().values(row))
    mark = {"id": row["id"], "digest": row["digest"]}
    connection.execute(head_table.update().values(mark) if head else head_table.insert().values(one=1, **mark))
    return _entry(row)


def _instant(value: dt.datetime) -> dt.datetime:
    return value.astimezone(dt.UTC) if value.tzinfo else value.replace(tzinfo=dt.UTC)


def _digest(row: Mapping[str, Any]) -> Digest:
    names = ("id", "kind", "subject", "actor", "body", "unique_key", "previous")
    instants = {name: _instant(row[name]).isoformat(timespec="microseconds") for name in ("at", "recorded_at")}
    return key_digest({**{name: row[name] for name in names}, **instants})


def _entry(row: Mapping[Any, Any], *, existed: bool = False) -> Entry:
    return Entry(
        id=row["id"],
        at=_instant(row["at"]),
        recorded_at=_instant(row["recorded_at"]),
        kind=row["kind"],
        subject=row["subject"],
        actor=row["actor"],
        body=json.loads(row["body"]),
        unique=row["unique_key"],
        previous=row["previous"],
        digest=row["digest"],
        existed=existed,
    )


@functools.cache
def ledger() -> Ledger:
    """The ledger of this deployment, on its data clock; raises SchemaMismatch when nobody has migrated it."""
    engine = connect(platform().database)
    check_schema(engine)
    clock = DataClock(platform().clock, Records(engine))

    def now() -> dt.datetime:
        try:
            return clock.now()
        except LookupError:  # a replay that has not begun: the history before it has only the wall's time
            return _wall()

    return Ledger(engine, now)
