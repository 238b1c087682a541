"""The specs of the checks of raw days and view days, which ``features`` and ``retrain`` share: the same day, the same key."""

from __future__ import annotations

import datetime as dt
import functools
from collections.abc import Mapping, Sequence

from artifacts.refs import Uri, join
from artifacts.store import Manifest, manifest
from feature_repo.contract import Target, ValidateSpec
from operators.partitions import same_weekdays
from operators.pipelines import FeatureRepo

Manifests = Mapping[dt.date, Manifest]


def raw_days(repo: FeatureRepo, store: Uri, days: Sequence[dt.date], output: Uri) -> ValidateSpec:
    """The expectations of some raw days, each with the volume of the same weekdays before it."""
    return _spec("raw_day", repo, repo.lake(store), days, output)


def view_days(repo: FeatureRepo, store: Uri, days: Sequence[dt.date], output: Uri) -> ValidateSpec:
    """The expectations of some days of the views, each with the volume of the same weekdays before it."""
    return _spec("view_day", repo, repo.views(store), days, output)


def published(root: Uri, days: Sequence[dt.date]) -> list[dt.date]:
    """The days that are there."""
    return [day for day in days if manifest(join(root, day.isoformat())) is not None]


def _spec(suite: str, repo: FeatureRepo, root: Uri, days: Sequence[dt.date], output: Uri) -> ValidateSpec:
    @functools.cache
    def found(day: dt.date) -> Manifest | None:
        return manifest(join(root, day.isoformat()))

    targets = []
    for day in days:
        there = found(day)
        if there is None:
            raise LookupError(
                f"{join(root, day.isoformat())}: this day is not there; run the features DAG for it first"
            )
        past = [one for one in map(found, same_weekdays(day, repo.calendar)) if one]
        history = {table: tuple(_rows(one, table) for one in past) for table in sorted(_counted(there))}
        targets.append(Target(uri=join(root, day.isoformat()), digest=there.digest, partition=day, history=history))
    return ValidateSpec(suite=suite, calendar=repo.calendar, targets=tuple(targets), output=output)


def _counted(day: Manifest) -> Mapping[str, int]:
    rows = day.facts.get("rows")
    return {table: int(str(count)) for table, count in rows.items()} if isinstance(rows, dict) else {}


def _rows(day: Manifest, table: str) -> int:
    return _counted(day).get(table, 0)
