"""
### Features
Turns raw facts into the hourly rows that training and serving both read.

| | |
|---|---|
| Runs when | an hour has closed on the data clock (cron, five past the hour), or by hand with `from` and `to` |
| Reads | the raw facts of the repo's source, by service day |
| Publishes | `lake/<repo>`, `views/<repo>`, the online store, and an event for `features/<repo>` |
| When it fails | the online store keeps its last values, which age; requests with expired values are answered with imputed ones and counted. What cannot be read back as the views say stops the run before it publishes. See `docs/runbooks/features.md` |
"""

from __future__ import annotations

from typing import Any

from airflow.sdk import DAG, Param, task

from operators import events
from operators.calls import features as calls
from operators.payload import DEFAULTS, payload
from operators.pipelines import FEATURE_REPOS, FeatureRepo
from operators.schedules import cron
from operators.tasks import features as tasks

WHEN = "UTC hour, such as 2013-08-31T14:00Z; empty: from where the last run ended, to the last closed hour."


def make(repo: FeatureRepo) -> DAG:
    """The DAG of one feature repo."""
    with DAG(
        f"features__{repo.name}",
        doc_md=__doc__,
        schedule=cron(repo.schedule),
        max_active_runs=1,
        default_args={**DEFAULTS, "owner": repo.owner},
        params={name: Param(None, type=["null", "string"], description=WHEN) for name in ("from", "to")},
        tags=["perennial", "features", repo.name],
    ) as dag:

        @task
        def hours(params: dict[str, Any]) -> dict[str, Any]:
            return tasks.choose_hours(repo, params)

        @task(outlets=[events.features(repo.name)], trigger_rule="none_failed_min_one_success")
        def publish(
            lake: dict[str, Any],
            views: dict[str, Any],
            online: dict[str, Any] | None,
            checked: dict[str, Any] | None,
        ) -> None:
            tasks.record_progress(repo, lake, views, online, checked)

        asked = hours()
        lake = payload(task_id="ingest", call=calls.ingest(repo), inputs={"hours": asked})
        raw = payload(
            task_id="validate_raw", call=calls.validate_raw(repo), inputs={"hours": asked, "lake": lake.output}
        )
        views = payload(
            task_id="build",
            call=calls.build(repo),
            inputs={"hours": asked, "lake": lake.output},
            trigger_rule="none_failed_min_one_success",  # no raw day may have closed among the hours
        )
        built = payload(
            task_id="validate_views", call=calls.validate_views(repo), inputs={"hours": asked, "views": views.output}
        )
        online = payload(
            task_id="materialize",
            call=calls.materialize(repo),
            inputs={"hours": asked, "views": views.output},
            trigger_rule="none_failed_min_one_success",  # as for build
        )
        checked = payload(task_id="check_online", call=calls.check_online(repo), inputs={"online": online.output})
        raw >> views
        built >> online
        publish(lake.output, views.output, online.output, checked.output)
    return dag


for row in FEATURE_REPOS:
    globals()[f"features__{row.name}"] = make(row)
