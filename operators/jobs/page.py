"""A job told to people: the wide table of all jobs, and one job's page with every variable's reason. Pure."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from html import escape

from artifacts.refs import short
from operators.jobs import hardware
from operators.jobs.history import Job
from operators.jobs.keeper import STALL_SECONDS
from operators.jobs.metering import Meter, Usage
from operators.torch_job import RENDEZVOUS_SECONDS

COLUMNS = ("job", "state", "GPUs", "utilisation", "duration", "data version", "model SHA-256", "cost")
READY_SECONDS = 900
NONE = "-"


def table(
    jobs: Sequence[Job], usages: Iterable[Usage], running: Iterable[Meter], busy: Mapping[str, float], now: dt.datetime
) -> list[str]:
    """One line per job, with a head. ``busy`` is each job's share of what it held; cost is in hours of its unit."""
    read, open_ = list(usages), list(running)
    rows = [COLUMNS, *(_row(job, read, open_, busy.get(job.name), now) for job in jobs)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(COLUMNS))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _row(
    job: Job, usages: Sequence[Usage], running: Sequence[Meter], busy: float | None, now: dt.datetime
) -> tuple[str, ...]:
    ours = [one for one in usages if one.job == job.name]
    still = [one for one in running if one.job == job.name]
    spent = sum(one.unit_seconds for one in ours) + sum(
        one.units * max(0.0, (now - one.started).total_seconds()) for one in still
    )
    begun = [one.started for one in (*ours, *still)]
    ended = now if still or not ours else max(one.ended for one in ours)
    unbilled = " (not billed)" if ours and not any(one.billable for one in ours) else ""
    made = next((step.made for step in reversed(job.steps) if step.made), "")
    data = str(job.lineage.get("dataset", ""))
    return (
        job.name,
        job.state + (f" {job.code}" if job.code else ""),
        str(job.declared.gpus),
        f"{busy:.0%}" if busy is not None else NONE,
        _duration((ended - min(begun)).total_seconds()) if begun else NONE,
        short(data) if data else NONE,
        made.removeprefix("sha256:") or NONE,
        f"{spent / 3600:.4f} {job.declared.unit}-h{unbilled}" if begun else NONE,
    )


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}"


def bounds(job: Job) -> dict[str, str]:
    """How long each thing may take, and how long a rank that never comes holds the others at most."""
    restarts = job.declared.max_restarts
    return {
        "all pods run": f"{READY_SECONDS} s",
        "all agents meet": f"{RENDEZVOUS_SECONDS} s",
        "NCCL heartbeat": f"{hardware.HEARTBEAT_SECONDS} s",
        "no progress": f"{STALL_SECONDS:.0f} s, whatever the ranks say",
        "restarts": f"{restarts} inside an attempt",
        "a rank that hangs costs at most": f"{STALL_SECONDS:.0f} s of the whole job",
        "deadline": f"{job.declared.deadline.total_seconds() / 3600:g} h",
    }


def sections(job: Job) -> dict[str, list[tuple[str, str, str]]]:
    """The page's tables: what, value, why or when."""
    said = job.declared.model_dump(mode="json", exclude={"environment", "options"}, exclude_defaults=True)
    place: hardware.Place = "local" if job.declared.nodes == 1 and not job.declared.gpus else "pod"
    own = [(name, value, "set by the job") for name, value in job.declared.environment.items()]
    return {
        "Declared": [(name, str(value), "") for name, value in said.items()],
        "Fit options": [(name, str(value), "") for name, value in job.declared.options.items()],
        "Environment": [*((one.name, one.value, one.reason) for one in hardware.profile(job.declared, place)), *own],
        "Bounds": [(name, value, "") for name, value in bounds(job).items()],
        "From": [(name, str(value), "") for name, value in job.lineage.items()],
        "History": [
            (
                f"{step.at:%Y-%m-%dT%H:%M:%S}.{step.at.microsecond // 1000:03}Z",
                step.state,
                f"{step.code} {step.reason}".strip(),
            )
            for step in job.steps
        ],
    }


def text(job: Job) -> list[str]:
    """The page for a terminal."""
    lines = [f"{job.name}  {job.state}  {job.key}"]
    for title, rows in sections(job).items():
        if rows:
            lines += [title, *(f"  {name:<34}{value}{'  (' + why + ')' if why else ''}" for name, value, why in rows)]
    return lines


def html(job: Job) -> str:
    """The page as HTML that loads nothing from elsewhere."""
    parts = []
    for title, rows in sections(job).items():
        cells = "".join(
            f"<tr><th>{escape(name)}</th><td><code>{escape(value)}</code></td><td>{escape(why)}</td></tr>"
            for name, value, why in rows
        )
        parts.append(f"<h2>{title}</h2><table>{cells}</table>" if rows else "")
    style = "body{font:15px system-ui;max-width:1100px;margin:2rem auto}td,th{text-align:left;padding:.3rem .8rem;border-bottom:1px solid #ddd}"
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(job.name)}</title><style>{style}</style></head>'
        f"<body><h1>{escape(job.name)}</h1><p>{job.state}</p>{''.join(parts)}</body></html>\n"
    )
