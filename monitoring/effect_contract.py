"""What the replay of an old champion takes and gives. Values only."""

from __future__ import annotations

import datetime as dt

from pydantic import BaseModel, Field, model_validator

from artifacts.refs import Digest, Ref, Uri
from monitoring.contract import DriftPolicy
from serving.contract import FeedbackRef, PackageRef, PredictionsRef
from training.measures import Task


class EffectSpec(BaseModel, frozen=True, extra="forbid"):
    """Lets the old champion answer the requests that a drift retrain's version has answered."""

    model: str
    old: PackageRef
    new: Digest = Field(description="Package digest of the version that the retrain has put in front.")
    predictions: tuple[PredictionsRef, ...] = Field(
        min_length=1, description="The closed partitions between promotion and audit, oldest first."
    )
    feedback: tuple[FeedbackRef, ...] = ()
    policy: DriftPolicy
    seed: int
    output: Uri

    @model_validator(mode="after")
    def _one_model(self) -> EffectSpec:
        models = (self.old.model, *(ref.model for ref in self.predictions), *(ref.model for ref in self.feedback))
        others = set(models) - {self.model}
        if others:
            raise ValueError(f"predictions, feedback or old belong to {sorted(others)}, not to model '{self.model}'")
        return self


class EffectRef(Ref, frozen=True):
    """``effect.json``: both versions on the same labelled requests, which neither has seen in training."""

    model: str
    new: Digest
    first: dt.date
    last: dt.date
    requests: int = Field(description="Answered by the new version.")
    labelled: int = Field(description="Those of them whose label is known, on days that are labelled whole.")
    days: int = Field(description="Days that these come from.")
    task: Task = "classification"
    loss_old: float | None = Field(
        description="The deciding one: log loss, or a regression's MAE. None without labels."
    )
    loss_new: float | None
    gain_lower: float | None = Field(description="Lower 95 % bound of old - new, days resampled; None below two days.")
