"""A payload of several ranks that asks them about each other; run by tests as ``python -m tests.make.rank_checks``."""

from __future__ import annotations

from artifacts.step import step
from training.contract import TrainSpec
from training.distributed import joined, leave


def check(spec: TrainSpec) -> TrainSpec | None:
    """Every rank has another opinion, and all must come to one."""
    with joined(spec.job, spec.options) as ranks:
        assert ranks.total(ranks.rank + 1, 0.5) == [3.0, 1.0]
        assert ranks.each(10.0 * ranks.rank) == [0.0, 10.0]
        assert ranks.agreed(decision=ranks.rank == 0) is True
        assert ranks.agreed(decision=ranks.rank == 1) is False
        assert ranks.shared(f"said by {ranks.rank}".encode()) == b"said by 0"
        assert ranks.shared(b"never heard" if ranks.rank == 1 else None) is None
        ranks.require_same({"the colour of the sky": 7.0})
        ranks.require_same({"the number of rows": 100.0 + ranks.rank})
    return spec


if __name__ == "__main__":
    leave(step(check, TrainSpec))
