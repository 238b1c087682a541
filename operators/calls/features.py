"""The step calls of the ``features`` DAG."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pydantic import BaseModel

from artifacts.refs import Uri, join, short
from feature_repo.contract import LakeRef, OnlineCheckRef, OnlineRef, ValidateSpec, ValidationRef, ViewsRef
from operators import live
from operators.data_gate import LOOKED_AT, not_held
from operators.ledger import ledger
from operators.payload import PENDING, Skip, StepCall, load
from operators.pipelines import FeatureRepo
from operators.plans import checks
from operators.plans import features as plans
from operators.plans.features import Hours
from operators.settings import platform
from operators.steps import layer_digest

NOTHING_CLOSED = "no day among these hours has closed yet"
NOTHING_NEW = "the days that have closed have been checked as they are"


def ingest(repo: FeatureRepo) -> StepCall:
    """Raw facts into the lake."""

    def spec(hours: Mapping[str, Any]) -> BaseModel:
        return plans.ingest(repo, platform().store, Hours.model_validate(hours))

    return StepCall("feature_repo.ingest", "features", spec, LakeRef, effect=True)


def validate_raw(repo: FeatureRepo) -> StepCall:
    """The expectations of the raw days that closed among the hours, and of those that were restated since they were checked."""

    def spec(hours: Mapping[str, Any], lake: Mapping[str, str]) -> BaseModel | Skip:
        return _asked(repo, Hours.model_validate(hours), checks.raw_days, repo.lake(platform().store))

    return _check(repo, spec)


def validate_views(repo: FeatureRepo) -> StepCall:
    """The expectations of the same days of the views."""

    def spec(hours: Mapping[str, Any], views: Mapping[str, str]) -> BaseModel | Skip:
        return _asked(repo, Hours.model_validate(hours), checks.view_days, repo.views(platform().store))

    return _check(repo, spec)


def _asked(repo: FeatureRepo, hours: Hours, check: Callable[..., ValidateSpec], root: Uri) -> ValidateSpec | Skip:
    """A check of what closed, and of what lies there from the days before that the run reads, less what has held as it is."""
    days = [*checks.published(root, plans.earlier_days(repo, hours)), *plans.closed_days(repo, hours)]
    if not days:
        return Skip(NOTHING_CLOSED)
    wanted = check(repo, platform().store, days, PENDING)
    return not_held(wanted, ledger().status(LOOKED_AT), layer_digest("features")) or Skip(NOTHING_NEW)


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
