"""What holds for every test: an Airflow home of its own, and examples that are the same in each run."""

from __future__ import annotations

import atexit
import logging
import os
import shutil
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings

ROOT = Path(__file__).resolve().parents[1]

# Airflow reads these when it is imported; nobody's own home may be touched.
if "AIRFLOW_HOME" not in os.environ:
    os.environ["AIRFLOW_HOME"] = tempfile.mkdtemp(prefix="perennial-airflow-")
    atexit.register(shutil.rmtree, os.environ["AIRFLOW_HOME"], ignore_errors=True)
# What tests read through the cache stays out of the working folder.
if "PERENNIAL_CACHE" not in os.environ:
    os.environ["PERENNIAL_CACHE"] = tempfile.mkdtemp(prefix="perennial-cache-")
    atexit.register(shutil.rmtree, os.environ["PERENNIAL_CACHE"], ignore_errors=True)
os.environ.setdefault("AIRFLOW__CORE__LOAD_EXAMPLES", "False")
os.environ.setdefault("AIRFLOW__CORE__DAGS_FOLDER", str(ROOT / "dags"))

# No wall clock: a deadline per example would measure the machine.
settings.register_profile("perennial", deadline=None, derandomize=True)
settings.load_profile("perennial")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish() -> None:
    """Ends Spark's JVM and the connections to it while logging still works.

    A stopped session leaves both for the interpreter's end, whose destructors then log to streams that pytest has closed.
    """
    context = getattr(sys.modules.get("pyspark"), "SparkContext", None)
    gateway = getattr(context, "_gateway", None)
    if gateway is None:
        return
    logging.getLogger("py4j").setLevel(logging.WARNING)  # it tells the end of each connection
    gateway.shutdown()
    context._gateway = context._jvm = None
    gateway.proc.stdin.close()  # the JVM ends with it
    gateway.proc.wait(20)
