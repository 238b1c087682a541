"""A whole embedded stack for the end-to-end tests: its own state, free ports, cron every minute, the replay clock."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from artifacts.clock import DataClock
from artifacts.settings import ROOT, settings
from operators import ledger as ledger_module
from operators import live, stack, up
from operators.airflow_client import AirflowClient
from operators.pipelines import pipeline
from operators.settings import platform

ROW = pipeline("flight_delay")
PARTITION = dt.date(2013, 3, 31)


def forget() -> None:
    """Makes this process read its settings anew."""
    for cached in (settings, platform, live.records, ledger_module.ledger):
        cached.cache_clear()


class Stack:
    """The running stack, and the ways to ask it things."""

    def __init__(self, env: dict[str, str], state: Path) -> None:
        self.env, self.state = env, state
        passwords = Path(env["AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE"])
        self.airflow = AirflowClient(env["PERENNIAL_AIRFLOW"], "demo", passwords)

    def stop(self) -> None:
        stack.stop(self.state / "stack.pid")


@pytest.fixture(scope="module")
def loop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    state = tmp_path_factory.mktemp("stack") / "var"
    before = dict(os.environ)
    os.environ["PATH"] = f"{ROOT / '.venv' / 'bin'}:{os.environ['PATH']}"
    os.environ.pop("AIRFLOW_HOME", None)
    try:
        env = up.prepared_environment(state, "replay", "* * * * *")
        up.prepare(env)
        os.environ.update(env)
        forget()
        DataClock("replay", live.records()).advance(ROW.calendar.as_of(PARTITION))
        running = Stack(up.start(state, "replay", "* * * * *"), state)
        yield running
        running.stop()
    finally:
        os.environ.clear()
        os.environ.update(before)
        forget()
