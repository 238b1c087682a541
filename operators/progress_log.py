"""Passes a running step's progress on to a log."""

from __future__ import annotations

import time
from typing import Any, Protocol

from pydantic import ValidationError

from artifacts.step import Progress, progress_uri
from artifacts.store import read_bytes
from operators.steps import PlannedStep

POLL_SECONDS = 0.5
PROGRESS_STEP = 0.05
PROGRESS_SECONDS = 15.0


class Log(Protocol):
    """Where lines go: a logger of the standard library or of Airflow."""

    def info(self, event: str, *args: Any) -> Any:
        """Writes one line."""


class ProgressTeller:
    """Logs a step's progress when it moved by 5 percentage points, or every 15 seconds while it moves at all."""

    def __init__(self, step: PlannedStep, log: Log) -> None:
        self._uri = progress_uri(step.result_uri)
        self._log = log
        self._module = step.module
        self._told = Progress(fraction=0, doing="")
        self.state: Progress | None = None
        self._told_at = self._asked_at = time.monotonic()

    def tell(self) -> None:
        """Reads progress.json at most twice a second and logs it when it is worth a line."""
        now = time.monotonic()
        if now - self._asked_at < POLL_SECONDS:
            return
        self._asked_at = now
        try:
            state = Progress.model_validate_json(read_bytes(self._uri))
        except (OSError, ValidationError):
            return
        self.state = state
        moved = state.fraction - self._told.fraction >= PROGRESS_STEP
        if moved or (state != self._told and now - self._told_at >= PROGRESS_SECONDS):
            eta = f", {state.eta_seconds:.0f} s to go" if state.eta_seconds is not None else ""
            self._log.info("%s: %3.0f %% %s%s", self._module, 100 * state.fraction, state.doing, eta)
            self._told, self._told_at = state, now
