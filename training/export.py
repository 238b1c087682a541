"""Turns a final fit into one ONNX file with its normalisation inside, and proves that it answers as torch does."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import onnxruntime

from artifacts.refs import file_digest
from artifacts.step import DataFault, progress, step
from artifacts.store import publish
from training.contract import Exporter, ExportSpec, OnnxRef, Signature
from training.data import Encoded, encoded, read_rows
from training.fit import Fit, open_fit
from training.graph import INPUTS, MODEL_FILE, OUTPUT, GraphFault, not_finite, require_signature, write_graph

SIGNATURE_FILE, PARITY_FILE = "signature.json", "parity.npz"
EDGE_ROWS = 32
CHECKED_BATCHES = (1, 2, 7)
EXTREME = 3e38  # near the largest float32
ABSOLUTE_TOLERANCE, RELATIVE_TOLERANCE = 1e-4, 1e-3  # decisions.md 5, G7, fp32


class ParityRows(NamedTuple):
    """Encoded rows, the real ones first, and torch's answers: numeric float32 [B, N], categorical int64 [B, M], answers [B, 1]."""

    numeric: npt.NDArray[np.float32]
    categorical: npt.NDArray[np.int64]
    answers: npt.NDArray[np.float32]


def export(spec: ExportSpec) -> OnnxRef:
    """Exports, checks the graph against the signature and its answers against torch, then publishes."""
    fit = open_fit(spec.fit)
    if problems := not_finite(fit.network.state_dict()):
        raise DataFault([f"{spec.fit.uri}: {problem}" for problem in problems])
    signature = fit.record.signature
    progress(0.05, "choosing parity rows")
    inputs = parity_inputs(spec, signature)
    rows = ParityRows(*inputs, fit.answers(*inputs))
    with publish(spec.output, "onnx") as draft:
        exporter, refused = proven_graph(fit, spec, draft.path / MODEL_FILE, rows)
        (draft.path / SIGNATURE_FILE).write_text(signature.model_dump_json(indent=1))
        with (draft.path / PARITY_FILE).open("wb") as file:
            real = np.int64(len(rows.answers) - EDGE_ROWS)
            np.savez(file, numeric=rows.numeric, categorical=rows.categorical, score=rows.answers, real=real)
        onnx_digest = file_digest(draft.path / MODEL_FILE)
        draft.facts = {"training_key": spec.fit.training_key, "fit": spec.fit.digest, "opset": spec.opset}
        draft.facts |= {"exporter": exporter, "refused": list(refused)}
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
        parity_rows=len(rows.answers),
        exporter=exporter,
        refused=refused,
    )


def proven_graph(fit: Fit, spec: ExportSpec, path: Path, rows: ParityRows) -> tuple[Exporter, tuple[str, ...]]:
    """Writes the graph of the first exporter that is proven right: its name, and why those before it were refused.

    DataFault with one line per exporter when none is.
    """
    refused: list[str] = []
    for exporter in spec.exporters:
        progress(0.2, f"exporting the graph ({exporter})")
        try:
            write_graph(fit, spec, path, exporter)
            require_signature(path, fit.record.signature, spec.opset)
            progress(0.8, "comparing ONNX Runtime with torch")
            require_parity(path, fit.record.signature, rows)
        except RuntimeError as error:  # torch's and ONNX Runtime's own errors are RuntimeErrors too
            refused.append(f"{exporter}: {str(error).strip().splitlines()[0]}")
        else:
            return exporter, tuple(refused)
    raise DataFault([f"{spec.fit.uri}: not exported with {reason}" for reason in refused])


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


def batches(rows: int, size: int) -> Iterator[slice]:
    """Consecutive slices of ``size`` rows that cover all of them."""
    return (slice(at, at + size) for at in range(0, rows, size))


def require_parity(path: Path, signature: Signature, rows: ParityRows) -> None:
    """Raises GraphFault where ONNX Runtime differs from torch, at batch sizes 1, 2, 7 and the largest allowed."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    repeats = -(-signature.max_batch // len(rows.answers))  # enough rows to fill the largest batch
    numeric, categorical, answers = (np.concatenate([array] * repeats) for array in rows)
    for size in (*CHECKED_BATCHES, signature.max_batch):
        for part in batches(len(answers), size):
            feeds = dict(zip(INPUTS, (numeric[part], categorical[part]), strict=True))
            (score,) = session.run([OUTPUT], feeds)
            close = np.isclose(score, answers[part], atol=ABSOLUTE_TOLERANCE, rtol=RELATIVE_TOLERANCE)
            if not close.all():
                row = int(np.flatnonzero(~close.reshape(-1))[0])
                raise GraphFault(
                    f"at batch size {size} row {(part.start + row) % len(rows.answers)} differs from torch: "
                    f"ONNX Runtime says {score[row, 0]:.7g}, torch {answers[part][row, 0]:.7g}"
                )


if __name__ == "__main__":
    sys.exit(step(export, ExportSpec))
