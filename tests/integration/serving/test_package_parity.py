"""Packages from real exports: parity with the reference answers, golden requests, digests that must fit."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest

from artifacts import store
from artifacts.refs import file_digest, sha256
from artifacts.step import DataFault
from feature_repo.contract import DatasetRef
from serving.contract import PackageRef, ScrambleSpec
from serving.engines.onnxruntime import load
from serving.package import describe, golden_tensors, package, read_content, read_golden, unservable
from serving.scramble import scramble
from tests.make import serving as make


def test_a_package_holds_what_its_reference_says(packaged: PackageRef) -> None:
    artifact = store.read_ref(packaged)
    content = read_content(artifact)
    assert PackageRef(uri=packaged.uri, digest=packaged.digest, **artifact.manifest.facts) == packaged
    assert content.onnx_digest == packaged.onnx_digest == file_digest(artifact.file("model.onnx"))
    assert packaged.parity.status == "pass"
    assert content.verdicts[-1] == packaged.parity


def test_golden_requests_cover_single_preferred_and_largest_batches(packaged: PackageRef) -> None:
    golden = read_golden(store.read_ref(packaged))
    sizes = [len(request) for request in golden.requests]
    assert sizes == [1] * 12 + [32] * 6 + [make.MAX_BATCH] * 2
    rows, engine = golden_tensors(golden), load(store.read_ref(packaged).file("model.onnx"))
    assert np.isnan(rows.numeric[5]).all(), "nulls must survive JSON"
    assert (rows.numeric[1] == np.inf).all()
    assert (rows.numeric[3] == -np.inf).all()
    text = store.read_ref(packaged).file("golden.json").read_text()
    json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))
    for request in golden.requests:
        places = list(request)
        found = engine.run(rows.numeric[places], rows.categorical[places])
        assert np.abs(found - rows.score[places]).max() < 1e-6


def test_the_same_spec_gives_the_same_bytes(dataset: DatasetRef, tmp_path: Path) -> None:
    spec = make.version(tmp_path, dataset).spec
    assert package(spec).digest == package(spec.model_copy(update={"output": spec.output + "-again"})).digest


def test_answers_that_differ_from_torchs_are_refused_with_the_worst_row(dataset: DatasetRef, tmp_path: Path) -> None:
    version = make.version(tmp_path, dataset)
    with store.publish(version.onnx.uri, "onnx") as draft:
        make.onnx_model(draft.path / "model.onnx")
        with np.load(store_path(version) / "parity.npz") as arrays:
            score = arrays["score"].copy()
            score[17] += 0.01
            np.savez(draft.path / "parity.npz", **{**arrays, "score": score})
    assert draft.manifest is not None
    changed = version.onnx.model_copy(update={"digest": draft.manifest.digest})
    with pytest.raises(DataFault, match=r"G7 export parity.*worst row 17"):
        package(version.spec.model_copy(update={"onnx": changed}))


def store_path(version: make.Version) -> Path:
    return store.read_ref(version.onnx).path


def test_parts_of_different_versions_are_refused(dataset: DatasetRef, tmp_path: Path) -> None:
    spec = make.version(tmp_path, dataset).spec
    other = spec.final.model_copy(update={"digest": sha256(b"other"), "training_key": sha256(b"other key")})
    with pytest.raises(DataFault) as caught:
        package(spec.model_copy(update={"final": other}))
    assert len(caught.value.problems) == 2
    wrong = spec.onnx.model_copy(update={"onnx_digest": sha256(b"another model")})
    with pytest.raises(DataFault, match=r"model\.onnx: digest is"):
        package(spec.model_copy(update={"onnx": wrong}))


def test_a_graph_with_a_frozen_batch_is_not_servable(tmp_path: Path) -> None:
    graph = describe(make.onnx_model(tmp_path / "frozen.onnx", batch=2))
    assert not graph.batches
    assert unservable(graph, make.signature())
    assert unservable(describe(make.onnx_model(tmp_path / "free.onnx")), make.signature()) == []


def test_a_scrambled_package_is_consistent_and_another_model(packaged: PackageRef, tmp_path: Path) -> None:
    made = scramble(ScrambleSpec(package=packaged, output=(tmp_path / "scrambled").as_uri()))
    again = scramble(ScrambleSpec(package=packaged, output=(tmp_path / "again").as_uri()))
    artifact = store.read_ref(made)
    assert made.digest == again.digest, "seeded"
    assert made.onnx_digest != packaged.onnx_digest
    assert made.training_key != packaged.training_key
    assert made.onnx_digest == file_digest(artifact.file("model.onnx"))
    assert made.parity.status == "pass"
    onnx.checker.check_model(onnx.load(artifact.file("model.onnx")))
