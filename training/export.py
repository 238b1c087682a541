"""Turns a final fit into one ONNX file with its normalisation inside, and proves that it answers as torch does."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
import torch

from artifacts.refs import file_digest
from artifacts.step import DataFault, progress, step
from artifacts.store import publish
from training.contract import ExportSpec, OnnxRef, Signature
from training.data import Encoded, encoded, read_rows
from training.fit import Fit, open_fit

MODEL_FILE, SIGNATURE_FILE, PARITY_FILE = "model.onnx", "signature.json", "parity.npz"
INPUTS, OUTPUT, BATCH = ("numeric", "categorical"), "score", "batch"
TRACED_BATCH = 2  # a dynamic dimension may not be traced with size 0 or 1 (field report 94)
EDGE_ROWS = 32
CHECKED_BATCHES = (1, 2, 7)
EXTREME = 3e38  # near the largest float32
ABSOLUTE_TOLERANCE, RELATIVE_TOLERANCE = 1e-4, 1e-3  # decisions.md 5, G7, fp32


def export(spec: ExportSpec) -> OnnxRef:
    """Exports, checks the graph against the signature and its answers against torch, then publishes."""
    fit = open_fit(spec.fit)
    signature = fit.record.signature
    progress(0.05, "choosing parity rows")
    numeric, categorical = parity_inputs(spec, signature)
    answers = fit.answers(numeric, categorical)
    with publish(spec.output, "onnx") as draft:
        path = draft.path / MODEL_FILE
        progress(0.2, "exporting the graph")
        write_graph(fit, spec, path)
        progress(0.8, "comparing ONNX Runtime with torch")
        require_signature(path, signature)
        require_parity(path, signature, numeric, categorical, answers)
        (draft.path / SIGNATURE_FILE).write_text(signature.model_dump_json(indent=1))
        with (draft.path / PARITY_FILE).open("wb") as file:
            np.savez(file, numeric=numeric, categorical=categorical, score=answers)
        onnx_digest = file_digest(path)
        draft.facts = {"training_key": spec.fit.training_key, "fit": spec.fit.digest, "opset": spec.opset}
    assert draft.manifest is not None  # noqa: S101  publish sets it
    return OnnxRef(
        uri=spec.output,
        digest=draft.manifest.digest,
        model=spec.fit.model,
        training_key=spec.fit.training_key,
        fit_digest=spec.fit.digest,
        dataset_digest=spec.fit.dataset.digest,
        onnx_digest=onnx_digest,
        signature=signature,
        parity_rows=len(answers),
    )


def parity_inputs(spec: ExportSpec, signature: Signature) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """Real rows spread evenly over the test window, then edge rows."""
    columns = spec.fit.columns
    rows = read_rows(spec.fit.dataset, [*columns.numeric, *columns.categorical], spec.fit.task)
    real = encoded(rows.between(spec.windows.test_first, spec.windows.test_last, "test"), signature)
    if len(real) < spec.parity_rows:
        raise DataFault([
            f"test window {spec.windows.test_first} to {spec.windows.test_last}: has {len(real)} rows, parity needs "
            f"{spec.parity_rows}; lengthen test_days or lower parity_rows"
        ])
    chosen = np.linspace(0, len(real) - 1, spec.parity_rows).astype(np.int64)
    edges = edge_rows(real, signature)
    numeric = np.concatenate([real.numeric[chosen], edges[0]])
    return numeric, np.concatenate([real.categorical[chosen], edges[1]])


def edge_rows(real: Encoded, signature: Signature) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """Rows that break careless graphs: all null, all unknown, last and impossible codes, extremes, one null at a time."""
    numeric = real.numeric[np.arange(EDGE_ROWS) % len(real)].copy()
    categorical = real.categorical[np.arange(EDGE_ROWS) % len(real)].copy()
    last = np.array([len(item.vocabulary) for item in signature.categorical], dtype=np.int64)
    numeric[0:2] = np.nan
    categorical[1:3] = 0
    categorical[3], categorical[4], categorical[5] = last, last + 1, -1
    for row, value in zip(range(6, 12), (0.0, EXTREME, -EXTREME, np.inf, -np.inf, 1e-38), strict=True):
        numeric[row] = value
    for row in range(12, EDGE_ROWS):
        numeric[row, (row - 12) % numeric.shape[1]] = np.nan
    return numeric, categorical


def write_graph(fit: Fit, spec: ExportSpec, path: Path) -> None:
    """One self-contained file with a free batch dimension; the digests of its origin are in its metadata."""
    if fit.network.training:
        raise RuntimeError("the network is in training mode; an export would keep its dropout")
    signature = fit.record.signature
    example = (
        torch.zeros(TRACED_BATCH, len(signature.numeric)),
        torch.zeros(TRACED_BATCH, len(signature.categorical), dtype=torch.int64),
    )
    batch = torch.export.Dim(BATCH, min=1, max=signature.max_batch)
    with warnings.catch_warnings():  # two inputs share one free dimension, and torch warns that it needs its name once
        warnings.filterwarnings("ignore", message="# The axis name")
        torch.onnx.export(
            fit.network,
            example,
            path,
            input_names=list(INPUTS),
            output_names=[OUTPUT],
            dynamic_shapes={name: {0: batch} for name in INPUTS},
            opset_version=spec.opset,
            dynamo=True,
            external_data=False,
            verbose=False,
        )
    graph = onnx.load(path)
    origin = {"model": spec.fit.model, "training_key": spec.fit.training_key, "fit": spec.fit.digest}
    onnx.helper.set_model_props(graph, {**origin, "dataset": spec.fit.dataset.digest})
    onnx.save(graph, path)


def require_signature(path: Path, signature: Signature) -> None:
    """Raises RuntimeError when the graph is broken or its tensors are not the signature's."""
    graph = onnx.load(path)
    onnx.checker.check_model(graph, full_check=True)
    expected = {
        INPUTS[0]: (onnx.TensorProto.FLOAT, len(signature.numeric)),
        INPUTS[1]: (onnx.TensorProto.INT64, len(signature.categorical)),
        OUTPUT: (onnx.TensorProto.FLOAT, 1),
    }
    found = {}
    for tensor in (*graph.graph.input, *graph.graph.output):
        dims = tensor.type.tensor_type.shape.dim
        free = len(dims) == len(("batch", "width")) and bool(dims[0].dim_param)
        found[tensor.name] = (tensor.type.tensor_type.elem_type, dims[1].dim_value) if free else None
    if found != expected:
        raise RuntimeError(f"the exported graph has tensors {found}, the signature says {expected}; batch must be free")


