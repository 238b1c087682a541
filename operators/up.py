"""``make up``: starts the embedded stack in the background and returns when every part answers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import httpx
import psutil

from artifacts.settings import ROOT
from operators.prepare import prepare, prepared_environment
from operators.stack import Taken, claim, descendants, running

START_SECONDS = 180.0
PORT_TRIES = 4
TAKEN_WORDS = b"already in use"  # what the kernel says, and every server with it
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

    A stack that runs already is left as it is. Raises SystemExit when somebody else is starting it just now, and with the
    log's path when it ends or does not answer.
    """
    try:
        alone = claim(state / "up.pid")
    except Taken as error:
        raise SystemExit(
            f"up: the stack in {state} is being started already (pid {error.holder}); wait for that, or choose another "
            "folder with PERENNIAL_STATE"
        ) from None
    with alone:
        chosen = mode(state, clock, schedule)

        def prepared() -> dict[str, str]:
            env = prepared_environment(state, *chosen)
            prepare(env)
            return env

        env = bring_up(state, prepared)
        reload = [sys.executable, "-m", "operators.reload"]
        if subprocess.run(reload, env=env, cwd=ROOT, check=False).returncode:  # noqa: S603  our own module
            raise SystemExit("up: what is live could not be loaded into Triton; the lines above say why")
        return env


def bring_up(
    state: Path, environment: Callable[[], dict[str, str]], command: Sequence[str] = ("honcho", "start")
) -> dict[str, str]:
    """Starts the stack unless it runs, and returns the environment in which it answers.

    ``environment`` chooses the ports. When another program takes one of them before the stack has bound it, they are
    chosen again, ``PORT_TRIES`` times in all.
    """
    log = state / "logs" / "stack.log"
    for number in range(1, PORT_TRIES + 1):
        env = environment()
        log.parent.mkdir(parents=True, exist_ok=True)
        said_before = log.stat().st_size if log.exists() else 0
        supervisor = None if running(state / "stack.pid") else _launch(state, env, log, command)
        if _healthy(state, env, log, supervisor):
            return env
        if number == PORT_TRIES or not lost_a_port(log, said_before):
            break
        print(f"up: another program took a port meanwhile; choosing again ({number} of {PORT_TRIES - 1})")  # noqa: T201
    raise SystemExit(f"up: the stack has ended; the last lines of {log} say why")


def _launch(state: Path, env: Mapping[str, str], log: Path, command: Sequence[str]) -> subprocess.Popen[bytes]:
    words = [sys.executable, "-m", "operators.stack", "--pid-file", str(state / "stack.pid"), *command]
    with log.open("ab") as output:
        return subprocess.Popen(  # noqa: S603  our own supervisor
            words, env=env, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )


def _healthy(state: Path, env: Mapping[str, str], log: Path, supervisor: subprocess.Popen[bytes] | None) -> bool:
    """Waits until every part answers; False when the stack has ended instead."""
    begun = time.monotonic()
    while True:
        ended = supervisor.poll() is not None if supervisor else running(state / "stack.pid") is None
        if ended:
            return False
        missing = waiting_for(env) or strangers(running(state / "stack.pid"), env)
        if not missing:
            return True
        if time.monotonic() - begun > START_SECONDS:
            raise SystemExit(f"up: no answer from {', '.join(missing)} after {START_SECONDS:.0f} s; see {log}")
        time.sleep(POLL_SECONDS)


def strangers(pid: int | None, env: Mapping[str, str]) -> list[str]:
    """The ports of the stack that none of its own processes listens on: what answers there is another program."""
    own: set[int] = set()
    for process in descendants(pid) if pid else []:
        with suppress(psutil.Error):
            own |= {one.laddr.port for one in process.net_connections("tcp") if one.status == psutil.CONN_LISTEN}
    wanted = {name: int(env[f"PORT_{name.upper()}"]) for name in ("airflow", "gateway", "triton_http", "triton_grpc")}
    return [f"{name} on port {port}" for name, port in wanted.items() if port not in own]


def lost_a_port(log: Path, since: int) -> bool:
    """Whether a part of the stack has said, after this place in its log, that its port is taken."""
    with log.open("rb") as file:
        file.seek(since)
        return TAKEN_WORDS in file.read().lower()


def links(env: Mapping[str, str]) -> dict[str, str]:
    """Where to look, and where the passwords lie."""
    return {
        "Airflow": f"{env['PERENNIAL_AIRFLOW']} (user admin, password in {env['AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE']})",
        "Gateway": f"{env['PERENNIAL_GATEWAY']}/v2/models/flight_delay (bearer token in {env['PERENNIAL_GATEWAY_TOKEN_FILE']})",
        "Triton": f"http://{env['PERENNIAL_TRITON_HTTP']}/v2",
        "Drift": f"{env['PERENNIAL_AIRFLOW']}/perennial/timeline/ (a page per model: scores, states, retrains, quality)",
        "Alerts": f"{env['PERENNIAL_AIRFLOW']}/perennial/alerts/alertmanager (bearer token in {env['PERENNIAL_ALERT_TOKEN_FILE']})",
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
