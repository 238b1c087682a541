"""The step calls of the ``features`` DAG."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pydantic import BaseModel

from artifacts.refs import join, short
from feature_repo.contract import LakeRef, OnlineCheckRef, OnlineRef, ValidationRef, ViewsRef
from operators import live
from operators.payload import PENDING, Skip, StepCall, load
from operators.pipelines import FeatureRepo
from operators.plans import checks
from operators.plans import features as plans
from operators.plans.features import Hours
from operators.settings import platform

NOTHING_CLOSED = "no day among these hours has closed yet"


def ingest(repo: FeatureRepo) -> StepCall:
    """Raw facts into the lake."""

    def spec(hours: Mapping[str, Any]) -> BaseModel:
        return plans.ingest(repo, platform().store, Hours.model_validate(hours))

    return StepCall("feature_repo.ingest", "features", spec, LakeRef, effect=True)


def validate_raw(repo: FeatureRepo) -> StepCall:
    """The expectations of the raw days that closed among the hours, all in one step."""

    def spec(hours: Mapping[str, Any], lake: Mapping[str, str]) -> BaseModel | Skip:
        days = plans.closed_days(repo, Hours.model_validate(hours))
        return checks.raw_days(repo, platform().store, days, PENDING) if days else Skip(NOTHING_CLOSED)

    return _check(repo, spec)


def validate_views(repo: FeatureRepo) -> StepCall:
    """The expectations of the same days of the views."""

    def spec(hours: Mapping[str, Any], views: Mapping[str, str]) -> BaseModel | Skip:
        days = plans.closed_days(repo, Hours.model_validate(hours))
        return checks.view_days(repo, platform().store, days, PENDING) if days else Skip(NOTHING_CLOSED)

    return _check(repo, spec)


def _check(repo: FeatureRepo, spec: Callable[..., BaseModel | Skip]) -> StepCall:
    return StepCall(
        "feature_repo.validate",
        "features",
        spec,
        ValidationRef,
        output=lambda _, key: join(platform().store, "validations", repo.name, short(key)),
    )


def build(repo: FeatureRepo) -> StepCall:
    """Views of the hours."""

    def spec(hours: Mapping[str, Any], lake: Mapping[str, str]) -> BaseModel:
        return plans.build(repo, platform().store, Hours.model_validate(hours))

    return StepCall("feature_repo.build", "features", spec, ViewsRef, effect=True)


def materialize(repo: FeatureRepo) -> StepCall:
    """What has become available goes into the online store."""

    def spec(hours: Mapping[str, Any], views: Mapping[str, str]) -> BaseModel | Skip:
        built, _ = live.built(repo.progress_record)
        asked = Hours.model_validate(hours)
        found = plans.materialize(repo, platform().store, platform().online, asked, built)
        return found or Skip(f"nothing has become available since {built.materialized_to}")

    return StepCall("feature_repo.materialize", "features", spec, OnlineRef, effect=True)


def check_online(repo: FeatureRepo) -> StepCall:
    """What lies in the online store is read back and compared with the views."""

    def spec(online: Mapping[str, str]) -> BaseModel:
        return plans.check_online(repo, platform().store, load(online, OnlineRef))

    return StepCall("feature_repo.check_online", "features", spec, OnlineCheckRef, effect=True)
