"""The recipe: its two fits share one key, and the key follows what shapes the weights."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from artifacts.refs import file_uri, sha256
from feature_repo.catalogue import feature_columns
from tests.make import training as make
from training.contract import CheckpointPolicy, FitOptions, Network, SplitPolicy, TorchJob, TrainSpec
from training.recipes import flight_delay as recipe

CODE = sha256(b"code")


def test_the_key_follows_what_shapes_the_weights_and_nothing_else(tmp_path: Path) -> None:
    dataset = make.dataset(tmp_path, make.rows(per_day=2))
    key = recipe.training_key(dataset, CODE)
    assert key == recipe.training_key(dataset, CODE, job=TorchJob(memory_mib=4096, cpus_per_process=2))
    patient = FitOptions(checkpoint=CheckpointPolicy(keep=9), hang_seconds=7)
    assert key == recipe.RECIPE.model_copy(update={"options": patient}).training_key(dataset, CODE)
    others = [
        recipe.training_key(dataset.model_copy(update={"key": CODE}), CODE),
        recipe.training_key(dataset, sha256(b"other code")),
        *(
            recipe.RECIPE.model_copy(update=change).training_key(dataset, CODE)
            for change in (
                {"split": SplitPolicy(test_days=7)},
                {"network": Network(embedding=3)},
                {"seed": 1},
                {"options": FitOptions(precision="bf16")},
            )
        ),
        recipe.training_key(dataset, CODE, job=TorchJob(processes_per_node=4)),
        recipe.training_key(dataset, CODE, salt="decision 7"),
    ]
    assert len({key, *others}) == 1 + len(others)


def test_both_fits_differ_in_fit_epochs_and_output_only(tmp_path: Path) -> None:
    dataset = make.dataset(tmp_path, make.rows(days=60, per_day=2))
    key = recipe.training_key(dataset, CODE)
    evaluation = recipe.train_spec(dataset, key, "evaluation", file_uri(tmp_path / "e"))
    final = recipe.train_spec(dataset, key, "final", file_uri(tmp_path / "f"), epochs=3)
    own = {"fit", "epochs", "output"}
    assert evaluation.model_dump(exclude=own) == final.model_dump(exclude=own)
    assert TrainSpec.model_validate_json(final.model_dump_json()) == final
    with pytest.raises(ValidationError, match="the evaluation fit finds them"):
        recipe.train_spec(dataset, key, "evaluation", file_uri(tmp_path / "e"), epochs=3)


def test_every_view_feature_is_read_once() -> None:
    read = [*recipe.COLUMNS.numeric, *recipe.COLUMNS.categorical]
    assert len(read) == len(set(read))
    assert set(feature_columns()) < set(read)
