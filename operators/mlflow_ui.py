"""``make mlflow``: MLflow's pages over the stack's own database, for looking only; the steps do not need it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from artifacts.settings import ROOT, Settings
from operators.ports import LOOPBACK, remembered


def main() -> None:
    """Becomes the server on the port that the tasks' links lead to."""
    settings = Settings(state=Path(os.environ.get("PERENNIAL_STATE", ROOT / "var")).absolute())
    port = remembered(settings.state / "ports.json").get("mlflow")
    if port is None:
        raise SystemExit(f"mlflow: {settings.state} has no stack yet; run `make up` or `make demo` first")
    # Without its job runner it is two processes instead of ten.
    env = {**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true"}
    words = [sys.executable, "-m", "mlflow", "server", "--backend-store-uri", settings.mlflow, "--workers", "1"]
    os.execve(sys.executable, [*words, "--host", LOOPBACK, "--port", str(port)], env)  # noqa: S606  becomes the server


if __name__ == "__main__":
    main()
