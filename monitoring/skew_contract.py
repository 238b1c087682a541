"""What the comparison of served features with a later training set takes and gives. Values only."""

from __future__ import annotations

from pydantic import BaseModel, Field

from artifacts.refs import Ref, Uri
from feature_repo.contract import DatasetRef
from serving.contract import PackageRef, PredictionsRef


class SkewSpec(BaseModel, frozen=True, extra="forbid"):
    """Compares what was served with what a later training set says of the same requests."""

    model: str
    package: PackageRef
    predictions: tuple[PredictionsRef, ...] = Field(min_length=1)
    dataset: DatasetRef = Field(description="A training set whose ``row_id`` are the request ids.")
    relative: float = Field(default=1e-6, ge=0, description="Relative difference up to which numbers are equal.")
    output: Uri


class SkewRef(Ref, frozen=True):
    """Skew between serving and training: ``skew.json`` with the shares per feature and examples."""

    model: str
    rows: int = Field(description="Requests that both sides know.")
    unmatched: int = Field(description="Requests that the training set lacks.")
    mismatch_share: float = Field(description="Share of compared values that differ.")
    worst_feature: str | None
    worst_share: float
    views: dict[str, float] = Field(description="View -> share of its compared values that differ.")
    auc_served: float | None = Field(description="AUC of the logged scores; None without both labels.")
    auc_offline: float | None = Field(description="AUC of the same package on the training set's features.")
