"""What the feature side takes and gives: the specs of its steps and the references that they return. Values only."""

from __future__ import annotations

import datetime as dt
from typing import Annotated, ClassVar, Literal, TypeAlias

from pydantic import AwareDatetime, BaseModel, Field, model_validator

from artifacts.clock import Calendar
from artifacts.refs import Digest, OnlineStore, Ref, Uri, key_digest

NOTICE = dt.timedelta(hours=2)
"""A prediction is asked for this long before the scheduled departure."""
LATE_DAYS = 2
"""Days in which late facts still change hours that are built."""
RAW_TABLES = ("schedule", "departure", "arrival", "weather")

# --- questions: which rows ask, when, and what their label is -----------------------------------------------------

Task: TypeAlias = Literal["classification", "regression"]
"""What a label is: 0 or 1 (int8 in Parquet), or any finite number (float64)."""


class FlightOutcome(BaseModel, frozen=True, extra="forbid"):
    """One row per scheduled flight, asked the spec's notice before it leaves; label 1: late, cancelled or diverted."""

    kind: Literal["flight_outcome"] = "flight_outcome"
    task: ClassVar[Task] = "classification"
    known_share: ClassVar[float] = 0.99


class NextObservation(BaseModel, frozen=True, extra="forbid"):
    """One row per weather station and hour, asked ``notice`` before the hour; label: what is observed then."""

    kind: Literal["next_observation"] = "next_observation"
    value: str = Field(description="Column of the raw weather table, such as temp; its unit is the label's.")
    notice: dt.timedelta = Field(
        default=dt.timedelta(minutes=30),
        gt=dt.timedelta(0),
        description="T lies this long before the hour; the hour before it has been reported by then, after 20 minutes.",
    )
    task: ClassVar[Task] = "regression"
    known_share: ClassVar[float] = 0.75
    """Stations fall silent: of the 72 rows of a day in 2013 at least 57 have a label."""


Question: TypeAlias = Annotated[FlightOutcome | NextObservation, Field(discriminator="kind")]
FLIGHT_OUTCOME = FlightOutcome()


def _of_flights(question: Question) -> bool:
    return question == FLIGHT_OUTCOME


# --- the raw lake: one artifact per service day below `lake`, one Parquet file per table --------------------------


class IngestSpec(BaseModel, frozen=True, extra="forbid"):
    """Brings the raw facts of a range of service days into the lake; days that are there already are left alone."""

    source: str = Field(description="Name of a module in feature_repo/sources.")
    calendar: Calendar
    lake: Uri
    first: dt.date
    last: dt.date
    built_to: AwareDatetime | None = Field(
        default=None, description="Hours up to here are built; a record that was known by then and lands now is late."
    )
    closed_to: AwareDatetime | None = Field(
        default=None,
        description="A day that ends after this instant is still running and may be empty; none may without it.",
    )
    late_days: int = Field(default=LATE_DAYS, ge=0, description="The build's ``late_days``.")

    @model_validator(mode="after")
    def _ordered(self) -> IngestSpec:
        if self.last < self.first:
            raise ValueError(f"last={self.last} lies before first={self.first}")
        return self


class LakeRef(BaseModel, frozen=True, extra="forbid"):
    """The state of the lake after an ingest."""

    lake: Uri
    first: dt.date
    last: dt.date
    days: int = Field(ge=0)
    written: int = Field(ge=0, description="Days that this ingest added or restated.")
    rows: dict[str, int]
    late: dict[str, int] = Field(
        default={},
        description="Day -> rows that landed after hours in which they count were built; builds take them in.",
    )
    too_late: dict[str, int] = Field(
        default={},
        description="Day -> rows that came more than ``late_days`` late: hours built earlier lack those that landed so, until "
        "they are built by hand; no view counts those that became known so.",
    )
    digest: Digest = Field(description="Digest over the days' names and digests: the source snapshot.")


# --- expectations ---------------------------------------------------------------------------------------------------


