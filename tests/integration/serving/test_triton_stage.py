"""Staging into a real tritonserver: idempotent, verified, cleaned up when it fails."""

from __future__ import annotations

import hashlib
import importlib.util
import shutil
import subprocess
from pathlib import Path
from typing import Any

import psutil
import pytest
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from artifacts import store
from artifacts.refs import file_digest, local_path
from artifacts.step import DataFault, TryAgain
from feature_repo.contract import DatasetRef
from serving import package as packaging
from serving.contract import PackageRef, StageSpec, TritonServer, UnstageSpec
from serving.engine_contract import EnginePolicy
from serving.folder import publish_folder, remove_folder
from serving.triton import READY, connect, stage, unstage
from tests.integration.serving.conftest import VENV
from tests.make import serving as make
from tests.make.operators import alive
from tests.make.toy_step import wait_for

pytestmark = pytest.mark.triton


def spec(package: PackageRef, name: str, server: TritonServer, **changes: Any) -> StageSpec:
    fields = {"warm_requests": 5, "unload_timeout": make.stage_time(8)}
    return StageSpec(package=package, name=name, triton=server, **{**fields, **changes})


def states(server: TritonServer) -> dict[str, str]:
    with connect(server, 5) as client:
        return {name: state for name, (state, _) in client.states().items()}


def folder(server: TritonServer, name: str) -> Path:
    root = local_path(server.repository)
    assert root is not None
    return root / name


def repacked(package: PackageRef, target: Path, model: bytes) -> PackageRef:
    """The same package with another model file, which its reference knows."""
    artifact = store.read_ref(package)
    with store.publish(target.as_uri(), packaging.KIND) as draft:
        shutil.copytree(artifact.path, draft.path, dirs_exist_ok=True)
        (draft.path / packaging.MODEL).write_bytes(model)
        (draft.path / packaging.ENGINES).unlink()
        digest = file_digest(draft.path / packaging.MODEL)
    assert draft.manifest is not None
    return package.model_copy(update={"uri": target.as_uri(), "digest": draft.manifest.digest, "onnx_digest": digest})


def test_staging_twice_is_one_version_and_unstaging_leaves_nothing(triton: TritonServer, packaged: PackageRef) -> None:
    first = stage(spec(packaged, "flight_delay_v1", triton))
    made = folder(triton, "flight_delay_v1").stat().st_ino
    again = stage(spec(packaged, "flight_delay_v1", triton))
    assert first.golden == again.golden == 20
    assert first.servable is not None
    assert first.servable.status == "pass"
    assert folder(triton, "flight_delay_v1").stat().st_ino == made, "the folder of a READY name was replaced"
    for _ in range(2):
        ref = unstage(UnstageSpec(name="flight_delay_v1", triton=triton))
        assert "flight_delay_v1" not in ref.ready
    assert not folder(triton, "flight_delay_v1").exists()


@pytest.mark.covers("field-reports 101")
def test_a_name_is_never_used_for_another_package(
    triton: TritonServer, packaged: PackageRef, dataset: DatasetRef, tmp_path: Path
) -> None:
    stage(spec(packaged, "flight_delay_v2", triton))
    other = make.packaged(tmp_path, dataset, name="other", noise=0.05)
    with pytest.raises(DataFault, match="take the next version"):
        stage(spec(other, "flight_delay_v2", triton))
    assert states(triton)["flight_delay_v2"] == READY
    assert stage(spec(packaged, "flight_delay_v2", triton)).golden == 20


@pytest.mark.covers("field-reports 103")
def test_a_folder_that_a_killed_attempt_left_is_taken_over_but_not_another_packages(
    triton: TritonServer, packaged: PackageRef, dataset: DatasetRef, tmp_path: Path
) -> None:
    publish_folder(spec(packaged, "flight_delay_v3", triton), store.read_ref(packaged))
    other = make.packaged(tmp_path, dataset, name="other", noise=0.05)
    with pytest.raises(DataFault, match="holds another package"):
        stage(spec(other, "flight_delay_v3", triton))
    assert stage(spec(packaged, "flight_delay_v3", triton)).golden == 20


