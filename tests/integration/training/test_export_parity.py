"""The graph: imputes, ignores impossible codes, answers as torch does at any batch size, and is refused when it does not."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from artifacts import store
from artifacts.refs import file_uri
from artifacts.step import DataFault
from tests.make import training as make
from training.contract import ExportSpec, FitRef, Signature
from training.encoding import encode
from training.export import EDGE_ROWS, export, require_parity, require_signature
from training.fit import open_fit
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

    path = tmp_path / "model.onnx"
    shutil.copy(artifact.file("model.onnx"), path)
    with pytest.raises(RuntimeError, match="differs from torch"):
        require_parity(path, ref.signature, numeric, categorical, score + np.float32(0.01))
    with pytest.raises(RuntimeError, match="the signature says"):
        require_signature(path, ref.signature.model_copy(update={"numeric": ("x",)}))


def test_a_window_with_too_few_rows_for_parity_is_refused(final: FitRef, tmp_path: Path) -> None:
    spec = ExportSpec(fit=final, windows=make.windows(final.dataset), parity_rows=301, output=file_uri(tmp_path / "x"))
    with pytest.raises(DataFault, match="parity needs 301"):
        export(spec)
