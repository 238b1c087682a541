"""Memory of parameters and optimiser per rank, split over two ranks (FSDP2) against whole on each (DDP): 50 million parameters.

Counted are the bytes of this rank's own tensors after a step, and for a split model the two largest layers besides, since
one works whole while the next is being gathered. Beside it is printed what the processes came to occupy at most: gradients,
activations, buckets and the whole model that each rank builds before it is split included, imports left out.
"""

from __future__ import annotations

import json
import os
import resource
import tempfile
from pathlib import Path
from typing import Any

import torch

from benchmarks.ddp_scaling import launched
from benchmarks.report import parser, report
from tests.make import training as make
from training.contract import FitOptions, Network, TorchJob
from training.distributed import joined, leave
from training.fit import build_network
from training.learner import learner
from training.recipes.flight_delay import MODEL

TARGETS = {"memory_ratio": "<= 0.6"}
NETWORK = Network(hidden=(2048,) * 13, dropout=0.0, learning_rate=1e-4)
ROWS, STEPS = 64, 2
KEPT_BYTES = 262_144
"""Larger blocks go back to the system when they are freed. Left alone, glibc learns to keep what layers take and give back,
and a split model then seems to occupy more than a whole one."""
GATHERED = 2
"""Layers that lie whole on a rank at a time: the one that works and the one that is being gathered."""


def held(strategy: str) -> dict[str, float]:
    """Bytes on this rank, and the number of parameters of the whole model."""
    options = FitOptions.model_validate({"strategy": strategy})
    before = _most()
    with joined(TorchJob(), options) as ranks:
        torch.manual_seed(0)
        signature = make.signature()
        network: Any = build_network(MODEL, signature, NETWORK, (0.0, 0.0), (1.0, 1.0))
        parameters = sum(value.numel() for value in network.parameters())
        layers = sorted(sum(value.nbytes for value in layer.parameters()) for layer in network.layers())
        model = learner(network, NETWORK, "classification", options, ranks)
        rows = (torch.ones(ROWS, 2), torch.ones(ROWS, 1, dtype=torch.int64), torch.arange(ROWS) % 2.0)
        for _ in range(STEPS):
            model.step([rows], 1.0)
        own = [*network.parameters(), *(value for one in model.optimizer.state.values() for value in one.values())]
        bytes_held = sum(_own(value).nbytes for value in own if isinstance(value, torch.Tensor))
        whole = sum(layers[-GATHERED:]) if strategy == "fsdp" else 0
        worst = max(ranks.each(bytes_held + whole)), max(ranks.each(_most() - before))
    return {"parameters": parameters, "bytes": worst[0], "resident": worst[1]}


def _most() -> int:
    """Bytes that this process has occupied at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _own(value: Any) -> Any:
    return value.to_local() if hasattr(value, "to_local") else value


def main() -> None:
    """Prints the figures, or is one rank of a run."""
    options = parser("fsdp_memory")
    options.add_argument("--rank", nargs=2, help="be one rank: strategy and answer (used by the benchmark itself)")
    asked = options.parse_args()
    if asked.rank:
        answer = held(asked.rank[0])
        if os.environ["RANK"] == "0":
            Path(asked.rank[1]).write_text(json.dumps(answer))
        leave(0)
    os.environ["MALLOC_MMAP_THRESHOLD_"] = str(KEPT_BYTES)
    with tempfile.TemporaryDirectory() as name:
        found = {one: launched("fsdp_memory", one, Path(name) / f"{one}.json", 2) for one in ("ddp", "fsdp")}
    ddp, fsdp = found["ddp"], found["fsdp"]
    figures = {
        "parameters_millions": ddp["parameters"] / 1e6,
        "ddp_mib": ddp["bytes"] / 2**20,
        "fsdp_mib": fsdp["bytes"] / 2**20,
        "memory_ratio": fsdp["bytes"] / ddp["bytes"],
        "resident_ratio": fsdp["resident"] / ddp["resident"],
    }
    report("fsdp_memory", figures, TARGETS, asked)


if __name__ == "__main__":
    main()