def batches(rows: int, size: int) -> Iterator[slice]:
    """Consecutive slices of ``size`` rows that cover all of them."""
    return (slice(at, at + size) for at in range(0, rows, size))


def require_parity(
    path: Path,
    signature: Signature,
    numeric: npt.NDArray[np.float32],
    categorical: npt.NDArray[np.int64],
    answers: npt.NDArray[np.float32],
) -> None:
    """Raises RuntimeError where ONNX Runtime differs from torch, at batch sizes 1, 2, 7 and the largest allowed."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    repeats = -(-signature.max_batch // len(answers))  # enough rows to fill the largest batch
    numeric, categorical, answers = (np.concatenate([array] * repeats) for array in (numeric, categorical, answers))
    for size in (*CHECKED_BATCHES, signature.max_batch):
        for part in batches(len(answers), size):
            feeds = dict(zip(INPUTS, (numeric[part], categorical[part]), strict=True))
            (score,) = session.run([OUTPUT], feeds)
            if not np.allclose(score, answers[part], atol=ABSOLUTE_TOLERANCE, rtol=RELATIVE_TOLERANCE):
                worst = float(np.nanmax(np.abs(score - answers[part])))
                raise RuntimeError(f"ONNX Runtime differs from torch by {worst:.2e} at batch size {size}")


if __name__ == "__main__":
    sys.exit(step(export, ExportSpec))
