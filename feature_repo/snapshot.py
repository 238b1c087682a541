"""Snapshots of lake and views, and the key of a training set; light, so the control plane computes the same values."""

from __future__ import annotations

import datetime as dt

from artifacts import store
from artifacts.clock import Calendar
from artifacts.refs import Digest, Uri, join, key_digest
from feature_repo.catalogue import CONGESTION_HOURS, VIEWS, WINDOW_HOURS
from feature_repo.contract import LATE_DAYS, TrainingSetSpec

HOUR = dt.timedelta(hours=1)
DAY = dt.timedelta(days=1)
OLDEST = max(view.ttl + view.delay for view in VIEWS.values())
"""How far back from T a training set may read a view's rows."""


def _snapshot(root: Uri, first: dt.date, last: dt.date) -> Digest:
    days = [(first + n * DAY).isoformat() for n in range((last - first).days + 1)]
    manifests = ((day, store.manifest(join(root, day))) for day in days)
    return key_digest({day: manifest.digest for day, manifest in manifests if manifest})


def lake_snapshot(lake: Uri, first: dt.date, last: dt.date) -> Digest:
    """The digest over names and digests of the lake's days from first to last; days that are missing are left out."""
    return _snapshot(lake, first, last)


def views_snapshot(views: Uri, first: dt.date, last: dt.date) -> Digest:
    """The digest over names and digests of the views' days from first to last; days that are missing are left out."""
    return _snapshot(views, first, last)


def build_from(calendar: Calendar, start: dt.datetime, late_days: int = LATE_DAYS) -> dt.datetime:
    """Where a build of the hours after ``start`` begins: it looks for late records in the hours of the last days again."""
    return max(start - late_days * DAY, calendar.starts(calendar.first))


def fact_days(
    calendar: Calendar, after: dt.datetime, until: dt.datetime, late_days: int = LATE_DAYS
) -> tuple[dt.date, dt.date]:
    """First and last day of the lake whose facts count in (after, until]: the longest window back, congestion ahead."""
    back = (max(WINDOW_HOURS.values()) + 1) * HOUR + (late_days + 1) * DAY
    first, last = calendar.of(after - back), calendar.of(until + CONGESTION_HOURS * HOUR)
    return max(first, calendar.first), min(last, calendar.last) if calendar.last else last


def build_days(
    calendar: Calendar, start: dt.datetime, end: dt.datetime, late_days: int = LATE_DAYS
) -> tuple[dt.date, dt.date]:
    """First and last day of the lake that a build of (start, end] reads."""
    return fact_days(calendar, build_from(calendar, start, late_days), end, late_days)


def build_snapshot(
    calendar: Calendar, lake: Uri, start: dt.datetime, end: dt.datetime, late_days: int = LATE_DAYS
) -> Digest:
    """What ``BuildSpec.snapshot`` must be: the lake's snapshot over the days that the build reads."""
    return lake_snapshot(lake, *build_days(calendar, start, end, late_days))


def label_days(first: dt.date, partition: dt.date, label_horizon: dt.timedelta) -> tuple[dt.date, dt.date]:
    """First and last service day of a training set, which are also the days of the lake that it reads."""
    return first, partition - label_horizon


def feature_days(
    calendar: Calendar, first: dt.date, partition: dt.date, label_horizon: dt.timedelta
) -> tuple[dt.date, dt.date]:
    """First and last day of the views that a training set reads."""
    return max(calendar.first, first - OLDEST - DAY), partition - label_horizon


def training_snapshots(
    calendar: Calendar,
    *,
    lake: Uri,
    views: Uri,
    first: dt.date,
    partition: dt.date,
    label_horizon: dt.timedelta,
) -> tuple[Digest, Digest]:
    """What ``TrainingSetSpec.lake_snapshot`` and ``views_snapshot`` must be."""
    return (
        lake_snapshot(lake, *label_days(first, partition, label_horizon)),
        views_snapshot(views, *feature_days(calendar, first, partition, label_horizon)),
    )


def dataset_key(spec: TrainingSetSpec) -> Digest:
    """The key of a training set: the digest of its spec without the place for the output."""
    return key_digest(spec.model_dump(mode="json", exclude={"output"}))