def test_a_server_that_is_down_asks_for_another_try(triton: TritonServer, packaged: PackageRef) -> None:
    down = triton.model_copy(update={"grpc": "127.0.0.1:9"})
    for call in (
        lambda: stage(spec(packaged, "flight_delay_v4", down)),
        lambda: unstage(UnstageSpec(name="flight_delay_v4", triton=down)),
    ):
        with pytest.raises(TryAgain, match=r"127\.0\.0\.1:9"):
            call()
    assert not folder(triton, "flight_delay_v4").exists()


def test_a_model_that_cannot_be_loaded_is_refused_and_cleaned_up(
    triton: TritonServer, packaged: PackageRef, tmp_path: Path
) -> None:
    frozen = make.onnx_model(tmp_path / "model.onnx").read_bytes()
    broken = frozen.replace(b"Sigmoid", b"Sigmoix")
    with pytest.raises(DataFault, match=r"Triton cannot load it as 'flight_delay_v5'.*Sigmoix"):
        stage(spec(repacked(packaged, tmp_path / "broken", broken), "flight_delay_v5", triton))
    assert not folder(triton, "flight_delay_v5").exists()


def test_the_server_refuses_a_model_that_was_exchanged_after_it_was_published(
    triton: TritonServer, packaged: PackageRef, tmp_path: Path
) -> None:
    wanted = spec(packaged, "flight_delay_v6", triton)
    publish_folder(wanted, store.read_ref(packaged))
    make.onnx_model(folder(triton, "flight_delay_v6") / "1" / "model.onnx", noise=0.5)
    with connect(triton, 5) as client, pytest.raises(Exception, match="the configuration says sha256:"):
        client.load("flight_delay_v6", 30)


def test_golden_requests_that_do_not_match_are_refused_and_unloaded(
    triton: TritonServer, packaged: PackageRef, tmp_path: Path
) -> None:
    other = make.onnx_model(tmp_path / "model.onnx", noise=0.2, seed=3).read_bytes()
    with pytest.raises(DataFault, match="G8 servable: a golden score is off"):
        stage(spec(repacked(packaged, tmp_path / "other", other), "flight_delay_v7", triton))
    assert states(triton).get("flight_delay_v7") != READY
    assert not folder(triton, "flight_delay_v7").exists()


def test_a_package_that_is_not_what_its_reference_says_is_refused(triton: TritonServer, packaged: PackageRef) -> None:
    with pytest.raises(DataFault, match="digest is"):
        stage(spec(packaged.model_copy(update={"onnx_digest": packaged.digest}), "flight_delay_v8", triton))
    with pytest.raises(store.ArtifactCorrupt):
        stage(spec(packaged.model_copy(update={"digest": packaged.onnx_digest}), "flight_delay_v8", triton))


def kill_stub(name: str) -> None:
    stubs = [
        process
        for process in psutil.process_iter(["cmdline"])
        if (words := process.info["cmdline"] or [])
        and "stub" in words[0]
        and any(f"/{name}/" in word for word in words)
    ]
    assert len(stubs) == 1, stubs
    stubs[0].kill()
    wait_for(lambda: not alive(stubs[0].pid), 5)  # the server is its parent and does not reap it


def test_a_version_whose_process_was_killed_is_loaded_once_more(triton: TritonServer, packaged: PackageRef) -> None:
    stage(spec(packaged, "flight_delay_v9", triton))
    kill_stub("flight_delay_v9")
    assert states(triton)["flight_delay_v9"] == READY, "Triton's index does not see it, which is why we ask"
    assert stage(spec(packaged, "flight_delay_v9", triton)).golden == 20


