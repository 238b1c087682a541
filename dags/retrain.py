"""
### Retrain
Makes a version trained through a partition, or says why there is none.

| | |
|---|---|
| Runs when | daily by cron; `retrain/<model>` gets an event because drift was found worth it; by hand with a form |
| Reads | `lake/<repo>` and `views/<repo>` as they were known at the partition's close plus its lateness |
| Publishes | a package and a registered version, and an event for `package/<model>`; a refusal is a ledger row with its reasons |
| When it fails | the live version keeps serving; a failed step says why in its last lines, and a new run reuses what was done. See `docs/runbooks/retrain.md` |

A run asks for an outcome: a version trained through the partition has been judged by this trigger's rules. What is done
already is reused, so the same partition twice trains once, and a version that is live already is not made again.

`backfill__<model>` does the same for a partition of the past, by hand or because `sweep` found it missing: in a pool of its own with
one slot, so that a daily run never waits for more than one of its tasks. Its versions are registered as `backfill` and never released.
"""

from __future__ import annotations

import datetime as dt
from typing import Any

from airflow.sdk import DAG, AssetAlias, Param, task

from operators import events
from operators.calls import retrain as calls
from operators.endings import end_in_red
from operators.payload import DEFAULTS, payload
from operators.pipelines import PIPELINES, Pipeline
from operators.plans.retrain import Ask
from operators.pools import IN_BACKFILL
from operators.schedules import cron_or
from operators.tasks import retrain as tasks
from operators.tasks.backfill import resolve_backfill

FEATURES_WAIT = dt.timedelta(hours=2)


def params() -> dict[str, Param]:
    """The form; made anew for each DAG, since Airflow writes the typed values into these objects."""
    return {
        "partition": Param(
            None,
            type=["null", "string"],
            format="date",
            description="Service day, YYYY-MM-DD; empty: the newest closed one.",
        ),
        "reason": Param("", type="string", description="Why; needed for a run by hand, kept in the ledger."),
        "force": Param(
            False, type="boolean", description="Train again although this version exists; the reason says why."
        ),
    }


def make(row: Pipeline, *, backfill: bool = False) -> DAG:
    """The DAG of one model; that of its backfills waits behind it at every slot, and tells nobody of its versions."""
    kind, wakes = ("backfill", events.backfill) if backfill else ("retrain", events.retrain)
    again, woken_by = AssetAlias(f"{kind}-again/{row.model}"), wakes(row.model)
    asked = resolve_backfill if backfill else tasks.resolve_ask
    told = [] if backfill else [events.package(row.model)]
    with DAG(
        f"{kind}__{row.model}",
        doc_md=__doc__,
        schedule=[woken_by] if backfill else cron_or(row.schedule, woken_by),
        max_active_runs=1,
        default_args={**DEFAULTS, "owner": row.owner, **(IN_BACKFILL if backfill else {})},
        params=params(),
        tags=["perennial", kind, row.model],
    ) as dag:

        @task
        def resolve(params: dict[str, Any], dag_run: Any) -> dict[str, Any]:
            actor = getattr(dag_run, "triggering_user_name", None) or "airflow"
            return asked(row, params, dag_run.run_type, dag_run.run_id, actor)

        @task.sensor(poke_interval=30, mode="reschedule", timeout=2 * FEATURES_WAIT.total_seconds(), retries=0)
        def features_ready(ask: dict[str, Any], dag_run: Any) -> bool:
            waited = dt.datetime.now(dt.UTC) - dag_run.run_after
            return tasks.features_ready(row, Ask.model_validate(ask), waited, FEATURES_WAIT)

        @task
        def gate(
            ask: dict[str, Any], validations: list[Any], candidate: Any, final: Any, evaluation: Any
        ) -> dict[str, Any]:
            return tasks.judge(row, Ask.model_validate(ask), validations, candidate, final, evaluation)

        @task(outlets=told)
        def publish(
            ask: dict[str, Any],
            version: Any,
            candidate: Any,
            final: Any,
            evaluation: Any,
            packed: Any,
            *,
            outlet_events: Any,
        ) -> None:
            extra = tasks.record_version(Ask.model_validate(ask), version, candidate, final, evaluation, packed)
            for asset in told:
                outlet_events[asset].extra = extra

        @task(trigger_rule="all_done", outlets=[again])
        def finish(ask: dict[str, Any] | None, *, outlet_events: Any) -> None:
            if tasks.end(row, Ask.model_validate(ask) if ask else None):
                outlet_events[again].add(woken_by)

        ask = resolve()
        ready = features_ready(ask)
        raw = payload(task_id="validate_raw", call=calls.validate_raw(row), inputs={"ask": ask})
        dataset = payload(task_id="training_set", call=calls.training_set(row), inputs={"ask": ask})
        checked = payload(task_id="validate_set", call=calls.validate_set(row), inputs={"dataset": dataset.output})
        first = payload(
            task_id="fit_evaluation", call=calls.fit(row, "evaluation"), inputs={"ask": ask, "dataset": dataset.output}
        )
        final = payload(
            task_id="fit_final",
            call=calls.fit(row, "final"),
            inputs={"ask": ask, "dataset": dataset.output, "evaluation_fit": first.output},
        )
        evaluation = payload(
            task_id="evaluate",
            call=calls.evaluate(row, backfill=backfill),
            inputs={"candidate": first.output, "final": final.output},
        )
        verdict = gate(ask, [raw.output, checked.output], first.output, final.output, evaluation.output)
        onnx = payload(task_id="export", call=calls.export(row), inputs={"final": final.output, "gate": verdict})
        packed = payload(
            task_id="package",
            call=calls.package(row),
            inputs={"onnx": onnx.output, "final": final.output, "evaluation": evaluation.output, "gate": verdict},
        )
        version = payload(
            task_id="register",
            call=calls.register(row),
            inputs={
                "ask": ask,
                "candidate": first.output,
                "final": final.output,
                "evaluation": evaluation.output,
                "packed": packed.output,
                "gate": verdict,
            },
        )
        published = publish(ask, version.output, first.output, final.output, evaluation.output, packed.output)
        ready >> raw >> dataset  # what is cheap to refuse comes first, and one Spark session at a time
        [raw, checked] >> first
        published >> finish(ask)
        end_in_red(dag)
    return dag


for pipeline in PIPELINES:
    globals()[f"retrain__{pipeline.model}"] = make(pipeline)
    globals()[f"backfill__{pipeline.model}"] = make(pipeline, backfill=True)
