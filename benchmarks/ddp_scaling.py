"""Rows per second of training with two ranks against one, and of the loader alone: the reference model on synthetic rows.

Each rank has one thread. One and two ranks take turns; the figures are medians. Steps are those of ``training.train``,
with the global batch of the recipe; reading, measuring and saving do not count.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.report import parser, report
from tests.make import training as make
from training.contract import TrainSpec
from training.data import batch, constant_answer, epoch_order, shard
from training.distributed import joined, leave
from training.fit import build_network
from training.learner import learner
from training.mapped import shared_material
from training.recipes.flight_delay import NETWORK
from training.train import Tensors, learn

TARGETS = {"speedup_2_ranks": ">= 1.6", "loader_over_training": ">= 5"}
DAYS, PER_DAY = 60, 800
RUNS, WARM, STEPS = 5, 20, 150


def rates(spec: TrainSpec) -> dict[str, float]:
    """Rows per second of training, and of preparing the same batches without learning from them."""
    with joined(spec.job, spec.options) as ranks:
        found = shared_material(spec, ranks)
        network: Any = build_network(spec.model, found.signature, spec.network, found.mean, found.std)
        network.start_at(constant_answer(found.train.label, spec.task))
        model = learner(network, spec.network, spec.task, spec.options, ranks)
        rows, size = Tensors.of(found.train, ranks.device), spec.network.global_batch
        full = len(found.train) // size
        order = epoch_order(len(found.train), spec.seed, 0)
        network.train()

        def trained(steps: int, at: int) -> float:
            ranks.meet()
            began = time.perf_counter()
            for place in range(at, at + steps):
                learn(spec, ranks, model, rows, batch(order, place % full, size), place)
            ranks.meet()
            return steps * size / (time.perf_counter() - began)

        def loaded(steps: int) -> float:
            ranks.meet()
            began = time.perf_counter()
            for place in range(steps):
                rows.pieces(shard(batch(order, place % full, size), ranks.rank, ranks.world), spec.options.accumulation)
            ranks.meet()
            return steps * size / (time.perf_counter() - began)

        trained(WARM, 0)
        return {"trained": trained(STEPS, WARM), "loaded": loaded(STEPS)}


def run(spec: TrainSpec, folder: Path) -> dict[str, float]:
    """What ``rates`` finds in as many processes as the spec asks for."""
    place = folder / "spec.json"
    place.write_text(spec.model_dump_json())
    return launched("ddp_scaling", str(place), folder / "rates.json", spec.job.world_size)


def launched(benchmark: str, what: str, answer: Path, world: int) -> dict[str, float]:
    """Runs ``world`` ranks of a benchmark on this machine and returns what rank 0 answers."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1])}
    outer = {**os.environ, **meeting, "OMP_NUM_THREADS": "1", "WORLD_SIZE": str(world)}
    command = [sys.executable, "-m", f"benchmarks.{benchmark}", "--rank", what, str(answer)]
    own = [{**outer, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(world)]
    started = [subprocess.Popen(command, env=variables) for variables in own]  # noqa: S603  our own command
    if any(codes := [process.wait() for process in started]):
        raise RuntimeError(f"ranks of benchmarks.{benchmark} ended with {codes}; their words are above")
    found: dict[str, float] = json.loads(answer.read_text())
    return found


def main() -> None:
    """Prints the figures, or is one rank of a run."""
    options = parser("ddp_scaling")
    options.add_argument(
        "--rank", nargs=2, type=Path, help="be one rank: spec and answer (used by the benchmark itself)"
    )
    asked = options.parse_args()
    if asked.rank:
        spec = TrainSpec.model_validate_json(asked.rank[0].read_text())
        found = rates(spec)
        if os.environ["RANK"] == "0":
            asked.rank[1].write_text(json.dumps(found))
        leave(0)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        dataset = make.dataset(folder, days=DAYS, per_day=PER_DAY)
        specs = {world: make.train_spec(dataset, folder / "fit", processes=world, network=NETWORK) for world in (1, 2)}
        runs = [{world: run(spec, folder) for world, spec in specs.items()} for _ in range(RUNS)]
    trained = {world: median(one[world]["trained"] for one in runs) for world in specs}
    figures = {
        "rows_per_second_1": trained[1],
        "rows_per_second_2": trained[2],
        "speedup_2_ranks": median(one[2]["trained"] / one[1]["trained"] for one in runs),
        "loader_rows_per_second": median(one[2]["loaded"] for one in runs),
        "loader_over_training": median(one[2]["loaded"] / one[2]["trained"] for one in runs),
    }
    report("ddp_scaling", figures, TARGETS, asked)


if __name__ == "__main__":
    main()