def test_a_version_whose_process_was_killed_can_be_unstaged(triton: TritonServer, packaged: PackageRef) -> None:
    stage(spec(packaged, "flight_delay_v10", triton))
    kill_stub("flight_delay_v10")
    seconds = make.stage_time(2)
    ref = unstage(UnstageSpec(name="flight_delay_v10", triton=triton, unload_timeout=seconds))
    assert "flight_delay_v10" not in ref.ready
    assert not folder(triton, "flight_delay_v10").exists()


def test_a_repository_on_an_object_store_gets_the_same_files(packaged: PackageRef) -> None:
    server = TritonServer(grpc="127.0.0.1:9", http="127.0.0.1:9", repository="memory://triton")
    wanted = spec(packaged, "flight_delay_v11", server)
    publish_folder(wanted, store.read_ref(packaged))
    where = "memory://triton/flight_delay_v11"
    assert set(store.objects(where)) == {"config.pbtxt", "1/model.onnx", "1/model.py"}
    remove_folder(server, "flight_delay_v11")
    assert store.objects(where) == ()


def installed_beside_the_server(module: str) -> bool:
    return (
        subprocess.run(
            [VENV / "bin" / "python", "-I", "-c", f"import {module}"], check=False, capture_output=True
        ).returncode
        == 0
    )


def of_engine(engine: str, dataset: DatasetRef, folder: Path) -> PackageRef:
    """A package that only one engine was tried for."""
    wanted = make.version(folder, dataset).spec
    engines = EnginePolicy(candidates=(engine,), rounds=0)
    return packaging.package(
        wanted.model_copy(update={"serving": wanted.serving.model_copy(update={"engines": engines})})
    )


@pytest.mark.skipif(importlib.util.find_spec("openvino") is None, reason="openvino is not installed here; make setup")
def test_a_package_is_served_by_the_engine_that_was_chosen(
    triton: TritonServer, dataset: DatasetRef, tmp_path: Path
) -> None:
    if not installed_beside_the_server("openvino"):
        pytest.skip("openvino is not installed beside the server; make setup")
    ref = of_engine("openvino", dataset, tmp_path)
    assert stage(spec(ref, "flight_delay_v12", triton)).golden == 20
    with connect(triton, 5) as client:
        assert client.parameters("flight_delay_v12")["engine"] == "openvino"
    unstage(UnstageSpec(name="flight_delay_v12", triton=triton))


def test_an_engine_that_is_not_installed_beside_the_server_is_refused_by_name(
    triton: TritonServer, packaged: PackageRef
) -> None:
    wanted = spec(packaged, "flight_delay_v13", triton)
    publish_folder(wanted, store.read_ref(packaged))
    script = folder(triton, "flight_delay_v13") / "1" / "model.py"
    script.write_text(
        script.read_text().replace("import onnxruntime as ort", "import onnxruntime_that_is_absent as ort")
    )
    with (
        connect(triton, 5) as client,
        pytest.raises(Exception, match="'onnxruntime' is not installed where the server"),
    ):
        client.load("flight_delay_v13", 30)
    remove_folder(triton, "flight_delay_v13")


def test_a_production_folder_holds_the_graph_its_checksum_and_no_script(packaged: PackageRef, tmp_path: Path) -> None:
    server = TritonServer(grpc="127.0.0.1:9", http="127.0.0.1:9", repository=tmp_path.as_uri(), flavour="cpu")
    publish_folder(spec(packaged, "flight_delay_v14", server), store.read_ref(packaged))
    made = tmp_path / "flight_delay_v14"
    assert sorted(path.name for path in made.rglob("*") if path.is_file()) == ["config.pbtxt", "model.onnx"]
    checksum = hashlib.md5((made / "1" / "model.onnx").read_bytes(), usedforsecurity=False).hexdigest()
    config = text_format.Parse((made / "config.pbtxt").read_text(), model_config_pb2.ModelConfig())
    (agent,) = config.model_repository_agents.agents
    assert dict(agent.parameters) == {"MD5:1/model.onnx": checksum}
