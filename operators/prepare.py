"""Makes the embedded machine's state once: folders, secrets, passwords, ports and migrated databases. Safe to repeat."""

from __future__ import annotations

import base64
import json
import os
import secrets
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from artifacts.records import connect
from artifacts.settings import ROOT, Settings
from operators.environment import PORTS, USERS, environment
from operators.ledger import migrate
from operators.ports import pick
from operators.stack import running

AIRFLOW_PREPARE = ("-m", "operators.airflow_database")
MLFLOW_PREPARE = ("-m", "training.mlflow_store")


def _private(path: Path, content: str) -> str:
    """Writes a file that only its owner can read, unless it is there; returns its content."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not path.exists():
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(content)
    return path.read_text()


def _secrets(folder: Path) -> dict[str, str]:
    made = {
        "fernet": base64.urlsafe_b64encode(secrets.token_bytes(32)).decode(),
        "api": secrets.token_urlsafe(48),
        "jwt": secrets.token_urlsafe(96),
    }
    return {name: _private(folder / f"{name}.secret", value) for name, value in made.items()}


def prepared_environment(state: Path, clock: str, schedule: str) -> dict[str, str]:
    """The environment of the stack, with this machine's own secrets and ports; creates what is missing."""
    folder = state / "secrets"
    made = _secrets(folder)
    _private(folder / "gateway.token", secrets.token_urlsafe(32))
    _private(folder / "alerts.token", secrets.token_urlsafe(32))
    _private(folder / "airflow-passwords.json", json.dumps({name: secrets.token_urlsafe(16) for name in USERS}))
    ports = pick(PORTS, state / "ports.json", in_use=running(state / "stack.pid") is not None)
    path = f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}"  # the Procfile says airflow and python
    return {**os.environ, **environment(ROOT, state, ports, made, clock, schedule), "PATH": path}


def _once(stamp: Path, version: str, command: list[str], env: dict[str, str], log: Path) -> None:
    if stamp.exists() and stamp.read_text() == version:
        return
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        done = subprocess.run(command, env=env, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT, check=False)  # noqa: S603
    if done.returncode:
        raise SystemExit(f"prepare: `{' '.join(command)}` ended with {done.returncode}; see {log}")
    stamp.write_text(version)


def prepare(env: dict[str, str]) -> None:
    """Migrates the three databases, side by side; does nothing where that has been done."""
    settings = Settings(state=Path(env["PERENNIAL_STATE"]))
    home = Path(env["AIRFLOW_HOME"])
    for folder in (settings.state, home, settings.state / "triton", Path(settings.online)):
        folder.mkdir(parents=True, exist_ok=True)
    migrate(connect(settings.database))
    logs = settings.state / "logs"
    version = (ROOT / "locks" / "perennial.txt").read_text()
    jobs = (
        (home / ".migrated", [sys.executable, *AIRFLOW_PREPARE], logs / "airflow-migrate.log"),
        (settings.state / ".mlflow-migrated", [sys.executable, *MLFLOW_PREPARE], logs / "mlflow-migrate.log"),
    )
    with ThreadPoolExecutor(len(jobs)) as pool:
        for job in [pool.submit(_once, stamp, version, command, env, log) for stamp, command, log in jobs]:
            job.result()
