"""The page of a validation that needs nothing from the network: what failed, what only warned, and everything asked. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import astuple, fields
from html import escape

from feature_repo.contract import ValidateSpec
from feature_repo.outcomes import BadRow, Outcome

SHOWN_ROWS = 50
STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2.5rem; max-width: 70rem; color: #1f2933 }
h1 { font-size: 1.6rem } h2 { font-size: 1.15rem; margin-top: 2rem } .good { color: #15803d } .bad { color: #b91c1c }
table { border-collapse: collapse; width: 100% } td, th { text-align: left; padding: .3rem .6rem; border-bottom: 1px solid #e4e7eb }
"""


def page(
    spec: ValidateSpec,
    outcomes: Sequence[Outcome],
    failures: Sequence[str],
    warnings: Sequence[str],
    bad: Sequence[BadRow] = (),
) -> str:
    """A whole HTML page; failed expectations stand first, each with what was seen and examples."""
    held = sum(outcome.success for outcome in outcomes)
    verdict = "<h2 class=bad>refused</h2>" if failures else "<h2 class=good>all critical expectations held</h2>"
    first, last = spec.targets[0], spec.targets[-1]
    days = str(first.partition) if first is last else f"{first.partition} to {last.partition}"
    where = first.uri if first is last else f"{first.uri} to {last.uri}"
    title = escape(f"{spec.suite} {days}")
    body = [
        f"<h1>{escape(spec.suite)}: {days}</h1>",
        f"<p>{held} of {len(outcomes)} expectations held on {escape(where)} ({spec.target[:19]}). "
        '<a href="index.html">Data Docs of Great Expectations</a> (their styles come from the network).</p>',
        verdict,
        _lines("Failures", failures),
        _lines("Warnings", warnings),
        _bad_rows(bad),
        "<h2>Everything asked</h2>",
        _table(sorted(outcomes, key=lambda outcome: outcome.success)),
    ]
    return f"<!doctype html><meta charset=utf-8><title>{title}</title><style>{STYLE}</style>{''.join(body)}\n"


def _bad_rows(bad: Sequence[BadRow]) -> str:
    """The first rows that broke an expectation; all that were kept are in the file."""
    if not bad:
        return ""
    head = "".join(f"<th>{entry.name}</th>" for entry in fields(BadRow))
    rows = "".join(
        f"<tr>{''.join(f'<td>{escape(text)}</td>' for text in astuple(row))}</tr>" for row in bad[:SHOWN_ROWS]
    )
    shown = f"the first {SHOWN_ROWS} of the {len(bad)}" if len(bad) > SHOWN_ROWS else f"the {len(bad)}"
    return f"<h2>Rows that broke one</h2><p>These are {shown} in bad_rows.csv.</p><table><tr>{head}</tr>{rows}</table>"


def _lines(head: str, lines: Sequence[str]) -> str:
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return f"<h2>{head}</h2><ul>{items}</ul>" if lines else ""


def _table(outcomes: Iterable[Outcome]) -> str:
    rows = []
    for one in outcomes:
        word = "<td class=good>held</td>" if one.success else f"<td class=bad>{escape(one.severity)}</td>"
        where = escape(f"{one.table}.{one.column}" if one.column else one.table)
        seen = escape("; ".join([one.observed, *one.examples]))
        rows.append(f"<tr>{word}<td>{escape(one.kind)}</td><td>{where}</td><td>{seen}</td></tr>")
    head = "<tr><th>outcome</th><th>expectation</th><th>column</th><th>observed</th></tr>"
    return f"<table>{head}{''.join(rows)}</table>"
