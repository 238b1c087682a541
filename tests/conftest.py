"""What holds for every test: an Airflow home of its own, and examples that are the same in each run."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from pathlib import Path

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
