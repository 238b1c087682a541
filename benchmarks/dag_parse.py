"""What parsing all DAG files costs on top of importing Airflow, in a fresh process each time."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile

from artifacts.settings import ROOT
from benchmarks.report import report

RUNS = 5
AIRFLOW = "import airflow.sdk, airflow.dag_processing.dagbag, airflow.providers.standard.sensors.python"
PARSE = f"bag = airflow.dag_processing.dagbag.DagBag(dag_folder={str(ROOT / 'dags')!r}); assert bag.dags and not bag.import_errors"
PROGRAM = f"import time; {AIRFLOW}; begun = time.perf_counter(); {{work}}; print(time.perf_counter() - begun)"


def seconds(work: str, home: str) -> float:
    """The time of one piece of work in a process that has imported Airflow already."""
    env = {
        **os.environ,
        "AIRFLOW_HOME": home,
        "PYTHONPATH": str(ROOT),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__LOGGING__LOGGING_LEVEL": "ERROR",
    }
    done = subprocess.run(  # noqa: S603  our own program
        [sys.executable, "-c", PROGRAM.format(work=work)], env=env, capture_output=True, text=True, check=True
    )
    return float(done.stdout.split()[-1])


def main() -> None:
    """Measures nothing and parsing in turn."""
    with tempfile.TemporaryDirectory() as home:
        pairs = [(seconds("pass", home), seconds(PARSE, home)) for _ in range(RUNS + 1)][
            1:
        ]  # the first fills the page cache
    added = [parse - nothing for nothing, parse in pairs]
    report(
        "dag_parse",
        {"added_seconds": statistics.median(added), "worst_seconds": max(added)},
        {"added_seconds": "< 0.5"},
    )


if __name__ == "__main__":
    main()
