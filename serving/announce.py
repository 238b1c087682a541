"""Posts an asset event through Airflow's REST API, as a user of its own whose password never leaves this module."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
from pydantic import JsonValue

TIMEOUT_SECONDS = 30.0


class AnnouncementRefused(RuntimeError):
    """Airflow answered, but did not take the event; the text says what to change."""


def announce(
    airflow: str,
    username: str,
    password_file: Path,
    asset: str,
    extra: Mapping[str, JsonValue],
    *,
    transport: httpx.BaseTransport | None = None,
) -> int:
    """Posts one event for the asset of that name and returns the event's id.

    ``password_file`` is Airflow's JSON file ``{username: password}``. Raises AnnouncementRefused when Airflow says no,
    and ConnectionError when it does not answer.
    """
    password = _password(password_file, username)
    try:
        with httpx.Client(base_url=airflow, timeout=TIMEOUT_SECONDS, transport=transport) as client:
            answer = client.post("/auth/token", json={"username": username, "password": password})
            token = _checked(answer, f"log in as '{username}'")["access_token"]
            client.headers["Authorization"] = f"Bearer {token}"
            answer = client.get("/api/v2/assets", params={"name_pattern": asset})
            found = [entry["id"] for entry in _checked(answer, "list assets")["assets"] if entry["name"] == asset]
            if not found:
                raise AnnouncementRefused(f"Airflow knows no asset '{asset}'; is the DAG that consumes it parsed?")
            answer = client.post("/api/v2/assets/events", json={"asset_id": found[0], "extra": dict(extra)})
            return int(_checked(answer, f"post an event for '{asset}' (needs the role op)")["id"])
    except httpx.TransportError as error:
        raise ConnectionError(f"{airflow} does not answer ({type(error).__name__})") from error


def _password(path: Path, username: str) -> str:
    try:
        return str(json.loads(path.read_text())[username])
    except (OSError, ValueError, KeyError) as error:
        raise AnnouncementRefused(f"{path}: holds no password of '{username}' ({type(error).__name__})") from None


def _checked(answer: httpx.Response, act: str) -> dict[str, Any]:
    if answer.is_server_error:
        raise ConnectionError(f"Airflow answered HTTP {answer.status_code} when asked to {act}")
    if not answer.is_success:
        raise AnnouncementRefused(f"Airflow refused to {act}: HTTP {answer.status_code}")
    return dict(answer.json())
