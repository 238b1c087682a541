"""What an evaluation measures, for both kinds of task: figures of a scorer, paired differences, slices. Values only."""

from __future__ import annotations

import json
import math
from itertools import pairwise
from typing import TypeAlias

from pydantic import BaseModel, Field, TypeAdapter, model_validator

from artifacts.refs import Digest
from feature_repo import contract as features

Task: TypeAlias = features.Task

EVALUATION_FILE, PAGE_FILE = "evaluation.json", "evaluation.html"
NO_VALUE = "(none)"  # the slice of rows whose column is null


class Scores(BaseModel, frozen=True, extra="forbid"):
    """How well some probabilities fit the labels of a window."""

    log_loss: float
    auc: float
    pr_auc: float = Field(description="Average precision; a scorer without order has the share of positives.")
    brier: float
    ece: float = Field(description="Expected calibration error over 10 equal-mass bins.")

    @property
    def deciding(self) -> float:
        """The proper score that decides: log loss, less is better."""
        return self.log_loss

    @property
    def guard(self) -> float:
        """The score that guards: AUC, more is better."""
        return self.auc


class Errors(BaseModel, frozen=True, extra="forbid"):
    """How far a regression's answers lie from the labels of a window, in the label's unit (R2 has none)."""

    mae: float
    rmse: float
    r2: float
    bias: float = Field(description="Mean answer less mean label.")

    @property
    def deciding(self) -> float:
        """The score that decides: mean absolute error, less is better."""
        return self.mae

    @property
    def guard(self) -> float:
        """The score that guards: root mean squared error, less is better."""
        return self.rmse


Measured: TypeAlias = Scores | Errors


class Metric(BaseModel, frozen=True, extra="forbid"):
    """One figure of ``Scores`` or ``Errors``: its field, its name in words and which way is better."""

    field: str
    title: str
    rises: bool = Field(description="Whether a larger figure is better.")

    def gain(self, candidate: float, other: float) -> float:
        """The difference, positive when the candidate is better."""
        return candidate - other if self.rises else other - candidate


DECIDING: dict[Task, Metric] = {
    "classification": Metric(field="log_loss", title="log loss", rises=False),
    "regression": Metric(field="mae", title="MAE", rises=False),
}
GUARD: dict[Task, Metric] = {
    "classification": Metric(field="auc", title="AUC", rises=True),
    "regression": Metric(field="rmse", title="RMSE", rises=False),
}
YARDSTICK: dict[Task, Metric] = {"classification": GUARD["classification"], "regression": DECIDING["regression"]}
"""In which figure the candidate is held against gradient boosting (decisions.md 5, G3)."""


class Gain(BaseModel, frozen=True, extra="forbid"):
    """A paired difference, positive when the candidate is better, with a 95 % interval."""

    mean: float
    lower: float
    upper: float
    standard_error: float

    def p_below(self, limit: float) -> float:
        """One-sided p-value against "the true gain is ``limit`` or more", normal; NaN where a figure is no number."""
        distance = self.mean - limit
        if self.standard_error == 0:
            return math.nan if math.isnan(distance) else float(distance >= 0)
        return 0.5 * math.erfc(-distance / self.standard_error / math.sqrt(2))

    @property
    def p_value(self) -> float:
        """Two-sided p-value against "there is no difference", normal."""
        return 2 * min(self.p_below(0.0), 1 - self.p_below(0.0)) if self.standard_error else float(self.mean == 0)

    @property
    def finite(self) -> bool:
        """Whether every figure is a finite number."""
        return all(math.isfinite(value) for value in (self.mean, self.lower, self.upper, self.standard_error))


class Dimension(BaseModel, frozen=True, extra="forbid"):
    """A column by which a window is cut into slices: by its values, or, with ``edges``, into half-open buckets."""

    column: str
    edges: tuple[float, ...] = ()
    group: bool = Field(default=False, description="Whether gaps in bias between its slices count in G6.")

    @model_validator(mode="after")
    def _rising(self) -> Dimension:
        if any(low >= high for low, high in pairwise(self.edges)):
            raise ValueError(f"edges={self.edges} of '{self.column}' do not rise")
        return self

    def buckets(self) -> tuple[str, ...]:
        """The names of the buckets, lowest first."""
        bounds = ("", *(f"{edge:g}" for edge in self.edges), "")
        named = [f"{low} to {high}" for low, high in pairwise(bounds)]
        return (f"below {bounds[1]}", *named[1:-1], f"{bounds[-2]} and above")


class Slice(BaseModel, frozen=True, extra="forbid"):
    """One slice of the window. Its gains are means over its own rows with normal intervals, in the deciding figure."""

    dimension: str
    value: str
    group: bool = False
    rows: int = Field(gt=0)
    positives: int = Field(ge=0, description="0 in a regression.")
    label_mean: float = Field(description="Share of positives, or a regression's mean label.")
    deciding: float
    guard: float | None = Field(description="None where a slice has one class only, so that AUC says nothing.")
    bias: float = Field(description="Mean answer less mean label.")
    bias_error: float | None = Field(description="Standard error of the bias; None for a single row.")
    gain_over_base: Gain | None = Field(description="Against the constant answer; None for a single row.")
    gain: Gain | None = Field(description="Against the champion; None without one, or for a single row.")
    known: bool | None = Field(
        description="Whether the champion's training rows had this value; None without a champion. The answer to a value "
        "it has never seen is no yardstick, so a new slice is judged against the constant answer instead."
    )

    @property
    def name(self) -> str:
        """How reasons and tables call it."""
        return f"{self.dimension}={self.value}"


class Look(BaseModel, frozen=True, extra="forbid"):
    """One earlier judgement on a test window, as the ledger has it."""

    training_key: Digest
    dataset: Digest
    recipe: Digest | None = Field(description="The recipe without its seed; None in entries that do not say.")
    passed: bool


def slices_in(content: str | bytes) -> tuple[Slice, ...]:
    """The slices that the text of an ``evaluation.json`` holds."""
    return TypeAdapter(tuple[Slice, ...]).validate_python(json.loads(content)["slices"])
