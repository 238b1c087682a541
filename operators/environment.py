"""The environment that the embedded stack's processes run in. Pure: values in, a mapping out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

USERS = {"admin": "admin", "compactor": "op", "demo": "op"}
"""Airflow users and roles: a person, the log compactor (it may post asset events), the demo's own clicks."""


def environment(
    root: Path, state: Path, ports: Mapping[str, int], secrets: Mapping[str, str], clock: str, schedule: str
) -> dict[str, str]:
    """Everything that the processes of the Procfile need, loopback only; ``ports`` has the keys of ``PORTS``."""
    home = state / "airflow"
    airflow = f"http://127.0.0.1:{ports['airflow']}"
    return {
        "PERENNIAL_STATE": str(state),
        "PERENNIAL_CLOCK": clock,
        "PERENNIAL_SCHEDULE": schedule,
        "PERENNIAL_TRITON_HTTP": f"127.0.0.1:{ports['triton_http']}",
        "PERENNIAL_TRITON_GRPC": f"127.0.0.1:{ports['triton_grpc']}",
        **{f"PORT_{name.upper()}": str(port) for name, port in ports.items()},
        "PERENNIAL_GATEWAY": f"http://127.0.0.1:{ports['gateway']}",
        "PERENNIAL_GATEWAY_TOKEN_FILE": str(state / "secrets" / "gateway.token"),
        "PERENNIAL_ALERT_TOKEN_FILE": str(state / "secrets" / "alerts.token"),
        "PERENNIAL_AIRFLOW": airflow,
        "PERENNIAL_MLFLOW_UI": f"http://127.0.0.1:{ports['mlflow']}",
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__DAGS_FOLDER": str(root / "dags"),
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(root / "plugins"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
        "AIRFLOW__CORE__PARALLELISM": "4",
        "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
        "AIRFLOW__CORE__FERNET_KEY": secrets["fernet"],
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": ",".join(f"{name}:{role}" for name, role in USERS.items()),
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(state / "secrets" / "airflow-passwords.json"),
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{airflow}/execution/",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{home / 'airflow.db'}",
        "AIRFLOW__API__HOST": "127.0.0.1",
        "AIRFLOW__API__PORT": str(ports["airflow"]),
        "AIRFLOW__API__BASE_URL": airflow,
        "AIRFLOW__API__SECRET_KEY": secrets["api"],
        "AIRFLOW__API_AUTH__JWT_SECRET": secrets["jwt"],
        "AIRFLOW__DAG_PROCESSOR__PARSING_PROCESSES": "1",
        "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "60",
        "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "60",
        "AIRFLOW__DAG_PROCESSOR__DAG_VERSION_INFLATION_CHECK_LEVEL": "error",
        "AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST": json.dumps([
            {
                "name": "perennial",
                "classpath": "airflow.dag_processing.bundles.local.LocalDagBundle",
                "kwargs": {"path": str(root / "dags")},
            }
        ]),
        "AIRFLOW__SCHEDULER__SCHEDULER_HEARTBEAT_SEC": "1",
        "AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.2",  # a chain of short tasks waits this long between two
        "AIRFLOW__SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "60",
        "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "120",
        "AIRFLOW__WORKERS__EXECUTION_API_TIMEOUT": "30",
        "AIRFLOW__LOGGING__LOGGING_LEVEL": "INFO",
        "AIRFLOW__LOGGING__BASE_LOG_FOLDER": str(home / "logs"),
        "AIRFLOW__LOGGING__DAG_PROCESSOR_CHILD_PROCESS_LOG_DIRECTORY": str(home / "logs" / "dag_processor"),
        "PYTHONPATH": str(root),
        "PYTHONDONTWRITEBYTECODE": "",  # compiled modules are kept: without them every step starts 10 s later
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "GX_ANALYTICS_ENABLED": "false",
        "DO_NOT_TRACK": "1",
        "FEAST_USAGE": "False",
        "OMP_NUM_THREADS": "1",
    }


PORTS = {
    "airflow": 8080,
    "gateway": 8010,
    "triton_http": 8000,
    "triton_grpc": 8001,
    "triton_metrics": 8002,
    "mlflow": 5000,
}
"""The ports of the embedded stack and the numbers that are tried first; one that is taken is replaced by a free one."""
