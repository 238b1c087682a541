"""``python -m operators.ledger migrate | verify | status | steps | show [--kind K] [--subject S] [--newest N]
| explain REF [--folder F] | job NAME [--folder F] | bill YYYY-MM [--folder F]``.

``status`` is the table of training jobs, ``steps`` every attempt at a step, ``job`` one job's page, ``bill`` a month's usage
as CSV (with ``--folder`` also a picture). ``explain`` tells where a package comes from; REF is its digest, URI, training key
or a name such as <model>_v7. With ``--folder`` it also writes the card as lineage.json and lineage.html.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import sys
from pathlib import Path

from artifacts.records import connect
from operators.jobs import accounts, metering, page
from operators.jobs.history import History
from operators.jobs.keeper import UTILISATION
from operators.jobs.statement_page import picture
from operators.ledger import Attempt, Entry, Ledger, lineage, migrate
from operators.settings import platform


def entry_line(entry: Entry) -> str:
    """One entry as one line of text: number, data clock, kind, subject, actor, body."""
    body = json.dumps(entry.body, sort_keys=True, ensure_ascii=False)
    return f"{entry.id:6d}  {entry.at:%Y-%m-%dT%H:%M:%SZ}  {entry.kind:<16}  {entry.subject}  {entry.actor}  {body}"


def attempt_line(attempt: Attempt) -> str:
    """One step attempt as one line of text."""
    body = attempt.begun.body
    return (
        f"{attempt.begun.recorded_at:%Y-%m-%dT%H:%M:%SZ}  {attempt.outcome or 'running':<8}  "
        f"{body.get('module', '?')}  {attempt.key[7:19]}-a{attempt.attempt}  {body.get('task', '')}"
    )


def _arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m operators.ledger", description=__doc__)
    parser.add_argument("verb", choices=["migrate", "verify", "status", "steps", "show", "explain", "job", "bill"])
    parser.add_argument("ref", nargs="?", help="explain: what to explain; job: its name; bill: the month")
    parser.add_argument("--folder", type=Path, help="explain, job, bill: where to write the page")
    parser.add_argument("--kind")
    parser.add_argument("--subject")
    parser.add_argument("--newest", type=int, default=200)
    return parser.parse_args(argv)


def main(argv: list[str]) -> int:
    """Runs one verb and returns the exit code: 1 when verify finds a problem."""
    arguments = _arguments(argv)
    engine = connect(platform().database)
    if arguments.verb == "migrate":
        return _say(f"schema {migrate(engine)}: {engine.url.render_as_string(hide_password=True)}")
    book = Ledger(engine)
    if arguments.verb == "verify":
        problems = book.verify()
        newest = book.entries(newest=1)
        whole = (
            f"whole: {newest[0].id if newest else 0} entries, newest digest {newest[0].digest if newest else 'none'}"
        )
        return _say(*(problems or [whole])) or int(bool(problems))
    return _tell(book, arguments)


def _tell(book: Ledger, arguments: argparse.Namespace) -> int:
    """The verbs that only read."""
    if arguments.verb == "status":
        return _say(*_jobs(book, arguments.newest))
    if arguments.verb == "steps":
        return _say(*map(attempt_line, book.status(arguments.newest)))
    if arguments.verb == "explain":
        return _explain(book, arguments.ref, arguments.folder)
    if arguments.verb == "job":
        return _job(book, arguments.ref, arguments.folder)
    if arguments.verb == "bill":
        return _bill(book, arguments.ref or "", arguments.folder)
    return _say(*map(entry_line, book.entries(arguments.kind, arguments.subject, newest=arguments.newest)))


def _bill(book: Ledger, wanted: str, folder: Path | None) -> int:
    try:
        day = dt.datetime.strptime(wanted, "%Y-%m").replace(tzinfo=dt.UTC)
    except ValueError:
        return _say(f"bill: '{wanted}' is no month; write it as 2013-09") or 1
    found = metering.month(accounts.usages(book), day.year, day.month)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"bill-{wanted}.csv").write_text(metering.statement(found), encoding="utf-8")
        (folder / f"bill-{wanted}.svg").write_text(picture(found, f"Usage in {wanted}"), encoding="utf-8")
    return _say(metering.statement(found).rstrip())


def _jobs(book: Ledger, newest: int) -> list[str]:
    busy = {entry.subject: entry.body["busy"] for entry in book.entries(UTILISATION)}
    known = {name: float(str(share)) for name, share in busy.items() if share is not None}
    jobs, now = History(book).jobs(newest), dt.datetime.now(dt.UTC)
    return page.table(jobs, accounts.usages(book), accounts.open_meters(book), known, now)


def _job(book: Ledger, name: str | None, folder: Path | None) -> int:
    try:
        job = History(book).get(name or "")
    except LookupError as error:
        return _say(str(error)) or 1
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "job.html").write_text(page.html(job), encoding="utf-8")
    return _say(*page.text(job))


def _explain(book: Ledger, ref: str | None, folder: Path | None) -> int:
    try:
        card = lineage.explain(book, ref or "")
    except LookupError as error:
        return _say(str(error)) or 1
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "lineage.json").write_text(card.model_dump_json(indent=1) + "\n", encoding="utf-8")
        (folder / "lineage.html").write_text(lineage.page(card), encoding="utf-8")
    return _say(*lineage.text(card))


def _say(*lines: str) -> int:
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
