"""The live state of this deployment: its records, its data clock, and the routing of each model."""

from __future__ import annotations

import datetime as dt
import functools

from artifacts.clock import DataClock
from artifacts.records import Records, check_schema, connect
from operators.plans.features import Built
from operators.settings import platform
from serving.contract import Routing


@functools.cache
def records() -> Records:
    """The records of this deployment; raises SchemaMismatch when nobody has migrated their database."""
    engine = connect(platform().database)
    check_schema(engine)
    return Records(engine)


def now() -> dt.datetime:
    """The data clock's time."""
    return DataClock(platform().clock, records()).now()


def routing(model: str) -> tuple[Routing, int]:
    """Who answers a model's endpoint, and the version of the record that says so."""
    record = records().get(Routing.record(model))
    return (Routing.model_validate(record.value) if record.version else Routing(model=model)), record.version


def built(progress_record: str) -> tuple[Built, int]:
    """How far a feature repo has come, and the version of the record that says so."""
    record = records().get(progress_record)
    return Built.model_validate(record.value), record.version
