"""A cluster for each test, with a deployment that runs its steps there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import tenacity
from airflow.providers.cncf.kubernetes import kubernetes_helper_functions as provider

from operators import payload, pod_manager
from operators.ledger import Ledger
from tests.make import pod_tasks
from tests.make.kubernetes import Cluster, cluster


@dataclass
class Stand:
    """A cluster, its kubeconfig, a ledger and a folder, and a maker of pod tasks."""

    cluster: Cluster
    config: Path
    folder: Path
    ledger: Ledger
    task: Callable[..., Any]


@pytest.fixture
def stand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stand]:
    for (module, name), value in pod_tasks.deployment(tmp_path).items():
        monkeypatch.setattr(module, name, value)
    monkeypatch.setattr(provider, "_default_wait", tenacity.wait_none())
    monkeypatch.setattr(pod_manager, "LOG_CALL_SECONDS", (1, 0.3))
    with cluster(tmp_path) as (made, config):

        def task(does: str = "work", gate: str = "", **arguments: Any) -> Any:
            return pod_tasks.task(tmp_path, config, does, gate, **arguments)

        yield Stand(made, config, tmp_path, payload.ledger(), task)
