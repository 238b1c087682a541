from __future__ import annotations

import subprocess
import sys

import pytest

from artifacts.settings import ROOT


@pytest.mark.parametrize("module", ["catalogue", "contract"])
def test_what_recipes_import_is_light(module: str) -> None:
    heavy = {"numpy", "pyarrow", "pandas", "feast", "pyspark", "great_expectations", "torch"}
    code = f"import sys, feature_repo.{module}; print(sorted({heavy!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
