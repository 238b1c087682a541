"""Builders of serving values: a tiny ONNX model made without torch, the export and package around it."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from artifacts import store
from artifacts.refs import file_digest, file_uri, sha256
from feature_repo.contract import DatasetRef
from serving.contract import PackageRef, PackageSpec, RequestInput, Serving, Slo
from serving.engine_contract import EnginePolicy
from serving.engines.interface import run_all
from serving.engines.onnxruntime import load
from serving.package import package
from tests.make import gates
from tests.make import training as make
from training.contract import CategoricalInput, FitRef, OnnxRef, Signature
from training.encoding import encode
from training.recipes.flight_delay import COLUMNS, MODEL

PLAIN = EnginePolicy(candidates=("onnxruntime",), rounds=0)
"""The engine as exported, untimed: the same bytes every time."""
MAX_BATCH = 64
HIDDEN = 8


def signature() -> Signature:
    return Signature(
        numeric=COLUMNS.numeric,
        categorical=tuple(
            CategoricalInput(name=name, vocabulary=make.WORDS.get(name, ())) for name in COLUMNS.categorical
        ),
        max_batch=MAX_BATCH,
    )


def onnx_model(path: Path, seed: int = 0, noise: float = 0.0, batch: int | None = None) -> Path:
    """A graph that knows the signal of ``make.training.rows``: NaN becomes 0, large values are cut, one hidden layer, a sigmoid.

    ``noise`` perturbs its weights; ``batch`` freezes the first dimension.
    """
    generator = np.random.default_rng(seed)
    n, m = len(COLUMNS.numeric), len(COLUMNS.categorical)
    signal = COLUMNS.numeric.index("origin__late_share_3h")
    carrier = n + COLUMNS.categorical.index("flight__carrier")
    code = 1 + make.WORDS["flight__carrier"].index("B6")
    first = np.zeros((n + m, HIDDEN), dtype=np.float32)
    first[signal, 0], first[signal, 1] = 1.0, -1.0  # relu(x) and relu(-x), so that the sum is linear
    first[carrier, 2] = 1.0
    first += noise * generator.normal(size=first.shape).astype(np.float32)
    last = np.zeros((HIDDEN, 1), dtype=np.float32)
    last[:3, 0] = (1.5, -1.5, 0.5 / code)
    last += noise * generator.normal(size=last.shape).astype(np.float32)
    weights = {
        "zero": np.zeros(1, dtype=np.float32),
        "least": np.array(-20, dtype=np.float32),
        "most": np.array(20, dtype=np.float32),
        "first": first,
        "first_bias": np.zeros(HIDDEN, dtype=np.float32),
        "last": last,
        "last_bias": np.array([-1.7], dtype=np.float32),
    }
    nodes = [
        helper.make_node("IsNaN", ["numeric"], ["absent"]),
        helper.make_node("Where", ["absent", "zero", "numeric"], ["known"]),
        helper.make_node("Clip", ["known", "least", "most"], ["filled"]),
        helper.make_node("Cast", ["categorical"], ["codes"], to=TensorProto.FLOAT),
        helper.make_node("Concat", ["filled", "codes"], ["joined"], axis=1),
        helper.make_node("Gemm", ["joined", "first", "first_bias"], ["hidden"]),
        helper.make_node("Relu", ["hidden"], ["active"]),
        helper.make_node("Gemm", ["active", "last", "last_bias"], ["logit"]),
        helper.make_node("Sigmoid", ["logit"], ["score"]),
    ]
    free = "batch" if batch is None else batch
    graph = helper.make_graph(
        nodes,
        "tiny",
        [
            helper.make_tensor_value_info("numeric", TensorProto.FLOAT, [free, n]),
            helper.make_tensor_value_info("categorical", TensorProto.INT64, [free, m]),
        ],
        [helper.make_tensor_value_info("score", TensorProto.FLOAT, [free, 1])],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), path)
    return path


def serving_block() -> Serving:
    return Serving(
        request=(RequestInput(name="carrier", datatype="BYTES"),),
        request_view="flight",
        routing_key="carrier",
        slo=Slo(latency_p99_ms=1000, requests_per_second=50),  # tests share the machine; limits have tests of their own
        engines=PLAIN,
    )


@dataclass(frozen=True)
class Version:
    """One version: its training set, final fit, export, and the spec that packages it."""

    dataset: DatasetRef
    final: FitRef
    onnx: OnnxRef
    spec: PackageSpec


def version(folder: Path, dataset: DatasetRef, *, name: str = "one", noise: float = 0.0, seed: int = 0) -> Version:
    """A version whose export and evaluation are true: parity rows and log loss come from the model itself."""
    rows = make.rows(days=30, per_day=40)
    key = sha256(f"training {name}".encode())
    window = make.windows(dataset)
    final = gates.fit_ref(
        "final", training_key=key, dataset=dataset, columns=COLUMNS, model=MODEL, digest=sha256(name.encode())
    )
    uri = file_uri(folder / f"onnx-{name}")
    with store.publish(uri, "onnx") as draft:
        path = onnx_model(draft.path / "model.onnx", seed=seed, noise=noise)
        numeric, categorical = encode({k: v[:300] for k, v in rows.items()}, signature())
        numeric[1], numeric[3], numeric[5] = np.inf, -np.inf, np.nan  # edge rows, as a real export has
        score = run_all(load(path), numeric, categorical, MAX_BATCH)
        np.savez(draft.path / "parity.npz", numeric=numeric, categorical=categorical, score=score, real=268)
        digest = file_digest(path)
        chosen = [window.test_first <= day <= window.test_last for day in rows["day"]]
        tested = {k: [v for v, keep in zip(values, chosen, strict=True) if keep] for k, values in rows.items()}
        found = run_all(load(path), *encode(tested, signature()), MAX_BATCH).astype(np.float64)
    label = np.asarray(tested["label"])
    loss = float(-np.mean(np.log(np.where(label == 1, found, 1 - found))))
    exported = OnnxRef(
        uri=uri,
        digest=draft.manifest.digest,  # type: ignore[union-attr]  # set by publish
        model=MODEL,
        training_key=key,
        fit_digest=final.digest,
        dataset_digest=dataset.digest,
        onnx_digest=digest,
        signature=signature(),
        parity_rows=300,
    )
    evaluation = gates.first_evaluation(
        training_key=key, final=gates.scores(loss), test_first=window.test_first, test_last=window.test_last
    )
    spec = PackageSpec(
        onnx=exported,
        final=final,
        evaluation=evaluation,
        serving=serving_block(),
        partition=dataset.partition,
        verdicts=(),
        output=file_uri(folder / f"package-{name}"),
    )
    return Version(dataset, final, exported, spec)


def packaged(folder: Path, dataset: DatasetRef, **kind: Any) -> PackageRef:
    """A published package (see ``version``)."""
    return package(version(folder, dataset, **kind).spec)


def stage_time(seconds: float) -> dt.timedelta:
    """A time-out, in the contract's type."""
    return dt.timedelta(seconds=seconds)
