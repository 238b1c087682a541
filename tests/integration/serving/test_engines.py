"""Real engines on a real graph: built, proven, timed and chosen; what a machine or a graph is not for is said, not hidden."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from artifacts import store
from artifacts.refs import file_digest
from artifacts.step import DataFault
from feature_repo.contract import DatasetRef
from serving.candidates import Labelled, Proof, Tried, try_engines
from serving.contract import PackageRef
from serving.engine_contract import EngineName, EnginePolicy, EngineRow, EngineTable, ParityPolicy
from serving.engines.catalogue import MODULES, kind_of
from serving.engines.interface import Sources, Unsupported, run_all
from serving.engines.onnxruntime import load
from serving.package import engine_file, open_engine, package, read_engines
from serving.parity import ParityRows
from tests.make import serving as make

QUICK = EnginePolicy(rounds=3, round_seconds=0.002)
needs_openvino = pytest.mark.skipif(
    importlib.util.find_spec("openvino") is None, reason="openvino is not installed here; make setup"
)


def sources(path: Path, rows: int = 256) -> Sources:
    generator = np.random.default_rng(3)
    signature = make.signature()
    numeric = generator.normal(size=(rows, len(signature.numeric))).astype(np.float32)
    categorical = generator.integers(0, 3, size=(rows, len(signature.categorical)))
    return Sources(path, numeric, categorical, make.MAX_BATCH)


def proof(given: Sources) -> Proof:
    numeric = np.resize(given.numeric, (288, given.numeric.shape[1]))
    categorical = np.resize(given.categorical, (288, given.categorical.shape[1]))
    score = run_all(load(given.model), numeric, categorical, make.MAX_BATCH)
    label = (score > np.median(score)).astype(np.float64)
    return Proof(
        ParityRows(numeric, categorical, score, 256),
        Labelled(numeric, categorical, label, "classification"),
        ParityPolicy(),
    )


@pytest.fixture(scope="module")
def tried(tmp_path_factory: pytest.TempPathFactory) -> Tried:
    given = sources(make.onnx_model(tmp_path_factory.mktemp("engines") / "model.onnx", noise=0.1))
    return try_engines(given, proof(given), QUICK)


def row(tried: Tried, name: EngineName) -> EngineRow:
    found = tried.table.row(name)
    assert found is not None
    return found


def test_every_engine_has_its_row_and_those_that_passed_their_times(tried: Tried) -> None:
    assert [found.engine for found in tried.table.rows] == list(MODULES)
    for found in tried.table.rows:
        assert found.reason
        assert (found.milliseconds.keys() == {1, 32, 64}) == (found.status == "passed"), found
        assert (found.parity is None) == (found.status == "not built")
    assert tried.table.chosen in tried.engines
    assert tried.table.machine


def test_the_plain_engine_passes(tried: Tried) -> None:
    assert row(tried, "onnxruntime").status == "passed"
    assert "onnxruntime" in row(tried, "onnxruntime").versions


@pytest.mark.covers("field-reports 97")
def test_dynamic_int8_answers_by_its_neighbours_and_is_refused(tried: Tried) -> None:
    dynamic = row(tried, "onnxruntime-int8-dynamic")
    assert dynamic.status == "failed"
    assert "an answer depends on its batch" in dynamic.reason
    assert dynamic.deciding_rise is not None


def test_static_int8_is_the_same_for_any_neighbours_and_is_measured(tried: Tried) -> None:
    static = row(tried, "onnxruntime-int8-static")
    assert static.parity is not None
    assert static.parity.figures["spread"] == 0
    assert static.deciding_rise is not None
    assert static.auc_loss is not None


@needs_openvino
def test_openvino_answers_as_torch_does(tried: Tried) -> None:
    assert row(tried, "openvino").status == "passed"


@pytest.mark.skipif(importlib.util.find_spec("openvino") is not None, reason="openvino is installed here")
def test_an_engine_that_is_not_installed_is_a_row_with_its_reason(tried: Tried) -> None:
    assert row(tried, "openvino").status == "not built"
    assert "not installed here" in row(tried, "openvino").reason


def test_where_no_gpu_is_tensorrt_is_reported_as_not_built(tried: Tried, monkeypatch: pytest.MonkeyPatch) -> None:
    found = row(tried, "tensorrt")
    assert found.status == "not built"
    assert found.milliseconds == {}
    monkeypatch.setattr("shutil.which", lambda _: None)
    with pytest.raises(Unsupported, match="nvidia-smi and trtexec not found, there is no NVIDIA GPU"):
        kind_of("tensorrt").build(sources(Path("model.onnx")))


def odd_graph(path: Path) -> Path:
    """A graph with an operator of a domain that no engine has."""
    graph = onnx.load(make.onnx_model(path))
    graph.graph.node[-1].CopyFrom(helper.make_node("Mystery", ["logit"], ["score"], domain="example.org"))
    graph.opset_import.append(helper.make_opsetid("example.org", 1))
    onnx.save(graph, path)
    return path


@needs_openvino
@pytest.mark.parametrize("broken", [True, False])
def test_openvino_says_what_it_cannot_compile(tmp_path: Path, broken: bool) -> None:
    path = odd_graph(tmp_path / "model.onnx")
    if broken:
        path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(Unsupported, match=r"OpenVINO cannot compile model\.onnx"):
        kind_of("openvino").build(sources(path))


@pytest.mark.parametrize("name", ["onnxruntime-int8-dynamic", "onnxruntime-int8-static"])
def test_a_graph_without_layers_is_no_int8_engine(tmp_path: Path, name: EngineName) -> None:
    n, m = len(make.signature().numeric), len(make.signature().categorical)
    graph = helper.make_graph(
        [
            helper.make_node("ReduceMean", ["numeric"], ["mean"], keepdims=1, noop_with_empty_axes=0),
            helper.make_node("Cast", ["categorical"], ["codes"], to=TensorProto.FLOAT),
            helper.make_node("ReduceSum", ["codes", "axes"], ["sum"], keepdims=1),
            helper.make_node("Add", ["mean", "sum"], ["score"]),
        ],
        "flat",
        [
            helper.make_tensor_value_info("numeric", TensorProto.FLOAT, ["batch", n]),
            helper.make_tensor_value_info("categorical", TensorProto.INT64, ["batch", m]),
        ],
        [helper.make_tensor_value_info("score", TensorProto.FLOAT, ["batch", 1])],
        [onnx.numpy_helper.from_array(np.array([1], dtype=np.int64), "axes")],
    )
    path = tmp_path / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), path)
    with pytest.raises(Unsupported, match="no layer"):
        kind_of(name).build(sources(path))


def test_static_int8_needs_calibration_rows(tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match="needs calibration rows"):
        kind_of("onnxruntime-int8-static").build(sources(make.onnx_model(tmp_path / "model.onnx"), rows=0))


def test_a_package_holds_the_table_and_the_chosen_engines_file_alone(dataset: DatasetRef, tmp_path: Path) -> None:
    spec = make.version(tmp_path, dataset).spec
    serving = spec.serving.model_copy(update={"engines": QUICK})
    ref = package(spec.model_copy(update={"serving": serving}))
    artifact = store.read_ref(ref)
    table = read_engines(artifact)
    assert [found.engine for found in table.rows] == list(MODULES)
    chosen = table.row(table.chosen)
    assert chosen is not None
    assert chosen.parity == ref.parity
    kept = {"model.onnx", "signature.json", "golden.json", "package.json", "engines.json", *chosen.files}
    assert {entry.path for entry in artifact.manifest.files} == kept


def exchanged(packaged: PackageRef, target: Path, table: EngineTable) -> PackageRef:
    """The package with another table of engines."""
    artifact = store.read_ref(packaged)
    with store.publish(target.as_uri(), "package") as draft:
        for entry in artifact.manifest.files:
            (draft.path / entry.path).write_bytes(artifact.file(entry.path).read_bytes())
        (draft.path / "engines.json").write_text(table.model_dump_json())
    assert draft.manifest is not None
    return packaged.model_copy(update={"uri": target.as_uri(), "digest": draft.manifest.digest})


def test_an_engine_file_that_is_not_what_the_table_says_is_refused(packaged: PackageRef, tmp_path: Path) -> None:
    artifact = store.read_ref(packaged)
    assert engine_file(artifact, packaged) == ("onnxruntime", artifact.file("model.onnx"))
    (row,) = read_engines(artifact).rows
    wrong = row.model_copy(update={"files": {"model.onnx": file_digest(artifact.file("golden.json"))}})
    ref = exchanged(packaged, tmp_path / "wrong", EngineTable(rows=(wrong,)))
    with pytest.raises(DataFault, match=r"model\.onnx: digest is .*, the table of engines says"):
        open_engine(store.read_ref(ref), ref)


@pytest.mark.covers("field-reports 98")
def test_a_package_whose_engine_this_machine_cannot_load_is_refused(packaged: PackageRef, tmp_path: Path) -> None:
    artifact = store.read_ref(packaged)
    (row,) = read_engines(artifact).rows
    plan = row.model_copy(update={"engine": "tensorrt"})
    ref = exchanged(packaged, tmp_path / "plan", EngineTable(chosen="tensorrt", rows=(plan,)))
    with pytest.raises(DataFault, match="engine 'tensorrt'"):
        open_engine(store.read_ref(ref), ref)