class CheckPolicy(BaseModel, frozen=True, extra="forbid"):
    """Thresholds of the suites; the ranges of single columns are facts of the domain and stand in the suites."""

    flights_per_day: int = Field(
        default=200, gt=0, description="Least flights of a service day; the least of 2013 has 634."
    )
    weather_rows: int = Field(default=24, gt=0, description="Least weather rows of a day, a third of the usual 72.")
    view_rows: int = Field(default=24, gt=0, description="Least rows of a view's day; the least of 2013 has 67.")
    volume_history: int = Field(
        default=3, gt=0, description="Same weekdays that the volume check needs (decisions G1)."
    )
    volume_low: float = Field(default=0.5, gt=0, description="Least rows, as a multiple of the past days' median.")
    volume_high: float = Field(default=2.0, gt=0, description="Most rows, as a multiple of the past days' median.")
    volume_grace: dt.timedelta = Field(
        default=dt.timedelta(weeks=8), description="From the first day on, so long may the history be too short (G1)."
    )
    departed_share: float = Field(default=0.95, gt=0, le=1, description="Least departure rows per scheduled flight.")
    arrived_share: float = Field(default=0.9, gt=0, le=1, description="Least arrival rows per flight not cancelled.")
    flights_fresh: dt.timedelta = Field(
        default=dt.timedelta(hours=8),
        description="The newest flight lies at most this long before its day's end; 5 h in 2013, since few fly at night.",
    )
    weather_fresh: dt.timedelta = Field(
        default=dt.timedelta(hours=12), description="The same for weather; stations fell silent for up to 10 h in 2013."
    )
    views_fresh: dt.timedelta = Field(
        default=dt.timedelta(hours=3),
        description="The same for a view's day; 2 h on the calendar's first day, else 1 h.",
    )
    set_fresh: dt.timedelta = Field(
        default=dt.timedelta(days=2),
        description="The newest day of a training set lies at most this long before the partition: the horizon and a day.",
    )
    training_rows: int = Field(default=1000, gt=0, description="Least rows of a training set.")
    lead: dt.timedelta = Field(default=NOTICE, description="Prediction instant before the departure.")
    known_share: float = Field(default=0.95, gt=0, le=1, description="Least non-null share of a 7-day feature.")
    seen_share: float = Field(default=0.05, gt=0, le=1, description="Least non-null share of any other feature.")
    leak_rows: int = Field(
        default=500, gt=0, description="Least rows of a group whose labels are judged (decisions 3.6)."
    )
    leak_bins: int = Field(default=20, gt=1, description="Quantile bins per numeric feature.")
    leak_auc: float = Field(default=0.98, gt=0.5, le=1, description="Most AUC of one feature alone (decisions 3.6).")
    leak_rank: float = Field(
        default=0.999,
        gt=0,
        le=1,
        description="Most rank correlation of one feature alone with a regression's label; temperature now and in an hour have "
        "0.9955, a copy of the label in another unit has 1.",
    )
    detailed: int = Field(
        default=25,
        ge=0,
        description="Failed expectations of a table that are asked again for counts and rows; two scans each.",
    )
    bad_rows: int = Field(
        default=1000, gt=0, description="Most rows that a report keeps as examples, of all checks together."
    )
    sampled_above: int = Field(
        default=5_000_000,
        gt=0,
        description="In a table of more rows, ranges and conditions look at a fixed sample of about so many; keys, nulls "
        "and counts always look at all.",
    )
    budget: dt.timedelta = Field(
        default=dt.timedelta(minutes=10), description="Time for the checks; those not done by then count as not run."
    )


class Target(Ref, frozen=True):
    """One artifact to check: a raw day, a day of the views, or a training set."""

    partition: dt.date
    history: dict[str, tuple[int, ...]] = Field(
        default={}, description="Table -> its rows on the last 8 same weekdays, declared exceptions left out."
    )


class ValidateSpec(BaseModel, frozen=True, extra="forbid"):
    """Checks one artifact, or the days of a range together, against a suite (a module of feature_repo/expectations)."""

    suite: str
    calendar: Calendar
    targets: tuple[Target, ...] = Field(min_length=1)
    question: Question = Field(default=FLIGHT_OUTCOME, description="Of a training set: which rows it must hold.")
    policy: CheckPolicy = CheckPolicy()
    output: Uri

    @model_validator(mode="after")
    def _in_order(self) -> ValidateSpec:
        days = [target.partition for target in self.targets]
        if days != sorted(set(days)):
            raise ValueError("targets: the partitions must ascend, each once")
        return self

    @property
    def target(self) -> Digest:
        """What was checked: the artifact's digest, or that of a range (the same as its snapshot)."""
        if len(self.targets) == 1:
            return self.targets[0].digest
        return key_digest({target.partition.isoformat(): target.digest for target in self.targets})


class ValidationRef(Ref, frozen=True):
    """Expectations that held. The artifact holds summary.html, Data Docs (index.html), results.json and bad_rows.csv."""

    suite: str
    target: Digest
    first: dt.date
    last: dt.date
    expectations: int = Field(gt=0)
    warnings: tuple[str, ...] = ()


# --- views: one artifact per service day below `views`, one Parquet file per view ---------------------------------


class BuildSpec(BaseModel, frozen=True, extra="forbid"):
    """Builds the rows of the hours that end in (start, end], from facts available by each hour's end."""

    calendar: Calendar
    lake: Uri
    snapshot: Digest = Field(description="The lake's digest that this build is for.")
    views: Uri
    start: AwareDatetime
    end: AwareDatetime
    late_minutes: int = Field(default=15, gt=0, description="A flight this late, or later, counts as late.")
    late_days: int = Field(
        default=LATE_DAYS,
        ge=0,
        description="Days after its service day in which a fact may become known or be restated, and after it became known "
        "in which it may reach the lake.",
    )

    @model_validator(mode="after")
    def _whole_hours(self) -> BuildSpec:
        for name, value in (("start", self.start), ("end", self.end)):
            if value.minute or value.second or value.microsecond:
                raise ValueError(f"{name}={value} is no whole hour")
        if self.end <= self.start:
            raise ValueError(f"end={self.end} does not lie after start={self.start}")
        return self


