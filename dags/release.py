"""
### Release
Puts a packaged version in front of traffic when the evidence says that it is safe, or says why not.

| | |
|---|---|
| Runs when | `package/<model>` gets an event; by hand with a version, or to roll back |
| Reads | the newest registered version that nobody has judged, and the logged requests of the live one |
| Publishes | the routing record, MLflow's aliases, and an event for `deployment/<model>`; a refusal is a ledger row with its reasons |
| When it fails | traffic stays where it was: routes change first and only by compare-and-set, unloading comes later. See `docs/runbooks/release.md` |

Roll back with `rollback` and a reason: the previous version is loaded still, answers its golden requests, and takes the traffic.
"""

from __future__ import annotations

from typing import Any

from airflow.sdk import DAG, AssetAlias, Param, task

from operators import events
from operators.calls import release as calls
from operators.endings import end_in_red
from operators.payload import DEFAULTS, payload
from operators.pipelines import PIPELINES, Pipeline
from operators.plans.release import Candidate
from operators.tasks import release as tasks


def params() -> dict[str, Param]:
    """The form; made anew for each DAG, since Airflow writes the typed values into these objects."""
    return {
        "version": Param(
            None,
            type=["null", "integer"],
            description="Registered version to release; empty: the newest that nobody has judged.",
        ),
        "rollback": Param(False, type="boolean", description="Go back to the previous version."),
        "reason": Param(
            "", type="string", description="Why; needed for a release or a rollback by hand, kept in the ledger."
        ),
        "force": Param(
            False,
            type="boolean",
            description="Judge a version again that was refused, or one that is older than the live one.",
        ),
    }


def make(row: Pipeline) -> DAG:
    """The DAG of one endpoint."""
    again = AssetAlias(f"release-again/{row.model}")
    with DAG(
        f"release__{row.model}",
        doc_md=__doc__,
        schedule=[events.package(row.model)],
        max_active_runs=1,  # one roll-out per endpoint
        default_args={**DEFAULTS, "owner": row.owner},
        params=params(),
        tags=["perennial", "release", row.model],
    ) as dag:

        @task
        def choose(params: dict[str, Any], dag_run: Any) -> dict[str, Any]:
            actor = getattr(dag_run, "triggering_user_name", None) or "airflow"
            return tasks.choose_candidate(row, params, dag_run.run_id, actor)

        @task(trigger_rule="none_failed_min_one_success")
        def settle(candidate: dict[str, Any], staged: Any, judgement: Any) -> dict[str, Any]:
            return tasks.settle(row, Candidate.model_validate(candidate), judgement)

        @task(trigger_rule="all_done", outlets=[events.deployment(row.model), again])
        def finish(
            candidate: dict[str, Any] | None, settled: Any, projections: list[Any], run_id: str, *, outlet_events: Any
        ) -> None:
            tasks.note_overruled(row, run_id, projections)
            if tasks.end(row, Candidate.model_validate(candidate) if candidate else None, settled):
                outlet_events[again].add(events.package(row.model))

        candidate = choose()
        staged = payload(task_id="stage", call=calls.stage(row), inputs={"candidate": candidate})
        named = payload(task_id="challenge", call=calls.challenge(row), inputs={"candidate": candidate})
        judged = payload(
            task_id="judge", call=calls.judge(row), inputs={"candidate": candidate, "staged": staged.output}
        )
        settled = settle(candidate, staged.output, judged.output)
        aliased = payload(
            task_id="alias",
            call=calls.alias(row),
            inputs={"settled": settled},
            trigger_rule="none_failed_min_one_success",  # a rollback has no challenger
        )
        unstaged = payload(task_id="unstage", call=calls.unstage(row), inputs={"settled": settled})
        named >> aliased  # or a late challenger would stand after the end
        unstaged >> finish(candidate, settled, [named.output, aliased.output])
        end_in_red(dag)
    return dag


for pipeline in PIPELINES:
    globals()[f"release__{pipeline.model}"] = make(pipeline)
