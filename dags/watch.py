"""
### Watch
Checks every closed partition of the prediction log for drift and for lost quality, and decides whether that is worth a retrain.

| | |
|---|---|
| Runs when | `predictions/<model>` gets an event because a partition of the log has closed, or `alerts/<model>` because of an alert from outside; hourly, for events that were lost; by hand, to try given-up partitions again |
| Reads | the closed partitions that nobody has checked against the live version, the labels known so far, the version's own reference, alerts from outside |
| Publishes | a report per check, a ledger row per check (also for a no, and for one that failed), a ledger row on what each past drift retrain has brought, and an event for `retrain/<model>` when a retrain is decided |
| When it fails | nothing retrains on half a check; the next run takes the partition, at most 3 runs on the same data. See `docs/runbooks/watch.md` |
"""

from __future__ import annotations

from typing import Any

from airflow.sdk import DAG, AssetAlias, task
from airflow.sdk.exceptions import AirflowSkipException

from operators import events
from operators.calls import watch as calls
from operators.endings import end_in_red
from operators.notifiers import StateChanges
from operators.payload import DEFAULTS, mapped_payload, payload
from operators.pipelines import PIPELINES, Pipeline
from operators.schedules import cron_or
from operators.tasks import effects as audits
from operators.tasks import watch as tasks


def make(row: Pipeline) -> DAG:
    """The DAG of one model."""
    wanted = AssetAlias(f"retrain-decided/{row.model}")
    with DAG(
        f"watch__{row.model}",
        doc_md=__doc__,
        schedule=cron_or("20 * * * *", events.predictions(row.model), events.alerts(row.model)),
        max_active_runs=1,
        default_args={**DEFAULTS, "owner": row.owner},
        tags=["perennial", "watch", row.model],
    ) as dag:

        @task
        def choose(dag_run: Any) -> dict[str, Any]:
            return tasks.choose_partitions(row, by_hand=dag_run.run_type == "manual")

        @task
        def spread(asked: dict[str, Any], frozen: Any) -> list[dict[str, Any]]:
            return [{"partition": partition, "frozen": frozen} for partition in asked["partitions"]]

        # A bad day gets its row too, and must not hide the others.
        @task(outlets=[wanted], trigger_rule="all_done", on_success_callback=[StateChanges(row.model)])
        def decide(
            asked: Any, frozen: Any, results: list[Any], replays: Any, replayed: Any, run_id: str, *, outlet_events: Any
        ) -> None:
            audits.conclude(row, replays, list(replayed or ()), run_id)
            if not asked or not frozen:
                raise AirflowSkipException("no check was run")
            if tasks.decide_all(row, asked, list(results), run_id):
                outlet_events[wanted].add(events.retrain(row.model))

        @task
        def audit() -> list[dict[str, Any]]:
            return audits.to_replay(row)

        asked, replays = choose(), audit()
        frozen = payload(task_id="reference", call=calls.reference(row), inputs={"asked": asked})
        checks = mapped_payload(task_id="check", call=calls.check(row), inputs=spread(asked, frozen.output))
        replayed = mapped_payload(task_id="effect", call=calls.effect(row), inputs=replays)
        decide(asked, frozen.output, checks.output, replays, replayed.output)
        end_in_red(dag)
    return dag


for pipeline in PIPELINES:
    globals()[f"watch__{pipeline.model}"] = make(pipeline)
