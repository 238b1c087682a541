"""The archive of Spark's classes: it fits what set-up installed, and one that does not fit harms nobody."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from artifacts.settings import ROOT
from feature_repo.spark import ARCHIVE, JAVA_OPTIONS, java_options

pytestmark = pytest.mark.spark

COUNT = "from feature_repo import spark\nwith spark.session('tests') as found: print('rows', found.range(7).count())"


def count(options: str) -> subprocess.CompletedProcess[str]:
    """A session of its own process, since a JVM reads these options once."""
    return subprocess.run(
        [sys.executable, "-c", COUNT],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PERENNIAL_SPARK_JAVA_OPTIONS": options},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.skipif(not ARCHIVE.exists(), reason="set-up could make no archive with this Java")
def test_the_archive_that_set_up_made_is_taken() -> None:
    found = count(f"{java_options(ARCHIVE)} -Xshare:on")  # Java then refuses to start without it
    assert "rows 7" in found.stdout, found.stderr


def test_an_archive_that_does_not_fit_is_left_aside_without_a_word(tmp_path: Path) -> None:
    broken = tmp_path / "spark.jsa"
    broken.write_bytes(b"no archive" * 1000)
    found = count(java_options(broken))
    assert "rows 7" in found.stdout, found.stderr
    assert str(broken) not in found.stdout + found.stderr


def test_without_an_archive_none_is_named(tmp_path: Path) -> None:
    assert java_options(tmp_path / "spark.jsa") == JAVA_OPTIONS
