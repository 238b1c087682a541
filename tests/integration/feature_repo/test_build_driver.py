"""The build as a step of its own process, and what becomes of its driver (field reports, section 3)."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from artifacts import store
from artifacts.refs import file_uri, join
from artifacts.settings import ROOT
from artifacts.step import Failure, Progress
from feature_repo import spark, tables
from feature_repo.contract import ViewsRef
from tests.make import brute_views as brute
from tests.make import feature_repo as make

pytestmark = pytest.mark.spark

CALENDAR = make.calendar("2013-11-01", "2013-11-03")
BEGINS, ENDS = CALENDAR.starts(CALENDAR.first), CALENDAR.ends(CALENDAR.first.replace(day=3))
PATIENCE = 500  # seconds; a guard, not a measurement


class Step:
    """One build, running."""

    def __init__(self, root: Path, lake: str) -> None:
        root.mkdir()
        self.root, self.views = root, file_uri(root / "views")
        spec = make.build_spec(lake, self.views, BEGINS, ENDS, calendar=CALENDAR)
        (root / "spec.json").write_text(spec.model_dump_json())
        arguments = [
            sys.executable,
            "-m",
            "feature_repo.build",
            *(file_uri(root / name) for name in ("spec.json", "result.json")),
        ]
        self.process = subprocess.Popen(arguments, cwd=ROOT, stderr=subprocess.DEVNULL)

    def driver(self) -> psutil.Process:
        """Spark's driver, once the step says that it builds."""
        until(self.builds)
        (found,) = (
            child for child in psutil.Process(self.process.pid).children(recursive=True) if child.name() == "java"
        )
        return found

    def builds(self) -> bool:
        assert self.process.poll() is None, "the step ended before it was seen to build"
        told = self.root / "progress.json"
        return told.exists() and Progress.model_validate_json(told.read_text()).doing == "building the views"


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> str:
    uri = file_uri(tmp_path_factory.mktemp("driver") / "lake")
    for day, content in brute.by_day(CALENDAR, brute.some_flights(2, BEGINS, 3, 60)).items():
        make.publish_raw(uri, day.isoformat(), content)
    return uri


@pytest.mark.covers("field-reports 44")
def test_row_44_a_build_that_loses_its_driver_is_no_success(lake: str, tmp_path: Path) -> None:
    """apache/airflow#41212: the driver was deleted in mid-job and the task was called a success."""
    step = Step(tmp_path / "lost", lake)
    step.driver().kill()
    assert step.process.wait(PATIENCE) != 0
    assert not (step.root / "result.json").exists()
    failure = Failure.model_validate_json((step.root / "failure.json").read_text())
    assert failure.kind in {"error", "try_again"}, "the data is not at fault, so it may be tried again"
    assert store.children(step.views) == ()


@pytest.mark.covers("field-reports 46", "field-reports 48", "field-reports 49")
def test_rows_46_48_49_the_driver_ends_with_its_step_and_a_second_try_is_whole(lake: str, tmp_path: Path) -> None:
    """apache/airflow#67118: a killed task leaves the driver; #39524, spark-operator#1252: task or driver never ends."""
    killed = Step(tmp_path / "killed", lake)
    driver = killed.driver()
    killed.process.kill()
    killed.process.wait(PATIENCE)
    driver.wait(PATIENCE)
    assert not (killed.root / "result.json").exists()
    again = Step(tmp_path / "again", lake)
    driver = again.driver()
    assert again.process.wait(PATIENCE) == 0
    driver.wait(PATIENCE)
    result = ViewsRef.model_validate_json((again.root / "result.json").read_text())
    counts = [store.manifest(join(again.views, day)).facts["rows"] for day in store.children(again.views)]
    assert result.rows == {view: sum(count[view] for count in counts) for view in tables.VIEW_SCHEMAS}
    assert all(result.rows.values())


def test_row_49_the_session_is_stopped_after_an_error_too() -> None:
    """kubeflow/spark-operator#1252: a driver stayed up because nobody closed its session."""
    seen = []

    def fail() -> None:
        with spark.session("tests") as session:
            seen.append(session.sparkContext)
            assert not seen[0]._jsc.sc().isStopped()
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert seen[0]._jsc is None
