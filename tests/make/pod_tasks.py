"""Pod tasks of the toy step against a cluster of the tests; as a program, the worker that a test kills."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from artifacts.refs import file_uri
from operators import payload as seam
from operators import payload_pod
from operators.ledger import Ledger
from operators.settings import Platform
from tests.make import operators as make
from tests.make.operators import IMAGE, toy_call

RUN = "manual__1"


def place(folder: Path) -> Platform:
    """A platform that runs steps in pods, in a folder of its own."""
    return Platform(runner="pod", state=folder / "var", store=file_uri(folder / "store"), features_image=IMAGE)


def deployment(folder: Path) -> dict[tuple[Any, str], Any]:
    """What stands for ``platform`` and ``ledger`` in the modules that ask for them."""
    where, book = place(folder), make.ledger(folder)
    return {
        (module, name): (lambda found=found: found)
        for module in (seam, payload_pod)
        for name, found in (("platform", where), ("ledger", book))
    }


def task(folder: Path, config: Path, does: str = "work", gate: str = "", **arguments: Any) -> Any:
    """A pod task of the toy step."""
    return payload_pod.PayloadPodOperator(
        task_id="train", call=toy_call(folder, does, gate), inputs={}, config_file=str(config), **arguments
    )


def context(attempt: int = 1, state: str = "running", run: str = RUN) -> Any:
    """What Airflow gives to a task, whose state it knows."""
    pushed: dict[str, Any] = {}

    def states(run_ids: list[str], task_ids: list[str], **_: Any) -> Mapping[str, Any]:
        return {run_ids[0]: {task_ids[0]: state}}

    ti = SimpleNamespace(
        dag_id="toy",
        task_id="train",
        run_id=run,
        map_index=-1,
        try_number=attempt,
        get_task_states=states,
        xcom_push=lambda key, value: pushed.update({key: value}),
    )
    return {"ti": ti, "run_id": run, "dag": SimpleNamespace(dag_id="toy")}


def outcomes(book: Ledger) -> list[str | None]:
    """How the attempts ended, oldest first."""
    return [attempt.outcome for attempt in reversed(book.status())]


if __name__ == "__main__":
    where, cluster_config, wait_at = (Path(word) for word in sys.argv[1:])
    for (module, name), value in deployment(where).items():
        setattr(module, name, value)
    task(where, cluster_config, gate=str(wait_at)).execute(context())
