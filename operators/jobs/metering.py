"""What a job has used: unit-seconds per pod or process, keyed by its uid, with the tags that a bill needs. Pure."""

from __future__ import annotations

import csv
import datetime as dt
import io
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Literal

from pydantic import AwareDatetime, BaseModel, Field

from operators.jobs.codes import billable
from operators.jobs.contract import TorchJob

RunType = Literal["scheduled", "manual", "drift", "backfill"]
USAGE, METER = "usage", "meter"


class Meter(BaseModel, frozen=True, extra="forbid"):
    """A pod or process that began to run; ``started`` is its container's, so waiting in a queue costs nothing."""

    uid: str = Field(min_length=1)
    job: str
    tenant: str
    model: str
    owner: str
    run_type: RunType
    unit: Literal["gpu", "core"]
    units: int = Field(gt=0)
    started: AwareDatetime


class Usage(Meter, frozen=True):
    """A meter that was read at its end. ``at`` is the data clock's time, ``code`` empty when the job ended well.

    ``seconds`` were measured where a monotonic clock saw both ends, and are ``ended - started`` elsewhere.
    """

    at: AwareDatetime
    ended: AwareDatetime
    seconds: float = Field(ge=0)
    code: str = ""
    closed_by: Literal["runner", "reaper"] = "runner"

    @property
    def unit_seconds(self) -> float:
        """What is billed, or would be."""
        return self.units * self.seconds

    @property
    def billable(self) -> bool:
        """The platform's own failures are metered and not billed."""
        return billable(self.code)

    @property
    def outcome(self) -> str:
        """``completed``, or the code of its end."""
        return self.code or "completed"


def meter(job: TorchJob, name: str, uid: str, started: dt.datetime, run_type: RunType) -> Meter:
    """The meter of one pod of a job, or of its process on this machine."""
    return Meter(
        uid=uid,
        job=name,
        tenant=job.tenant,
        model=job.model,
        owner=job.owner,
        run_type=run_type,
        unit=job.unit,
        units=job.units_per_node,
        started=started,
    )


def run_type(words: Mapping[str, str]) -> RunType:
    """Why a run is: a backfill has its own DAG; what an asset's event woke was asked for by drift; the rest says it itself."""
    run = words.get("run", "")
    if words.get("dag", "").startswith("backfill__") or run.startswith("backfill__"):
        return "backfill"
    if run.startswith("asset_triggered__"):
        return "drift"
    return "scheduled" if run.startswith("scheduled__") else "manual"


def month(usages: Iterable[Usage], year: int, number: int) -> tuple[Usage, ...]:
    """What ended within one month of the data clock, UTC, oldest first."""
    found = (one for one in usages if (one.at.year, one.at.month) == (year, number))
    return tuple(sorted(found, key=lambda one: (one.at, one.uid)))


STATEMENT = ("tenant", "model", "run_type", "outcome", "unit", "pods", "unit_hours", "billed_hours")


def statement(usages: Iterable[Usage]) -> str:
    """Usage as CSV, a line per tenant, model, run type, outcome and unit, and a total per tenant and unit."""
    lines: dict[tuple[str, ...], list[Usage]] = defaultdict(list)
    for one in usages:
        lines[one.tenant, one.model, one.run_type, one.outcome, one.unit].append(one)
        lines[one.tenant, "(all)", "", "", one.unit].append(one)
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(STATEMENT)
    for key in sorted(lines):
        all_hours = sum(one.unit_seconds for one in lines[key]) / 3600
        billed = sum(one.unit_seconds for one in lines[key] if one.billable) / 3600
        writer.writerow([*key, len(lines[key]), f"{all_hours:.4f}", f"{billed:.4f}"])
    return out.getvalue()
