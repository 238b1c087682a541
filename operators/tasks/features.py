"""The light tasks of the ``features`` DAG."""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Mapping
from typing import Any

from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from artifacts.records import Conflict
from feature_repo.contract import LakeRef, OnlineCheckRef, OnlineRef, ViewsRef
from operators import live
from operators.ledger import ledger
from operators.payload import load
from operators.pipelines import FeatureRepo
from operators.plans import features as plans
from operators.settings import platform

log = logging.getLogger(__name__)


def choose_hours(repo: FeatureRepo, params: Mapping[str, Any]) -> dict[str, Any]:
    """The hours that this run builds; skips when nothing has closed, fails when hours were asked for that cannot be built."""
    built, _ = live.built(repo.progress_record)
    try:
        hours = plans.hours(repo, built, live.now(), params["from"], params["to"], replay=platform().clock == "replay")
    except plans.HoursRefused as error:
        raise AirflowFailException(str(error)) from error
    if hours is None:
        since = built.built_to or repo.calendar.starts(repo.calendar.first)
        raise AirflowSkipException(f"no hour has closed since {since:%Y-%m-%dT%H:%MZ}")
    return hours.model_dump(mode="json")


def record_progress(
    repo: FeatureRepo,
    lake: Mapping[str, Any],
    views: Mapping[str, Any],
    online: Mapping[str, Any] | None,
    checked: Mapping[str, Any] | None,
) -> None:
    """Moves the repo's progress record forward and writes the ledger's row: late records, and what the online store warns of."""
    lake_ref = load(lake, LakeRef)
    views_ref = load(views, ViewsRef)
    online_ref = load(online, OnlineRef) if online else None
    checked_ref = load(checked, OnlineCheckRef) if checked else None
    while True:
        built, version = live.built(repo.progress_record)
        moved = plans.Built(
            built_to=_later(built.built_to, views_ref.end),
            materialized_to=_later(built.materialized_to, online_ref.end) if online_ref else built.materialized_to,
        )
        try:
            live.records().put(repo.progress_record, moved.model_dump(mode="json"), version)
        except Conflict:
            continue
        break
    alarms = [*(online_ref.alarms if online_ref else ()), *(checked_ref.alarms if checked_ref else ())]
    for alarm in alarms:
        log.warning("%s: %s", repo.name, alarm)
    ledger().append(
        "features",
        repo.name,
        {
            **views_ref.model_dump(include={"start", "end", "rows", "late", "digest"}),
            "landed_late": lake_ref.late,
            "landed_too_late": lake_ref.too_late,
            "alarms": alarms,
        },
    )


def _later(one: dt.datetime | None, other: dt.datetime) -> dt.datetime:
    return max(one, other) if one else other
