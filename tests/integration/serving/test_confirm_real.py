"""The last question before the routes change, to a real tritonserver: what is lost, dead or another does not get traffic."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest

from serving.confirm import unanswered
from serving.contract import PackageRef, StageSpec, TritonServer, UnstageSpec
from serving.triton import stage, unstage
from tests.integration.serving.test_triton_stage import kill_stub, repacked

pytestmark = pytest.mark.triton
NAME = "confirmed_v1"


@pytest.fixture
def staged(triton: TritonServer, packaged: PackageRef) -> StageSpec:
    spec = StageSpec(package=packaged, name=NAME, triton=triton, warm_requests=1)
    stage(spec)
    return spec


def test_a_staged_version_answers_also_nulls_and_infinities(staged: StageSpec) -> None:
    assert unanswered(staged.triton, NAME, staged.package) is None


def test_another_package_under_this_name_is_found(staged: StageSpec, tmp_path: Path) -> None:
    other = repacked(staged.package, tmp_path / "other", b"another model")
    problem = unanswered(staged.triton, NAME, other)
    assert problem == f"'{NAME}' holds package {staged.package.digest}, not {other.digest}"


def test_a_version_whose_process_was_killed_does_not_pass(staged: StageSpec) -> None:
    kill_stub(NAME)
    problem = unanswered(staged.triton, NAME, staged.package)
    assert problem is not None
    assert f"'{NAME}' does not answer" in problem
    stage(staged)  # which revives it
    assert unanswered(staged.triton, NAME, staged.package) is None


def test_a_version_that_a_restarted_server_has_lost_does_not_pass(staged: StageSpec) -> None:
    unstage(UnstageSpec(name=NAME, triton=staged.triton, unload_timeout=dt.timedelta(seconds=10)))
    problem = unanswered(staged.triton, NAME, staged.package)
    assert problem is not None
    assert f"'{NAME}' does not answer: 4" in problem


def test_a_server_that_is_away_does_not_pass(staged: StageSpec) -> None:
    away = staged.triton.model_copy(update={"http": "127.0.0.1:9"})
    problem = unanswered(away, NAME, staged.package)
    assert problem is not None
    assert "Triton at 127.0.0.1:9 does not answer" in problem
