"""What a fit may be asked for, and what is refused in its own words before any work."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from tests.make import training as make
from training.contract import FitOptions, TorchJob, TrainSpec


def test_a_scaler_over_parts_of_gradients_is_refused() -> None:
    with pytest.raises(ValidationError, match="strategy=fsdp with precision=fp16: the gradient scaler needs whole"):
        FitOptions(strategy="fsdp", precision="fp16")


def test_a_batch_that_does_not_split_over_ranks_and_pieces_is_refused(tmp_path: Path) -> None:
    dataset = make.dataset(tmp_path, make.rows(per_day=2))
    with pytest.raises(
        ValidationError, match=r"global_batch=64 does not split over world_size=2 x accumulation=3 .* 6"
    ):
        make.train_spec(dataset, tmp_path / "fit", processes=2, options=FitOptions(accumulation=3))


def test_the_batch_splits_over_every_number_of_nodes_that_may_be_left(tmp_path: Path) -> None:
    dataset = make.dataset(tmp_path, make.rows(per_day=2))
    assert TorchJob(nodes=4, min_nodes=2, processes_per_node=2).world_sizes == (4, 6, 8)
    with pytest.raises(ValidationError, match="does not split over world_size=6"):
        make.train_spec(
            dataset, tmp_path / "fit", job=TorchJob(nodes=4, min_nodes=2, processes_per_node=2).model_dump()
        )
    with pytest.raises(ValidationError, match="min_nodes=3 is more than nodes=2"):
        TorchJob(nodes=2, min_nodes=3)


def test_parts_of_several_nodes_are_saved_where_all_nodes_write(tmp_path: Path) -> None:
    dataset = make.dataset(tmp_path, make.rows(per_day=2))
    job, options = TorchJob(nodes=2), FitOptions(strategy="fsdp")
    spec = make.train_spec(dataset, tmp_path / "fit", job=job, options=options)
    with pytest.raises(ValidationError, match="strategy=fsdp on nodes=2: they write one checkpoint together"):
        TrainSpec.model_validate({**spec.model_dump(), "output": "s3://lake/fit"})
