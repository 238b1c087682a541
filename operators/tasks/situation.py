"""What a decision of the drift policy depends on besides the checks, gathered from ledger, records, store and data clock."""

from __future__ import annotations

import datetime as dt
import functools

from artifacts.refs import Digest
from monitoring.contract import AgeLoss, CheckRow, Effect, Scheduled, Situation
from operators import live
from operators.data_gate import LOOKED_AT, failed_gate
from operators.ledger import DECISION, Entry, ledger
from operators.pipelines import Pipeline
from operators.plans import evidence
from operators.plans import watch as plans
from operators.schedules import next_tick
from operators.settings import platform
from operators.tasks.release import PROMOTION, RELEASE
from operators.versions import by_package


def situation(row: Pipeline, current: CheckRow, newest: dt.date | None) -> Situation:
    """All that is known here; GPU-hours are not metered yet, so their budget holds nothing back."""
    book, now = ledger(), live.now()
    decisions, ends = book.entries(DECISION, row.model), book.closures(row.model)
    checks, releases = book.entries(plans.DRIFT, row.model), book.entries(RELEASE, row.model)
    return Situation(
        model=row.model,
        now=now,
        retrains=plans.retrains(decisions, ends, releases, checks, row.drift),
        retraining=bool(book.open_decisions(row.model)),
        newest=newest,
        breaker_closed_at=plans.breaker_closed_at(book.entries(PROMOTION, row.model), decisions),
        failed_gate=failed_gate(row, book.status(LOOKED_AT), current.partition),
        scheduled=scheduled(row, now),
        trained_through=trained_through(row, current.package_digest),
        ageing=_ageing(row, checks),
        training_p95=evidence.training_p95(decisions, ends),
        label_delay=row.recipe.SPLIT.label_horizon_days * evidence.DAY,
        alerts=evidence.alerts(book.entries(plans.ALERT, row.model)),
        new_labels=new_labels(row, current.package_digest, now),
        effects=effects(row),
    )


def scheduled(row: Pipeline, now: dt.datetime) -> Scheduled | None:
    """The next retrain by cron and the partition that it will resolve; None where no tick is ahead on the data clock."""
    at = next_tick(row.schedule, now)
    partition = row.calendar.newest_closed(at) if at else None
    return Scheduled(at=at, partition=partition) if at and partition else None


def trained_through(row: Pipeline, package: Digest) -> dt.date | None:
    """The newest training day of a version; None when the ledger or the store has lost it, which its checks report."""
    try:
        return by_package(ledger(), row.model, package).final_fit_ref().train_last
    except LookupError:
        return None


def new_labels(row: Pipeline, package: Digest, now: dt.datetime) -> int:
    """Rows labelled since a version was trained, or since a retrain was last tried; 0 when nothing is known of it."""
    trained, closed = trained_through(row, package), row.calendar.newest_closed(now)
    if trained is None or closed is None:
        return 0
    since = evidence.counted_from(trained, ledger().entries(DECISION, row.model))
    return evidence.new_labels(row, platform().store, since, closed)


def effects(row: Pipeline) -> tuple[Effect, ...]:
    """The audits of past drift retrains."""
    return tuple(Effect.model_validate(entry.body["effect"]) for entry in ledger().entries(plans.EFFECT, row.model))


def _ageing(row: Pipeline, checks: tuple[Entry, ...]) -> AgeLoss | None:
    """Loss by age; None without a cost, since nothing reads it then and every version's fit would be looked up."""
    if row.drift.retrain_cost is None:
        return None
    return evidence.ageing(checks, functools.cache(lambda package: trained_through(row, package)), row.drift)
