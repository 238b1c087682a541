"""Airflow's REST API, as far as Perennial's own tools need it: log in, start a run, ask how runs are."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx

PATIENCE_SECONDS = 60.0
PAUSE_SECONDS = 1.0


class AirflowClient:
    """A logged-in client; the token is renewed when it has expired."""

    def __init__(self, base_url: str, user: str, passwords: Path, transport: httpx.BaseTransport | None = None) -> None:
        self._http = httpx.Client(base_url=base_url, timeout=30, transport=transport)
        self._user = user
        self._passwords = passwords

    def _login(self) -> None:
        password = json.loads(self._passwords.read_text())[self._user]
        answer = self._http.post("/auth/token", json={"username": self._user, "password": password})
        answer.raise_for_status()
        self._http.headers["Authorization"] = f"Bearer {answer.json()['access_token']}"

    def _ask(self, method: str, path: str, **arguments: Any) -> dict[str, Any]:
        """One call. A server that is busy or restarting is asked again for a while: every call here may be repeated."""
        until = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                answer = self._once(method, f"/api/v2{path}", arguments)
                said = f"{answer.status_code}: {answer.text[:500]}"
                if not answer.is_error:
                    found: dict[str, Any] = answer.json() if answer.content else {}
                    return found
                if answer.status_code < httpx.codes.INTERNAL_SERVER_ERROR or time.monotonic() > until:
                    raise RuntimeError(f"Airflow answered {said} to {method} {path}")
            except httpx.TransportError as error:
                if time.monotonic() > until:
                    raise RuntimeError(f"Airflow does not answer {method} {path}: {error!r}") from error
            time.sleep(PAUSE_SECONDS)

    def _once(self, method: str, path: str, arguments: Mapping[str, Any]) -> httpx.Response:
        if "Authorization" not in self._http.headers:
            self._login()
        answer = self._http.request(method, path, **arguments)
        if answer.status_code == httpx.codes.UNAUTHORIZED:
            self._login()
            answer = self._http.request(method, path, **arguments)
        return answer

    def dags(self) -> set[str]:
        """The ids of the DAGs that the dag-processor has taken in."""
        return {dag["dag_id"] for dag in self._ask("GET", "/dags", params={"limit": 100})["dags"]}

    def trigger(self, dag_id: str, conf: Mapping[str, Any]) -> str:
        """Starts a run by hand, as a person would with the form; returns its id."""
        run_id = f"manual__{uuid.uuid4().hex}"  # ours, so that asking twice starts one run
        body = {"dag_run_id": run_id, "logical_date": None, "conf": dict(conf)}
        try:
            self._ask("POST", f"/dags/{dag_id}/dagRuns", json=body)
        except RuntimeError:
            if all(run["dag_run_id"] != run_id for run in self.runs(dag_id)):
                raise
        return run_id

    def run(self, dag_id: str, run_id: str) -> dict[str, Any]:
        """One run: state, run_type, and when it began and ended."""
        return self._ask("GET", f"/dags/{dag_id}/dagRuns/{run_id}")

    def runs(self, dag_id: str) -> list[dict[str, Any]]:
        """The newest runs of a DAG, newest first."""
        found: list[dict[str, Any]] = self._ask(
            "GET", f"/dags/{dag_id}/dagRuns", params={"order_by": "-run_after", "limit": 50}
        )["dag_runs"]
        return found

    def failed_runs(self) -> list[dict[str, Any]]:
        """The newest failed runs of all DAGs, newest first."""
        found: list[dict[str, Any]] = self._ask(
            "GET", "/dags/~/dagRuns", params={"state": "failed", "order_by": "-run_after", "limit": 100}
        )["dag_runs"]
        return found

    def tasks(self, dag_id: str, run_id: str) -> list[dict[str, Any]]:
        """The task instances of a run."""
        found: list[dict[str, Any]] = self._ask(
            "GET", f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances", params={"limit": 200}
        )["task_instances"]
        return found

    def assets(self) -> list[dict[str, Any]]:
        """The assets that Airflow knows: id, name, uri."""
        found: list[dict[str, Any]] = self._ask("GET", "/assets", params={"limit": 100})["assets"]
        return found

    def post_event(self, asset_id: int, extra: Mapping[str, Any]) -> None:
        """Posts an asset event, as the log compactor does."""
        self._ask("POST", "/assets/events", json={"asset_id": asset_id, "extra": dict(extra)})
