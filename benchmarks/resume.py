"""What a SIGKILL in the middle costs: the reference model, two ranks under torchrun, on synthetic rows of a demo's size.

The same fit runs unbroken, and killed half-way and started again. ``seconds_lost`` is what the broken one took longer, both
of its starts included; ``bit_equal`` is 1 where both published the same bytes.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from benchmarks.report import parser, report
from tests.make import training as make
from tests.make.ranks import checkpoints, kill, launch, result, until
from training.recipes.flight_delay import NETWORK

TARGETS = {"bit_equal": "= 1", "seconds_lost": "< 20"}
DAYS, PER_DAY = 120, 800
BROKEN_AT = 0.5  # of all steps


def main() -> None:
    """Prints the figures."""
    asked = parser("resume").parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        network = NETWORK.model_copy(update={"max_epochs": 8, "patience": 8})
        dataset = make.dataset(folder, days=DAYS, per_day=PER_DAY)
        specs = {
            which: make.train_spec(dataset, folder / which, processes=2, network=network)
            for which in ("whole", "broken")
        }
        began = time.monotonic()
        whole = result(launch(specs["whole"], folder / "a"), folder / "a")
        unbroken = time.monotonic() - began

        half = BROKEN_AT * network.max_epochs * whole.rows / network.global_batch
        saved = folder / "broken.checkpoints"
        began = time.monotonic()
        running = launch(specs["broken"], folder / "b")
        until(lambda: any(int(path.name) >= half for path in checkpoints(saved)), [running])
        kill(running)
        resumed = result(launch(specs["broken"], folder / "b"), folder / "b")
        broken = time.monotonic() - began
    figures = {
        "seconds_unbroken": unbroken,
        "seconds_broken": broken,
        "seconds_lost": broken - unbroken,
        "bit_equal": float(resumed.digest == whole.digest),
    }
    report("resume", figures, TARGETS, asked)


if __name__ == "__main__":
    main()
