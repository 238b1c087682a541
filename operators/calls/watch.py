"""The step calls of the ``watch`` DAG."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from artifacts.refs import join, short
from monitoring.contract import CheckRef, ReferenceRef
from monitoring.effect_contract import EffectRef
from monitoring.skew_contract import SkewRef, SkewSpec
from operators import live
from operators.ledger import ledger
from operators.payload import PENDING, Skip, StepCall, load
from operators.pipelines import Pipeline
from operators.plans import effects
from operators.plans import watch as plans
from operators.settings import platform
from operators.tasks.effects import due
from operators.tasks.watch import version_in_front
from operators.versions import by_package

XCom = Mapping[str, Any]


def reference(row: Pipeline) -> StepCall:
    """What the live version knows as normal; made once per version."""

    def spec(asked: XCom) -> BaseModel:
        return plans.reference(row, version_in_front(row), PENDING)

    return StepCall(
        "monitoring.reference",
        "monitoring",
        spec,
        ReferenceRef,
        output=lambda _, key: join(platform().store, "references", row.model, short(key)),
    )


def skew(row: Pipeline, asked: SkewSpec) -> StepCall:
    """The features as served beside the training set's, for one package."""
    return StepCall(
        "monitoring.skew",
        "monitoring",
        lambda: asked,
        SkewRef,
        output=lambda _, key: join(platform().store, "skew", row.model, short(key)),
    )


def check(row: Pipeline) -> StepCall:
    """One closed partition against the reference."""

    def spec(partition: str, frozen: XCom) -> BaseModel | Skip:
        champion = live.routing(row.model)[0].champion
        reference_ref = load(frozen, ReferenceRef)
        if champion is None or champion.package.digest != reference_ref.package_digest:
            return Skip("another version went live meanwhile; its own run checks this partition")
        log = plans.logged(row, platform().store)
        return plans.check(
            row,
            version_in_front(row),
            champion,
            reference_ref,
            dt.date.fromisoformat(partition),
            log,
            platform().store,
            PENDING,
        )

    return StepCall(
        "monitoring.check",
        "monitoring",
        spec,
        CheckRef,
        output=lambda _, key: join(platform().store, "checks", row.model, short(key)),
    )


def effect(row: Pipeline) -> StepCall:
    """The champion that a drift retrain has replaced, on what its version answered."""

    def spec(decision: int) -> BaseModel | Skip:
        audit = next((audit for audit in due(row) if audit.decision == decision), None)
        if audit is None:
            return Skip(f"decision {decision} has been audited meanwhile")
        old = by_package(ledger(), row.model, audit.old).package_ref()
        return effects.replay(row, audit, old, platform().store, PENDING)

    return StepCall(
        "monitoring.effect",
        "monitoring",
        spec,
        EffectRef,
        output=lambda _, key: join(platform().store, "effects", row.model, short(key)),
    )
