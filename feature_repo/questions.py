"""What a training set of each kind of question holds: its columns, the views that its keys reach, its label. No Spark.

The training set, its expectations and the replay follow from a layout; which rows there are and what their labels say is in
feature_repo/labelled.py (Spark, of the past as a whole) and serving/asked.py (day by day, for the replay).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from artifacts.step import DataFault
from feature_repo.catalogue import ENTITY_KEYS, FEATURES, VIEWS, feature_column
from feature_repo.contract import CheckPolicy, FlightOutcome, NextObservation, Question, Task
from feature_repo.tables import INSTANT, RAW_SCHEMAS
from feature_repo.views import flight, station

Derive = Callable[[Mapping[str, np.ndarray[Any, Any]]], dict[str, np.ndarray[Any, Any]]]

LABELS: Mapping[Task, pa.DataType] = {"classification": pa.int8(), "regression": pa.float64()}


@dataclass(frozen=True)
class Layout:
    """One kind of training set. ``request`` are the columns that are asked with, ``derived`` what ``derive`` makes of them.

    ``dated_by`` is the instant whose service day is the row's; ``in_order`` is a Spark SQL condition that holds in every row;
    ``words`` and ``ranges`` are the values that derived columns can take; ``reading`` is the weather reading whose range a
    label has, None for a label of 0 and 1; ``fresh`` is how long before a day's end its newest row may lie.
    """

    task: Task
    request: Mapping[str, pa.DataType]
    derived: Mapping[str, pa.DataType]
    derive: Derive
    dated_by: str
    in_order: str
    fresh: dt.timedelta
    words: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    reading: str | None = None

    @property
    def views(self) -> tuple[str, ...]:
        """The views whose entity a request names."""
        return tuple(view for view in VIEWS if set(ENTITY_KEYS[view]) <= set(self.request))

    @property
    def features(self) -> tuple[str, ...]:
        """The view features, as columns of the set."""
        return tuple(feature_column(view, name) for view in self.views for name in FEATURES[view])

    @property
    def identity(self) -> dict[str, pa.DataType]:
        """The columns that every set begins with."""
        label = LABELS[self.task]
        return {"row_id": pa.string(), "day": pa.date32(), "at": INSTANT, "label": label, "label_time": INSTANT}

    @property
    def instants(self) -> tuple[str, ...]:
        """The columns of the request that are instants."""
        return tuple(name for name, kind in self.request.items() if kind == INSTANT)

    @property
    def schema(self) -> pa.Schema:
        """The columns of ``rows.parquet``, in their order."""
        features = dict.fromkeys(self.features, pa.float64())
        return pa.schema({**self.identity, **self.request, **self.derived, **features})


def layout(question: Question, policy: CheckPolicy) -> Layout:
    """The layout of a question's training sets; the policy gives the times that its rows must keep.

    Raises DataFault for a reading that the weather does not have.
    """
    if isinstance(question, FlightOutcome):
        return _flights(policy)
    return _observations(question, policy)


def _flights(policy: CheckPolicy) -> Layout:
    schema = RAW_SCHEMAS["schedule"]
    return Layout(
        task=FlightOutcome.task,
        request={name: schema.field(name).type for name in flight.REQUEST},
        derived={
            **dict.fromkeys(flight.NUMERIC, pa.float64()),
            **dict.fromkeys(flight.CATEGORICAL, pa.string()),
        },
        derive=flight.derive,
        dated_by="scheduled_departure",
        in_order=f"at = scheduled_departure - INTERVAL {int(policy.lead.total_seconds())} SECONDS "
        "AND scheduled_arrival > scheduled_departure AND label_time > at",
        fresh=policy.flights_fresh,
        words={"flight__weekday": tuple(str(day) for day in range(7))},
        ranges={"flight__hour": (0, 24)},
    )


def _observations(question: NextObservation, policy: CheckPolicy) -> Layout:
    readings = [entry.name for entry in RAW_SCHEMAS["weather"] if entry.type == pa.float64()]
    if question.value not in readings:
        raise DataFault([f"question.value: '{question.value}' is no reading of the weather; it has {readings}"])
    return Layout(
        task=question.task,
        request={"origin": pa.string(), "hour": INSTANT},
        derived=dict.fromkeys(station.CATEGORICAL, pa.string()),
        derive=station.derive,
        dated_by="at",
        in_order=f"at = hour - INTERVAL {int(question.notice.total_seconds())} SECONDS AND label_time >= hour",
        fresh=policy.weather_fresh,
        words={"station__hour": station.HOURS},
        reading=question.value,
    )
