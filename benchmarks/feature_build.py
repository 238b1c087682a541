"""A build of all views for the whole of 2013, and of one more day, from an empty folder; the start of a session apart.

Each build is a step of its own process, as the DAG runs it, so the seconds hold imports, the session and the writing.
Writes docs/features.json, from which `make docs` takes the rows and null shares of docs/features.md.
"""

from __future__ import annotations

import datetime as dt
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from artifacts.refs import file_uri
from artifacts.settings import ROOT
from benchmarks.report import report
from feature_repo import tables
from feature_repo.catalogue import VIEWS
from feature_repo.catalogue_page import SOURCE, Measured, MeasuredView
from feature_repo.contract import BuildSpec, IngestSpec, ViewsRef
from feature_repo.ingest import ingest
from feature_repo.snapshot import build_snapshot, views_snapshot
from operators.pipelines import FLIGHTS

CALENDAR = FLIGHTS.calendar
SESSION = "from feature_repo import spark\nwith spark.session('nothing') as s: s.range(1).count()"


def build(root: Path, start: dt.datetime, end: dt.datetime) -> tuple[float, ViewsRef]:
    """Seconds and result of one build step, run as the door runs it."""
    lake, views = file_uri(root / "lake"), file_uri(root / "views")
    snapshot = build_snapshot(CALENDAR, lake, start, end)
    spec = BuildSpec(calendar=CALENDAR, lake=lake, snapshot=snapshot, views=views, start=start, end=end)
    asked, result = root / "spec.json", root / "result.json"
    asked.write_text(spec.model_dump_json())
    seconds = timed("-m", "feature_repo.build", file_uri(asked), file_uri(result))
    return seconds, ViewsRef.model_validate_json(result.read_bytes())


def timed(*arguments: str) -> float:
    """Seconds of one Python process."""
    begun = time.perf_counter()
    subprocess.run(  # noqa: S603  our own modules
        [sys.executable, *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=True,
        stderr=subprocess.DEVNULL,
    )
    return time.perf_counter() - begun


def measured(root: Path, digest: str) -> Measured:
    """What the views of the year hold."""
    days = tables.day_range(CALENDAR.first, CALENDAR.last or CALENDAR.first)
    loaded = tables.load_views(tables.read_days(file_uri(root / "views"), days, "feature_repo.build"))
    return Measured(
        first=days[0], last=days[-1], digest=digest, views={view: measured_view(view, loaded[view]) for view in VIEWS}
    )


def measured_view(view: str, table: pa.Table) -> MeasuredView:
    """Rows, entities, hours between rows, and nulls of one view."""
    keys = list(VIEWS[view].keys)
    frame = table.select([*keys, "event_time"]).to_pandas().sort_values([*keys, "event_time"])
    gaps = frame.groupby(keys, sort=False)["event_time"].diff().dropna() / dt.timedelta(hours=1)
    return MeasuredView(
        rows=table.num_rows,
        entities=len(frame[keys].drop_duplicates()),
        median_hours=float(gaps.median()),
        nulls={feature.name: pc.sum(pc.is_null(table[feature.name])).as_py() for feature in VIEWS[view].features},
    )


def main() -> None:
    """Builds the year, then its last day once more as the hourly run would build a day that is not there yet."""
    first, last = CALENDAR.first, CALENDAR.last or CALENDAR.first
    begins, ends = CALENDAR.starts(first), CALENDAR.ends(last)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        ingest(
            IngestSpec(source=FLIGHTS.source, calendar=CALENDAR, lake=file_uri(root / "lake"), first=first, last=last)
        )
        seconds_session = timed("-c", SESSION)
        seconds_full_year, whole = build(root, begins, ends)
        found = measured(root, whole.digest)
        (root / "views" / last.isoformat() / "manifest.json").unlink()
        seconds_one_day, _ = build(root, CALENDAR.starts(last), ends)
        if views_snapshot(file_uri(root / "views"), first, last) != whole.digest:
            raise ValueError(
                f"{last}: built on its own it has other bytes than in the year; look at feature_repo/views/rolling.py"
            )
    (ROOT / SOURCE).write_text(found.model_dump_json(indent=1) + "\n")
    report(
        "feature_build",
        {
            "seconds_full_year": seconds_full_year,
            "seconds_one_day": seconds_one_day,
            "seconds_session": seconds_session,
            "rows": float(sum(whole.rows.values())),
        },
        {"seconds_full_year": "< 240", "seconds_one_day": "< 40, seconds_session included"},
    )


if __name__ == "__main__":
    main()
