"""The graph: imputes, ignores impossible codes, answers as torch does at any batch size, and is refused when it does not."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

from artifacts import store
from artifacts.refs import file_digest, file_uri
from artifacts.step import DataFault
from tests.make import training as make
from training import graph as graphs
from training.contract import ExportSpec, FitRef, OnnxRef, Signature
from training.encoding import encode
from training.export import EDGE_ROWS, ParityRows, export, require_parity
from training.fit import Fit, open_fit
from training.graph import DATA_FILE, GraphFault, not_finite, require_signature
from training.train import train

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def final(tmp_path_factory: pytest.TempPathFactory) -> FitRef:
    folder = tmp_path_factory.mktemp("final")
    dataset = make.dataset(folder, per_day=60)
    found = train(make.train_spec(dataset, folder / "fit", fit="final", epochs=2))
    assert found is not None
    return found


def test_a_fit_answers_raw_rows_however_broken_they_are(final: FitRef) -> None:
    fit = open_fit(final)
    signature = fit.record.signature
    whole = {name: [0.5] for name in signature.numeric} | {item.name: ["B6"] for item in signature.categorical}
    numeric, categorical = encode(whole, signature)
    unknown = np.zeros_like(categorical)
    beyond = np.array([[len(item.vocabulary) + 1 for item in signature.categorical]])
    np.testing.assert_array_equal(fit.answers(numeric, unknown), fit.answers(numeric, beyond))
    np.testing.assert_array_equal(fit.answers(numeric, unknown), fit.answers(numeric, -beyond))
    for value in (np.nan, np.inf, -np.inf, 3e38):
        answer = fit.answers(np.full_like(numeric, value), categorical)
        assert answer.shape == (1, 1)
        assert 0 < answer[0, 0] < 1


def test_the_exported_graph_answers_as_torch_does(final: FitRef, tmp_path: Path) -> None:
    dataset_windows = make.windows(final.dataset)
    ref = export(ExportSpec(fit=final, windows=dataset_windows, output=file_uri(tmp_path / "onnx")))
    artifact = store.read_ref(ref)
    assert {entry.path for entry in artifact.manifest.files} == {"model.onnx", "signature.json", "parity.npz"}
    assert Signature.model_validate_json(artifact.file("signature.json").read_bytes()) == ref.signature
    graph = onnx.load(artifact.file("model.onnx"))
    origin = {prop.key: prop.value for prop in graph.metadata_props}
    assert (origin["training_key"], origin["fit"]) == (final.training_key, final.digest)
    assert graph.opset_import[0].version == 20

    with np.load(artifact.file("parity.npz")) as parity:
        numeric, categorical, score = parity["numeric"], parity["categorical"], parity["score"]
    assert len(score) == ref.parity_rows == 256 + EDGE_ROWS
    assert np.isnan(numeric).all(axis=1).any()
    assert (categorical > [len(item.vocabulary) for item in ref.signature.categorical]).any()
    session = onnxruntime.InferenceSession(artifact.file("model.onnx"), providers=["CPUExecutionProvider"])
    (alone,) = session.run(["score"], {"numeric": numeric[:1], "categorical": categorical[:1]})
    np.testing.assert_allclose(alone, score[:1], atol=1e-4)

    assert (ref.exporter, ref.refused) == ("dynamo", ())
    path = tmp_path / "model.onnx"
    shutil.copy(artifact.file("model.onnx"), path)
    with pytest.raises(GraphFault, match="at batch size 1 row 0 differs from torch"):
        require_parity(path, ref.signature, ParityRows(numeric, categorical, score + np.float32(0.01)))
    with pytest.raises(GraphFault, match="the signature says"):
        require_signature(path, ref.signature.model_copy(update={"numeric": ("x",)}), 20)
    with pytest.raises(GraphFault, match="opset 20, the spec says 21"):
        require_signature(path, ref.signature, 21)


def spec(final: FitRef, tmp_path: Path, **changes: Any) -> ExportSpec:
    whole = {"fit": final, "windows": make.windows(final.dataset), "output": file_uri(tmp_path / "onnx"), **changes}
    return ExportSpec.model_validate(whole)


def graph_of(ref: OnnxRef) -> onnx.ModelProto:
    return onnx.load(store.read_ref(ref).file("model.onnx"))


@pytest.mark.covers("field-reports 93", "field-reports 94")
@pytest.mark.parametrize("exporter", ["dynamo", "torchscript"])
def test_each_exporter_leaves_the_batch_free_and_is_asked_at_every_size(
    final: FitRef, tmp_path: Path, exporter: str
) -> None:
    ref = export(spec(final, tmp_path, exporters=(exporter,)))
    graph = graph_of(ref)
    assert all(tensor.type.tensor_type.shape.dim[0].dim_param for tensor in (*graph.graph.input, *graph.graph.output))
    path = store.read_ref(ref).file("model.onnx")
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    fit = open_fit(final)
    for size in (1, 2, 7, ref.signature.max_batch):
        numeric = np.full((size, len(ref.signature.numeric)), 0.5, dtype=np.float32)
        categorical = np.ones((size, len(ref.signature.categorical)), dtype=np.int64)
        (score,) = session.run(["score"], {"numeric": numeric, "categorical": categorical})
        np.testing.assert_allclose(score, fit.answers(numeric, categorical), atol=1e-6)


@pytest.mark.covers("field-reports 96")
def test_a_network_in_training_mode_is_not_exported(final: FitRef, tmp_path: Path) -> None:
    fit = open_fit(final)
    fit.network.train()
    with pytest.raises(RuntimeError, match="would keep its dropout"):
        graphs.write_graph(fit, spec(final, tmp_path), tmp_path / "model.onnx", "dynamo")


@pytest.mark.covers("field-reports 93", "field-reports 96")
def test_an_exporter_whose_graph_answers_otherwise_is_replaced_and_the_reason_is_kept(
    final: FitRef, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(fit: Fit, given: ExportSpec, path: Path, external: bool) -> None:
        graphs._torchscript(fit, given, path, external)
        graph = onnx.load(path)
        last = next(each for each in graph.graph.initializer if tuple(each.dims) == (1,))
        last.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(last) + 1, last.name))
        onnx.save(graph, path)

    monkeypatch.setitem(graphs.EXPORTERS, "dynamo", wrong)
    ref = export(spec(final, tmp_path))
    assert ref.exporter == "torchscript"
    (reason,) = ref.refused
    assert reason.startswith("dynamo: at batch size 1 row 0 differs from torch")
    assert store.read_ref(ref).manifest.facts["refused"] == [reason]
    assert {prop.key: prop.value for prop in graph_of(ref).metadata_props}["exporter"] == "torchscript"


@pytest.mark.covers("field-reports 93")
def test_a_frozen_batch_is_refused_with_a_line_per_exporter(
    final: FitRef, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def frozen(fit: Fit, given: ExportSpec, path: Path, external: bool) -> None:
        torch.onnx.export(
            fit.network,
            graphs._example(fit.record.signature),
            path,
            input_names=list(graphs.INPUTS),
            output_names=[graphs.OUTPUT],
            opset_version=given.opset,
            dynamo=True,
            external_data=external,
            verbose=False,
        )

    for exporter in graphs.EXPORTERS:
        monkeypatch.setitem(graphs.EXPORTERS, exporter, frozen)
    with pytest.raises(DataFault) as caught:
        export(spec(final, tmp_path))
    assert len(caught.value.problems) == 2
    assert all("has a frozen batch of 2; its first dimension must be free" in line for line in caught.value.problems)
    assert not store.exists(file_uri(tmp_path / "onnx" / "manifest.json"))


def test_weights_that_are_no_numbers_are_refused_by_name(
    final: FitRef, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fit = open_fit(final)
    with torch.no_grad():
        fit.network.head.weight[0, :3] = torch.nan  # type: ignore[union-attr, index]
    assert len(not_finite(fit.network.state_dict())) == 1
    monkeypatch.setattr("training.export.open_fit", lambda _: fit)
    with pytest.raises(DataFault, match=r"weights\.pt: 'head\.weight' holds 3 values of \d+ that are no finite"):
        export(spec(final, tmp_path))


@pytest.mark.parametrize("exporter", ["dynamo", "torchscript"])
def test_large_weights_lie_beside_the_graph_which_names_their_digest(
    final: FitRef, tmp_path: Path, exporter: str
) -> None:
    ref = export(spec(final, tmp_path, external_above_bytes=0, exporters=(exporter,)))
    artifact = store.read_ref(ref)
    graph = onnx.load(artifact.file("model.onnx"), load_external_data=False)
    props = {prop.key: prop.value for prop in graph.metadata_props}
    assert props["weights"] == file_digest(artifact.file(DATA_FILE))
    assert artifact.file(DATA_FILE).stat().st_size > 10_000, "the large weights are not in it"


def test_a_window_with_too_few_rows_for_parity_is_refused(final: FitRef, tmp_path: Path) -> None:
    spec = ExportSpec(fit=final, windows=make.windows(final.dataset), parity_rows=301, output=file_uri(tmp_path / "x"))
    with pytest.raises(DataFault, match="parity needs 301"):
        export(spec)
