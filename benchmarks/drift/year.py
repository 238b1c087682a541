"""The training set of the whole of 2013, made by the real steps; made once per folder, then reused.

Each row holds its features as known two hours before departure and its label with the time it became known, so any day's
training set is a filter of this one.
"""

from __future__ import annotations

import datetime as dt
from pathlib import Path

from artifacts.refs import file_uri, join
from feature_repo.build import build
from feature_repo.contract import DatasetRef
from feature_repo.ingest import ingest
from feature_repo.training_set import training_set
from operators.pipelines import FLIGHTS, pipeline
from operators.plans import features as plans
from operators.plans.retrain import Ask
from operators.plans.retrain import training_set as training_set_spec

MODEL = "flight_delay"
LAST = dt.date(2013, 12, 31)


def year(folder: Path) -> DatasetRef:
    """The set through the last day whose labels are known; takes minutes of Spark the first time."""
    store, row = file_uri(folder.absolute()), pipeline(MODEL)
    calendar = row.calendar
    asked = plans.Hours(start=calendar.starts(calendar.first), end=calendar.as_of(LAST), now=calendar.as_of(LAST))
    spec_path, ref_path = folder / "year.spec.json", folder / "year.json"
    if not ref_path.exists():
        ingest(plans.ingest(FLIGHTS, store, asked))
        build(plans.build(FLIGHTS, store, asked))
        ask = Ask(model=MODEL, partition=LAST, trigger="manual", reason="benchmark")
        spec = training_set_spec(row, store, ask, join(store, "year"))
        spec_path.write_text(spec.model_dump_json())
        ref_path.write_text(training_set(spec).model_dump_json())
    return DatasetRef.model_validate_json(ref_path.read_text())
