"""What people are told: each change of a model's drift state, and that a retrain is overdue. Pure: ledger entries in."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from html import escape
from typing import Any, NamedTuple

from operators.ledger import Entry

NOTICE, NOTICE_FAILED = "notice", "notice-failed"
CALM = "STABLE"  # what a model is before its first check
NEWS_FOR = dt.timedelta(
    days=3
)  # what is older is history: a DAG that comes back from a long pause must not flood people
OVERDUE = dt.timedelta(hours=2)  # after its time; 26 h without a decision for a daily schedule (field-reports 30)


class Message(NamedTuple):
    """One message; ``name`` is unique, so it is sent once. ``lines`` are plain text."""

    name: str
    model: str
    subject: str
    lines: tuple[str, ...]
    facts: dict[str, Any]

    def text(self) -> str:
        """The message as plain text."""
        return "\n".join((self.subject, *(f"  {line}" for line in self.lines)))

    def html(self) -> str:
        """The message as HTML; words from outside stay words."""
        items = "".join(f"<li>{escape(line)}" for line in self.lines)
        return f"<p><b>{escape(self.subject)}</b></p><ul>{items}</ul>"


def changes(checks: Sequence[Entry], told: Sequence[Entry], now: dt.datetime, page: str) -> list[Message]:
    """One message for each check whose state differs from that of the check before, as far as nobody was told yet."""
    known, found, before = {str(entry.unique) for entry in told}, [], CALM
    for entry in checks:
        decision: Any = entry.body["decision"]
        after, name = str(decision["state"]), f"notice:{entry.subject}:{entry.id}"
        if after != before and name not in known and entry.at >= now - NEWS_FOR:
            found.append(_change(entry, before, after, name, page))
        before = after
    return found


def _change(entry: Entry, before: str, after: str, name: str, page: str) -> Message:
    decision: Any = entry.body["decision"]
    partition, reasons = str(entry.body["partition"]), tuple(str(reason) for reason in decision["reasons"])
    facts = {
        "model": entry.subject,
        "partition": partition,
        "from": before,
        "to": after,
        "check": entry.id,
        "page": page,
    }
    subject = f"{entry.subject}: {before} -> {after} after {partition}"
    return Message(name, entry.subject, subject, (*reasons, page), {**facts, "reasons": list(reasons)})


def overdue(model: str, decisions: Sequence[Entry], tick: dt.datetime | None, now: dt.datetime) -> Message | None:
    """That the scheduler has started no retrain although its time has passed; ``tick`` is the first after the newest one."""
    if tick is None or not decisions or now <= tick + OVERDUE:
        return None
    last = decisions[-1]
    subject = f"{model}: no retrain was decided since {last.at:%Y-%m-%dT%H:%MZ}, one was due at {tick:%Y-%m-%dT%H:%MZ}"
    line = f"look whether the DAG retrain__{model} is paused and whether the scheduler runs"
    return Message(f"overdue:{model}:{last.id}", model, subject, (line,), {"model": model, "due": tick.isoformat()})
