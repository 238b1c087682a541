"""
### Sweep
Finds what crashes cut short and what lost events left undone, wakes whoever has to go on, reads the meters of lost jobs, and
removes old attempts and pods.

| | |
|---|---|
| Runs when | every 15 minutes |
| Reads | the ledger, the routing records, the closed partitions of the prediction logs |
| Publishes | a ledger row when something is unfinished, and the event that its DAG has missed |
| When it fails | nothing is lost: all of it is worked out from stored state, and the next run finds the same. See `docs/runbooks/sweep.md` |
"""

from __future__ import annotations

import datetime as dt
from typing import Any

from airflow.sdk import DAG, AssetAlias, task
from airflow.sdk.exceptions import AirflowSkipException

from operators import events
from operators.notifiers import Overdue
from operators.payload import DEFAULTS
from operators.pipelines import PIPELINES
from operators.schedules import cron
from operators.settings import platform
from operators.tasks import sweep as tasks

WOKEN = AssetAlias("woken-by-sweep")
WAKES = {
    "decisions": events.retrain,
    "gaps": events.backfill,
    "approvals": events.package,
    "packages": events.package,
    "partitions": events.predictions,
    "unheard": events.alerts,
}

with DAG(
    "sweep",
    doc_md=__doc__,
    schedule=cron("*/15 * * * *"),
    max_active_runs=1,
    default_args=DEFAULTS,
    tags=["perennial", "sweep"],
) as sweep_dag:

    @task(outlets=[WOKEN], on_success_callback=[Overdue()])
    def wake(*, outlet_events: Any) -> dict[str, Any]:
        found = tasks.sweep()
        for model, waiting in found.items():
            for kind, asset in WAKES.items():
                if waiting[kind]:
                    outlet_events[WOKEN].add(asset(model))
        return {model: {kind: len(items) for kind, items in waiting.items()} for model, waiting in found.items()}

    @task
    def finish_promotions() -> list[str]:
        return [row.model for row in PIPELINES if tasks.project(row) or tasks.close_lost(row)]

    @task
    def clean() -> int:
        found = tasks.clean_store(dt.datetime.now(dt.UTC))
        if found is None:
            raise AirflowSkipException("the store was cleaned less than 6 hours ago")
        return len(found.attempts)

    @task
    def close_meters() -> list[str]:
        return tasks.close_meters(dt.datetime.now(dt.UTC))

    @task
    def reap(**context: Any) -> list[str]:
        if platform().runner != "pod":
            raise AirflowSkipException("steps run as local processes here")
        return tasks.reap_pods(context["ti"], dt.datetime.now(dt.UTC))

    wake() >> finish_promotions()
    close_meters()
    clean()
    reap()
