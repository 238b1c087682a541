"""What a reference knows of each monitored feature: bins, counts, weight and the thresholds of its own blocks. Values only."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Literal

from pydantic import BaseModel, Field

from artifacts.refs import Digest

PREDICTION = "prediction"  # the name under which the model's score is watched
LABEL = "label"  # and the labels: the share of positive ones, or a regression's numbers


class Limits(BaseModel, frozen=True, extra="forbid"):
    """The ``block_quantile`` of the scores of all reference blocks of one length, each against the other days."""

    psi: float = Field(ge=0)
    nulls: float = Field(ge=0, description="Of the absolute difference in null share.")
    unseen: float = Field(ge=0, description="Of the share of rows whose category the other days lack.")
    constant: float = Field(ge=0, le=1, description="Share of blocks with a single value.")


class Usual(BaseModel, frozen=True, extra="forbid"):
    """What is usual of a feature on some days of the reference: counts per bin (the last is of nulls), mean and median."""

    counts: tuple[int, ...]
    mean: float | None
    median: float | None

    @property
    def null_share(self) -> float:
        """Share of the rows without a value."""
        return self.counts[-1] / sum(self.counts)


class Monitored(BaseModel, frozen=True, extra="forbid"):
    """One feature in the reference. Bins: below and between ``edges``, or ``categories``; the last count is of nulls."""

    name: str
    kind: Literal["numeric", "categorical"]
    weight: float = Field(ge=0, le=1)
    edges: tuple[float, ...] = ()
    categories: tuple[str, ...] = ()
    counts: tuple[int, ...]
    mean: float | None
    median: float | None
    common: float | str | None = Field(description="The most frequent value; None when there is none.")
    common_share: float = Field(ge=0, le=1, description="Its share of all rows.")
    limits: tuple[Limits, ...] = Field(min_length=1, description="For windows of 1, 2, ... days.")
    weekdays: tuple[Usual, ...] = Field(
        default=(),
        description="What is usual on each weekday, Monday first; empty where the weekday does not explain the days.",
    )

    def usual(self, partitions: Sequence[dt.date]) -> Usual:
        """What a window of these partitions is held against: the reference's days of the same weekdays, else all of them.

        A weekly wave is in both sides then, and cancels. The median of several weekdays is that of all days.
        """
        if not self.weekdays:
            return Usual(counts=self.counts, mean=self.mean, median=self.median)
        days = [self.weekdays[day.weekday()] for day in partitions]
        if len(days) == 1:
            return days[0]
        known = [(sum(day.counts[:-1]), day.mean) for day in days]
        total = sum(rows for rows, mean in known if mean is not None)
        return Usual(
            counts=tuple(sum(bins) for bins in zip(*(day.counts for day in days), strict=True)),
            mean=sum(rows * mean for rows, mean in known if mean is not None) / total if total else None,
            median=self.median,
        )

    def limit(self, days: int) -> Limits:
        """The limits for a window of so many days; the longest known when it is longer still."""
        return self.limits[min(days, len(self.limits)) - 1]


class Baseline(BaseModel, frozen=True, extra="forbid"):
    """Everything that a check needs of a reference besides its sample of rows."""

    model: str
    package_digest: Digest
    dataset_digest: Digest
    first: dt.date
    last: dt.date
    rows: int
    blocks: int
    features: tuple[Monitored, ...] = Field(min_length=1)
    prediction: Monitored
    label: Monitored
