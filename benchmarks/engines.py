"""The engines of the reference model against plain eager torch on one core, and how long a package takes to prove itself.

Reads the newest package that ``make demo`` has left (``PERENNIAL_STATE``), exports its final fit anew, packages it with
every engine that this machine supports, and times torch and those that passed in turns.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from artifacts.refs import file_uri, join
from artifacts.store import children, exists, read, read_ref
from benchmarks.report import parser, report
from operators.demo.facts import MODEL
from operators.settings import platform
from serving import parity
from serving.candidates import time_engines
from serving.contract import PackageContent, PackageRef, PackageSpec
from serving.engine_contract import EnginePolicy
from serving.engines.interface import Engine
from serving.package import open_engine, package, read_content, read_engines
from training.contract import ExportSpec, Windows
from training.export import export
from training.fit import Fit, open_fit
from training.recipes.flight_delay import SPLIT

TARGETS = {
    "speedup_vs_torch_b1": ">= 1.5",
    "speedup_vs_torch_b256": ">= 1.2",
    "package_seconds": "<= 90",
}
POLICY = EnginePolicy()


class Eager:
    """The network as it was trained: eager torch in inference mode, numpy in and out."""

    def __init__(self, fit: Fit) -> None:
        self._fit = fit

    def run(self, numeric: np.ndarray, categorical: np.ndarray) -> np.ndarray:
        """See ``Engine``."""
        return self._fit.answers(numeric, categorical).reshape(-1)


def newest() -> PackageContent:
    """The newest package of the demo's state that is no drill."""
    root = join(platform().store, "packages", MODEL)
    names = [name for name in children(root) if exists(join(root, name, "manifest.json"))]
    contents = [read_content(read(join(root, name))) for name in names]
    kept = [content for content in contents if content.scrambled_seed is None]
    if not kept:
        raise SystemExit(f"{root}: no package; run `make demo` first, or point PERENNIAL_STATE at its state")
    return max(kept, key=lambda content: content.partition)


def packaged(content: PackageContent, folder: Path) -> tuple[PackageSpec, PackageRef, float]:
    """The package made anew: its spec, its reference, and how long export and package took."""
    final, evaluation = content.final, content.evaluation
    windows = Windows.cut(final.dataset.first, content.partition, SPLIT)
    began = time.perf_counter()
    onnx = export(ExportSpec(fit=final, windows=windows, output=file_uri(folder / "onnx")))
    serving = content.serving.model_copy(update={"engines": POLICY})
    spec = PackageSpec(
        onnx=onnx,
        final=final,
        evaluation=evaluation,
        serving=serving,
        partition=content.partition,
        verdicts=(),
        output=file_uri(folder / "package"),
    )
    ref = package(spec)
    return spec, ref, time.perf_counter() - began


def main() -> None:
    """Prints the table of engines, then the figures."""
    asked = parser("engines").parse_args()
    torch.set_num_threads(1)
    content = newest()
    with tempfile.TemporaryDirectory() as folder:
        spec, ref, seconds = packaged(content, Path(folder))
        table = read_engines(read_ref(ref))
        rows = parity.read_rows(read_ref(spec.onnx).file("parity.npz"))
        sides: dict[str, Engine] = {
            "torch": Eager(open_fit(content.final)),
            table.chosen: open_engine(read_ref(ref), ref),
        }
        times = time_engines(sides, rows, spec.onnx.signature.max_batch, POLICY)
    for row in table.rows:
        spent = "  ".join(f"b{size} {value:.3f} ms" for size, value in row.milliseconds.items())
        print(f"{row.engine:<26}{row.status:<11}{spent or row.reason}")
    print(f"chosen: {table.chosen} ({table.reason}) on {table.machine}\n")
    by_size = {size: (times["torch"][size], times[table.chosen][size]) for size in POLICY.timed_batches}
    figures = {f"speedup_vs_torch_b{size}": torch_ms / ours for size, (torch_ms, ours) in by_size.items()}
    figures |= {f"chosen_ms_b{size}": ours for size, (_, ours) in by_size.items()}
    figures |= {"chosen": float(POLICY.candidates.index(table.chosen)), "package_seconds": seconds}
    report("engines", figures, TARGETS, asked)


if __name__ == "__main__":
    main()
