"""How a run ends: red when any of its tasks failed, whatever its last task did."""

from __future__ import annotations

from airflow.sdk import DAG, task
from airflow.sdk.exceptions import AirflowFailException


@task(trigger_rule="one_failed", retries=0)
def failed() -> None:
    """Fails the run; Airflow judges a run by its leaves, and one that runs always would hide what failed before it."""
    raise AirflowFailException("a task of this run failed; the last lines of its own log say why")


def end_in_red(dag: DAG) -> None:
    """Puts ``failed`` behind every task of a DAG; call it last, inside the DAG's block."""
    tasks = list(dag.tasks)
    ending = failed()
    for one in tasks:
        one >> ending
