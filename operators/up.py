"""``make up``: starts the embedded stack in the background and returns when every part answers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import httpx

from artifacts.settings import ROOT
from operators.prepare import prepare, prepared_environment
from operators.stack import running

START_SECONDS = 180.0
CLAIM_SECONDS = 10.0  # for the supervisor to take its pid file
POLL_SECONDS = 0.5


def _answers(url: str, good: Callable[[httpx.Response], bool]) -> bool:
    try:
        return good(httpx.get(url, timeout=5))
    except httpx.HTTPError:
        return False


def _airflow_healthy(response: httpx.Response) -> bool:
    parts = ("metadatabase", "scheduler", "triggerer", "dag_processor")
    return response.is_success and all(response.json()[part]["status"] == "healthy" for part in parts)


def waiting_for(env: Mapping[str, str]) -> list[str]:
    """The parts of the stack that do not answer yet."""
    parts: dict[str, tuple[str, Callable[[httpx.Response], bool]]] = {
        "Airflow": (f"{env['PERENNIAL_AIRFLOW']}/api/v2/monitor/health", _airflow_healthy),
        "Triton": (f"http://{env['PERENNIAL_TRITON_HTTP']}/v2/health/ready", lambda r: r.is_success),
        "gateway": (f"{env['PERENNIAL_GATEWAY']}/v2/health/live", lambda r: r.is_success),
    }
    return [name for name, (url, good) in parts.items() if not _answers(url, good)]


def mode(state: Path, clock: str | None, schedule: str | None) -> tuple[str, str]:
    """The clock and the schedule that a state lives by: chosen at its first start, and the same ever after.

    Raises SystemExit when another clock is asked for: history written by one clock means nothing by the other.
    """
    path = state / "mode.json"
    known = json.loads(path.read_text()) if path.exists() else {}
    chosen = {"clock": clock or known.get("clock", "wall"), "schedule": schedule or known.get("schedule", "on")}
    if known and known["clock"] != chosen["clock"]:
        raise SystemExit(
            f"up: {state} lives by the {known['clock']} clock, not by the {chosen['clock']} clock; choose another folder with "
            "PERENNIAL_STATE, or remove this one with `make clean`"
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(chosen))
    return chosen["clock"], chosen["schedule"]


def start(state: Path, clock: str | None, schedule: str | None) -> dict[str, str]:
    """Prepares and starts the stack, waits until it is healthy, loads what is live, and returns its environment.

    A stack that runs already, or is starting, is left as it is. Raises SystemExit with the log's path when it ends or
    does not answer.
    """
    env = prepared_environment(state, *mode(state, clock, schedule))
    prepare(env)
    log = state / "logs" / "stack.log"
    if running(state / "stack.pid") is None:
        log.parent.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "operators.stack", "--pid-file", str(state / "stack.pid"), "honcho", "start"]
        with log.open("ab") as output:
            subprocess.Popen(  # noqa: S603  our own supervisor
                command,
                env=env,
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
    begun = time.monotonic()
    while missing := waiting_for(env):
        seconds = time.monotonic() - begun
        if seconds > CLAIM_SECONDS and running(state / "stack.pid") is None:
            raise SystemExit(f"up: the stack has ended; the last lines of {log} say why")
        if seconds > START_SECONDS:
            raise SystemExit(f"up: no answer from {', '.join(missing)} after {START_SECONDS:.0f} s; see {log}")
        time.sleep(POLL_SECONDS)
    reload = [sys.executable, "-m", "operators.reload"]
    if subprocess.run(reload, env=env, cwd=ROOT, check=False).returncode:  # noqa: S603  our own module
        raise SystemExit("up: what is live could not be loaded into Triton; the lines above say why")
    return env


def links(env: Mapping[str, str]) -> dict[str, str]:
    """Where to look, and where the passwords lie."""
    return {
        "Airflow": f"{env['PERENNIAL_AIRFLOW']} (user admin, password in {env['AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE']})",
        "Gateway": f"{env['PERENNIAL_GATEWAY']}/v2/models/flight_delay (bearer token in {env['PERENNIAL_GATEWAY_TOKEN_FILE']})",
        "Triton": f"http://{env['PERENNIAL_TRITON_HTTP']}/v2",
        "State": env["PERENNIAL_STATE"],
    }


def main() -> None:
    """Starts the stack on the clock and the schedule that the environment asks for."""
    state = Path(os.environ.get("PERENNIAL_STATE", ROOT / "var"))
    env = start(state.absolute(), os.environ.get("PERENNIAL_CLOCK"), os.environ.get("PERENNIAL_SCHEDULE"))
    for name, where in links(env).items():
        print(f"{name:8} {where}")  # noqa: T201  what the command is for


if __name__ == "__main__":
    main()
