"""Which versions a person has to agree to, who asked for them, and what came of it. All of it lies in the ledger."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any

from artifacts.refs import Digest
from operators.ledger import Entry, Ledger
from operators.verdicts import GATE
from operators.versions import Version
from training.contract import Verdict

ASKED, ANSWERED = "approval-asked", "approval"
NOBODY = frozenset({"airflow", "perennial"})
"""Actors that are no person: cron, an event, a client without a name."""


def judged(book: Ledger, model: str) -> dict[Digest, Entry]:
    """The newest judgement of each training key."""
    return {
        str(entry.body["training_key"]): entry for entry in book.entries(GATE, model) if "training_key" in entry.body
    }


def needed(entry: Entry | None) -> str | None:
    """Why a person has to agree to what was judged, or None."""
    why = entry.body.get("needs_approval") if entry else None
    return str(why) if why else None


def answers(book: Ledger, model: str) -> dict[Digest, Verdict]:
    """G10 of each training key that a person has answered for, or let expire."""
    return {
        str(entry.body["training_key"]): Verdict.model_validate(entry.body["verdict"])
        for entry in book.entries(ANSWERED, model)
    }


def held(book: Ledger, model: str) -> dict[Digest, str]:
    """Training key -> why its version may not be released yet, or ever: nobody has agreed to it."""
    given = answers(book, model)
    found = {}
    for key, entry in judged(book, model).items():
        why = needed(entry)
        if why is not None and (key not in given or given[key].status != "pass"):
            found[key] = given[key].reason if key in given else f"a person has to approve: {why}"
    return found


def author(book: Ledger, entry: Entry) -> str | None:
    """Who asked for the retrain that was judged; None for cron, for drift, and where nobody has a name."""
    decision = entry.body.get("decision")
    if decision is None or entry.body.get("trigger") != "manual":
        return None
    actor = book.get(int(str(decision))).actor
    return None if actor in NOBODY else actor


def question(version: Version, entry: Entry, page: str, who: str | None, until: dt.datetime) -> tuple[str, str]:
    """(subject, Markdown body) of what a person is asked. Pure."""
    registered = version.registered
    verdicts: Sequence[Mapping[str, Any]] = entry.body["verdicts"]  # type: ignore[assignment]
    evidence = f"[Evaluation]({page})" if page else f"Evaluation: `{entry.body['evaluation_uri']}`"
    lines = [
        f"**Why you are asked**: {needed(entry)}.",
        "",
        f"Trained through {registered.partition}, asked for by {who or entry.body['trigger']}. {evidence}. "
        f"MLflow run `{registered.run_id}`. Without an answer until {until:%Y-%m-%d %H:%M} UTC it is refused"
        + (f"; {who} cannot approve it." if who else "."),
        "",
        "| gate | verdict | reason |",
        "|---|---|---|",
        *(f"| {one['gate']} | {one['status']} | {_cell(str(one['reason']))} |" for one in verdicts),
    ]
    return f"Release {registered.model} version {registered.version}?", "\n".join(lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
