"""The throw-away server: it loads first, it says what a version costs in memory, and it is gone afterwards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psutil
import pytest

from artifacts import store
from artifacts.refs import local_path
from artifacts.step import DataFault, TryAgain
from serving.contract import PackageRef, StageSpec, TritonServer, UnstageSpec
from serving.rehearsal import stage_rehearsed, throw_away
from serving.triton import connect, unstage
from tests.integration.serving.conftest import VENV
from tests.integration.serving.test_triton_stage import repacked
from tests.make import serving as make

pytestmark = pytest.mark.triton


def spec(package: PackageRef, name: str, server: TritonServer, **changes: Any) -> StageSpec:
    fields = {"warm_requests": 5, "rehearsal": VENV, **changes}
    return StageSpec(package=package, name=name, triton=server, **fields)


def servers() -> set[int]:
    return {p.pid for p in psutil.process_iter(["name"]) if p.info["name"] in {"tritonserver", "triton_python_b"}}


@pytest.mark.covers("field-reports 108")
def test_what_the_throw_away_server_refuses_never_reaches_the_live_one(
    triton: TritonServer, packaged: PackageRef, tmp_path: Path
) -> None:
    broken = make.onnx_model(tmp_path / "model.onnx").read_bytes().replace(b"Sigmoid", b"Sigmoix")
    ref = repacked(packaged, tmp_path / "broken", broken)
    root = local_path(triton.repository)
    assert root is not None
    before = servers()
    with connect(triton, 5) as client:
        known = set(client.states())
        with pytest.raises(DataFault, match=r"Triton cannot load it as 'rehearsed_v1'.*Sigmoix"):
            stage_rehearsed(spec(ref, "rehearsed_v1", triton))
        assert set(client.states()) == known, "the live server has heard of it"
    assert not (root / "rehearsed_v1").exists()
    assert servers() == before, "the throw-away server is still there"


@pytest.mark.covers("field-reports 108")
def test_a_version_that_passes_is_staged_with_its_memory(triton: TritonServer, packaged: PackageRef) -> None:
    before = servers()
    found = stage_rehearsed(spec(packaged, "rehearsed_v2", triton))
    assert found.servable is not None
    figures = found.servable.figures
    assert figures["golden"] == 20
    assert 0 < float(figures["memory_before_mib"] or 0) < float(figures["memory_after_mib"] or 0)
    unstage(UnstageSpec(name="rehearsed_v2", triton=triton))
    assert len(servers()) <= len(before) + 1, "the throw-away server is still there"  # the live stub may take its time


def test_a_server_that_cannot_start_asks_for_another_try(tmp_path: Path) -> None:
    with pytest.raises(TryAgain, match="no tritonserver there"), throw_away(tmp_path):
        pytest.fail("it started")


def test_without_an_environment_nothing_is_rehearsed(triton: TritonServer, packaged: PackageRef) -> None:
    found = stage_rehearsed(spec(packaged, "rehearsed_v3", triton, rehearsal=None))
    assert found.servable is not None
    assert "memory_after_mib" not in found.servable.figures
    assert store.read_ref(packaged).manifest.digest == packaged.digest
    unstage(UnstageSpec(name="rehearsed_v3", triton=triton))
