"""``python -m operators.rollback MODEL --reason WHY``: goes back to the previous version, and says what answers now.

The click in the form of ``release__<model>`` as one command: the same run, the same golden requests, the same ledger row.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Any

from operators import live
from operators.airflow_client import AirflowClient
from operators.pipelines import pipeline
from operators.ports import LOOPBACK, remembered
from operators.settings import platform

ENDED = {"success", "failed"}
POLL_SECONDS = 1.0
PATIENCE_SECONDS = 900.0  # a load that is tried three times, and the run that may be before it


def client(user: str) -> AirflowClient:
    """A client of the Airflow that the environment names, else of the stack in the state folder."""
    state = platform().state.absolute()
    port = remembered(state / "ports.json").get("airflow")
    url = f"http://{LOOPBACK}:{port}" if port and "PERENNIAL_AIRFLOW" not in os.environ else platform().airflow
    passwords = os.environ.get(
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE", state / "secrets" / "airflow-passwords.json"
    )
    return AirflowClient(url, user, Path(passwords))


def roll_back(airflow: AirflowClient, model: str, reason: str, patience: float = PATIENCE_SECONDS) -> str:
    """Starts the rollback and returns how its run ended; raises TimeoutError when it has not after ``patience`` seconds."""
    dag_id = f"release__{model}"
    run_id = airflow.trigger(dag_id, {"rollback": True, "reason": reason})
    until = time.monotonic() + patience
    while (run := airflow.run(dag_id, run_id))["state"] not in ENDED:
        if time.monotonic() > until:
            raise TimeoutError(f"{run_id} of {dag_id} is {run['state']} after {patience:.0f} s; look at it in Airflow")
        time.sleep(POLL_SECONDS)
    return str(run["state"])


def main(argv: list[str], airflow: Any = None) -> int:
    """Runs the command; 0 when the previous version answers now."""
    parser = argparse.ArgumentParser(prog="python -m operators.rollback", description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--reason", required=True)
    parser.add_argument("--user", default="admin", help="Airflow user; the ledger names it")
    arguments = parser.parse_args(argv)
    if not arguments.reason.strip():
        parser.error("--reason: is empty; a rollback says why")
    row = pipeline(arguments.model)
    wanted = live.routing(row.model)[0].previous
    if wanted is None:
        parser.error(f"'{row.model}' has no previous version to go back to")
    ended = roll_back(airflow or client(arguments.user), row.model, arguments.reason)
    champion = live.routing(row.model)[0].champion
    done = ended == "success" and champion is not None and champion.package.digest == wanted.package.digest
    words = f"{champion.name if champion else 'nothing'} answers '{row.model}' now"
    if not done:
        words += f"; the rollback to {wanted.name} ended as {ended}, the log of its failed task in release__{row.model} says why"
    print(words)  # noqa: T201  what the command is for
    return 0 if done else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