class ViewsRef(BaseModel, frozen=True, extra="forbid"):
    """The state of the views after a build."""

    views: Uri
    start: AwareDatetime
    end: AwareDatetime
    days: int
    rows: dict[str, int] = Field(description="Rows per view in the days that this build wrote.")
    late: dict[str, int] = Field(
        default={}, description="Day -> rows of hours built before ``start`` that late records changed."
    )
    digest: Digest


class MaterializeSpec(BaseModel, frozen=True, extra="forbid"):
    """Puts into the online store what became available in [start, end), and never an older event over a newer one."""

    calendar: Calendar
    views: Uri
    online: OnlineStore = Field(description="Folder of the embedded online store, or a redis:// URL.")
    start: AwareDatetime
    end: AwareDatetime
    lookback: dt.timedelta = Field(
        default=dt.timedelta(0), description="How far before ``start`` late records may have changed rows."
    )


class OnlineRef(BaseModel, frozen=True, extra="forbid"):
    """The online store after a materialisation."""

    online: OnlineStore
    start: AwareDatetime
    end: AwareDatetime
    rows: dict[str, int]
    alarms: tuple[str, ...] = Field(
        default=(), description="Views without a row in a window longer than a day; an hour without a row of any view."
    )


class OnlinePolicy(BaseModel, frozen=True, extra="forbid"):
    """How far the online store may differ from the views (decisions.md 3.9), view by view."""

    alarm_share: float = Field(default=0.001, ge=0, lt=1, description="A larger share of differing rows is an alarm.")
    fail_share: float = Field(default=0.01, ge=0, lt=1, description="A larger share of differing rows fails the run.")
    fail_rows: int = Field(
        default=2,
        gt=0,
        description="Fewer differing rows are an alarm, unless they are all there are: one of 3 airports is 33 %.",
    )
    relative: float = Field(default=1e-6, ge=0, description="Relative difference up to which numbers are equal.")
    entities: int = Field(default=1000, gt=0, description="Entities that are read back per view, at most.")


class CheckOnlineSpec(BaseModel, frozen=True, extra="forbid"):
    """Reads entities back from the online store and compares them with the views, as both are at ``end``."""

    calendar: Calendar
    views: Uri
    online: OnlineStore
    end: AwareDatetime = Field(
        description="Where the newest materialised window ends; it does not hold ``end`` itself."
    )
    policy: OnlinePolicy = OnlinePolicy()
    seed: int = Field(description="Of the sample; the views' own generator adds the view's name.")


class ComparedView(BaseModel, frozen=True, extra="forbid"):
    """One view read back: rows compared, rows that differ, and rows left out, which a later window has overwritten."""

    rows: int = Field(ge=0)
    differing: int = Field(ge=0)
    ahead: int = Field(default=0, ge=0)
    examples: tuple[str, ...] = ()

    @property
    def share(self) -> float:
        """The share of compared rows that differ."""
        return self.differing / self.rows if self.rows else 0.0


class OnlineCheckRef(BaseModel, frozen=True, extra="forbid"):
    """An online store that holds what the views say, up to the policy."""

    online: OnlineStore
    end: AwareDatetime
    views: dict[str, ComparedView]
    alarms: tuple[str, ...] = ()


# --- training sets --------------------------------------------------------------------------------------------------


class TrainingSetSpec(BaseModel, frozen=True, extra="forbid"):
    """Joins labels and features as they were known; its key is the dataset key (design 3.2)."""

    model: str
    question: Question = Field(
        default=FLIGHT_OUTCOME,
        exclude_if=_of_flights,
        description="Where rows and labels come from; left out of JSON for flights, so that sets made before it keep their keys.",
    )
    calendar: Calendar
    lake: Uri
    lake_snapshot: Digest
    views: Uri
    views_snapshot: Digest
    partition: dt.date
    as_of: AwareDatetime = Field(description="Knowledge cut-off: no fact that became available later is used.")
    first: dt.date = Field(description="First service day of the set.")
    label_horizon: dt.timedelta
    notice: dt.timedelta = Field(default=NOTICE, description="T lies this long before departure; flights only.")
    late_minutes: int = Field(default=15, gt=0, description="A flight this late, or later, has label 1.")
    known_share: float = Field(
        default=FlightOutcome.known_share,
        gt=0,
        le=1,
        description="Share of a day's rows whose outcome must be known, or the day is unfit.",
    )
    output: Uri


class DatasetRef(Ref, frozen=True):
    """One immutable training set: ``rows.parquet``, sorted by ``flight_id``-like unique row id ``row_id``.

    Columns: row_id, day (service day, date32), at (the instant T of the prediction, timestamp[us, UTC]), label (int8; a
    regression's float64), label_time (when the label became known), request columns, feature columns named ``<view>__<feature>``.
    """

    key: Digest
    model: str
    partition: dt.date
    as_of: AwareDatetime
    rows: int = Field(gt=0)
    positives: int = Field(ge=0, description="0 in a regression.")
    task: Task = "classification"
    first: dt.date
    last: dt.date
    columns: tuple[str, ...]
