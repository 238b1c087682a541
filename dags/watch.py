"""
### Watch
Checks every closed partition of the prediction log for drift and for lost quality, and decides whether that is worth a retrain.

| | |
|---|---|
| Runs when | `predictions/<model>` gets an event because a partition of the log has closed; hourly, for events that were lost |
| Reads | the closed partitions that nobody has checked against the live version, the labels known so far, the version's own reference |
| Publishes | a report per check, a ledger row per check (also for a no), and an event for `retrain/<model>` when a retrain is decided |
| When it fails | nothing retrains on half a check; the partition stays unchecked and the next run takes it. See `docs/runbooks/watch.md` |
"""

from __future__ import annotations

from typing import Any

from airflow.sdk import DAG, AssetAlias, task

from monitoring.contract import CheckRef
from operators import events
from operators.calls import watch as calls
from operators.endings import end_in_red
from operators.payload import DEFAULTS, mapped_payload_type, payload
from operators.pipelines import PIPELINES, Pipeline
from operators.schedules import cron_or
from operators.tasks import watch as tasks


def make(row: Pipeline) -> DAG:
    """The DAG of one model."""
    wanted = AssetAlias(f"retrain-decided/{row.model}")
    with DAG(
        f"watch__{row.model}",
        doc_md=__doc__,
        schedule=cron_or("20 * * * *", events.predictions(row.model)),
        max_active_runs=1,
        default_args={**DEFAULTS, "owner": row.owner},
        tags=["perennial", "watch", row.model],
    ) as dag:

        @task
        def choose() -> dict[str, Any]:
            return tasks.choose_partitions(row)

        @task
        def spread(asked: dict[str, Any], frozen: Any) -> list[dict[str, Any]]:
            return [{"partition": partition, "frozen": frozen} for partition in asked["partitions"]]

        @task(outlets=[wanted], trigger_rule="all_done_min_one_success")  # one bad day must not hide the others
        def decide(results: list[Any], *, outlet_events: Any) -> None:
            if tasks.decide_all(row, list(results)):
                outlet_events[wanted].add(events.retrain(row.model))

        asked = choose()
        frozen = payload(task_id="reference", call=calls.reference(row), inputs={"asked": asked})
        checks = (
            mapped_payload_type(CheckRef)
            .partial(task_id="check", call=calls.check(row), max_active_tis_per_dagrun=1)
            .expand(inputs=spread(asked, frozen.output))
        )
        decide(checks.output)
        end_in_red(dag)
    return dag


for pipeline in PIPELINES:
    globals()[f"watch__{pipeline.model}"] = make(pipeline)
