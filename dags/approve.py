"""
### Approve
Asks a person about a version that the policy does not release by itself, and waits without a worker.

| | |
|---|---|
| Runs when | `package/<model>` gets an event; by hand with a version |
| Reads | the ledger: versions whose gates ask for a person (high tier, a first model, too few rows to show the margin) |
| Publishes | G10 as a ledger row with who and when; after a yes an event for `package/<model>`, which wakes `release` |
| When it fails | nobody is asked, nothing is released, and everything else goes on: training, releases of other versions and rollbacks wait for no answer. See `docs/runbooks/approve.md` |

The question stands in Airflow under *Required Actions*, with the verdicts and a link to the evaluation. Whoever asked for the retrain
cannot approve it. Without an answer in time (72 hours) the version is refused.
"""

from __future__ import annotations

import datetime as dt
from typing import Any

from airflow.sdk import DAG, AssetAlias, Param, task

from operators import events
from operators.ask_operator import AskPerson, comment
from operators.endings import end_in_red
from operators.payload import DEFAULTS
from operators.pipelines import PIPELINES, Pipeline
from operators.tasks import approve as tasks

AT_ONCE = 16  # a question that waits for days must not hold up the next version's


def make(row: Pipeline) -> DAG:
    """The DAG of one model."""
    approved = AssetAlias(f"approved/{row.model}")
    with DAG(
        f"approve__{row.model}",
        doc_md=__doc__,
        schedule=[events.package(row.model)],
        max_active_runs=AT_ONCE,
        default_args={**DEFAULTS, "owner": row.owner},
        params={
            "version": Param(
                None,
                type=["null", "integer"],
                description="Version to ask about again; empty: the newest one that waits.",
            )
        },
        tags=["perennial", "approve", row.model],
    ) as dag:

        @task
        def which(params: dict[str, Any], run_id: str) -> dict[str, Any]:
            return tasks.which(row, params["version"], run_id)

        @task(outlets=[approved])
        def settle(asked: dict[str, Any], answer: dict[str, Any], *, outlet_events: Any) -> None:
            if tasks.settle(row, asked, answer, dt.datetime.now(dt.UTC)):
                outlet_events[approved].add(events.package(row.model))

        asked = which()
        answer = AskPerson(
            task_id="ask",
            subject="{{ ti.xcom_pull(task_ids='which')['subject'] }}",
            body="{{ ti.xcom_pull(task_ids='which')['body'] }}",
            params=comment(),
            response_timeout=row.gates.approval_expires,
        )
        asked >> answer
        settle(asked, answer.output)
        end_in_red(dag)
    return dag


for pipeline in PIPELINES:
    globals()[f"approve__{pipeline.model}"] = make(pipeline)
