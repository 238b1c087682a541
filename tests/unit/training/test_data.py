"""Windows, normalisation, orders and shards, and the training sets that are refused."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from artifacts.refs import local_path, sha256
from artifacts.step import DataFault
from artifacts.store import ArtifactCorrupt
from operators.pipelines import PIPELINES
from tests.make import training as make
from training.contract import SplitPolicy, Windows
from training.data import SUMMED_ROWS, batch, epoch_order, material, normalisation, read_rows, shard, steps_per_epoch
from training.recipes import flight_delay


@given(st.integers(1, 400), st.sampled_from([1, 2, 3, 4, 8]), st.integers(1, 40), st.integers(0, 5))
def test_every_row_is_met_once_per_epoch_and_shards_are_equal(rows: int, world: int, per_rank: int, epoch: int) -> None:
    global_batch = world * per_rank
    steps = steps_per_epoch(rows, global_batch)
    order = epoch_order(rows, seed=3, epoch=epoch)
    batches = [batch(order, place, global_batch) for place in range(steps)]
    met = [row for chosen in batches for rank in range(world) for row in shard(chosen, rank, world)]
    assert sorted(met) == list(range(rows))
    assert max(map(len, batches)) <= global_batch
    sizes = [[len(shard(chosen, rank, world)) for rank in range(world)] for chosen in batches]
    assert all(len(set(size)) == 1 for size in sizes[:-1])
    assert max(sizes[-1]) - min(sizes[-1]) <= 1


def test_orders_repeat_for_a_seed_and_differ_between_epochs() -> None:
    first = epoch_order(50, 1, 0)
    assert first.tolist() == epoch_order(50, 1, 0).tolist()
    assert first.tolist() != epoch_order(50, 1, 1).tolist()
    assert first.tolist() != epoch_order(50, 2, 0).tolist()


def test_normalisation_knows_constants_nulls_and_infinities() -> None:
    columns = np.array([[1.0, 5.0, np.nan, 1.0], [3.0, 5.0, np.nan, np.inf]], dtype=np.float32)
    mean, std = normalisation(columns)
    assert mean == (2.0, 5.0, 0.0, 1.0)
    assert std == (1.0, 1.0, 1.0, 1.0)


@pytest.mark.covers("decisions 3.8")
@given(st.integers(0, 3), st.integers(0, 3), st.integers(1, 20), st.integers(1, 20), st.integers(1, 60))
def test_windows_never_touch(horizon: int, longer: int, validation: int, test: int, train: int) -> None:
    gap = horizon + longer
    policy = SplitPolicy(label_horizon_days=horizon, gap_days=gap, validation_days=validation, test_days=test)
    first = dt.date(2013, 1, 1)
    partition = first + dt.timedelta(days=train - 1 + 2 * (gap + 1) + validation - 1 + test - 1 + horizon)
    cut = Windows.cut(first, partition, policy)
    assert (cut.train_last - first).days + 1 == train
    assert (cut.validation_first - cut.train_last).days == gap + 1
    assert (cut.test_first - cut.validation_last).days == gap + 1
    assert (cut.test_last - cut.test_first).days + 1 == test
    assert (partition - cut.test_last).days == horizon


@pytest.mark.covers("decisions 3.8")
def test_a_gap_shorter_than_the_label_horizon_is_refused() -> None:
    with pytest.raises(ValidationError, match="gap_days=1 is less than label_horizon_days=2"):
        SplitPolicy(label_horizon_days=2, gap_days=1)


@pytest.mark.covers("decisions 3.3", "decisions 3.5", "decisions 3.8")
@pytest.mark.parametrize("partition", ["2013-03-10", "2013-03-11", "2013-11-03", "2013-11-04"])
def test_labels_of_a_window_are_known_before_the_next_begins_also_over_a_clock_change(partition: str) -> None:
    """An outcome may take until its day's end plus lateness: that is before the next window's first hour, and by as_of."""
    day = dt.date.fromisoformat(partition)
    calendar, split = PIPELINES[0].calendar, flight_delay.SPLIT
    for shift in range(40):
        at = day + dt.timedelta(days=shift)
        cut = Windows.cut(dt.date(2013, 1, 1), at, split)
        assert calendar.as_of(cut.train_last) < calendar.starts(cut.validation_first)
        assert calendar.as_of(cut.validation_last) < calendar.starts(cut.test_first)
        assert calendar.as_of(cut.test_last) < calendar.as_of(at)
        embargo = calendar.as_of(at) - calendar.as_of(cut.test_last)
        assert embargo >= split.label_horizon_days * dt.timedelta(hours=23)


def test_a_set_too_short_for_its_split_is_refused() -> None:
    with pytest.raises(ValidationError, match="too short for the split"):
        Windows.cut(dt.date(2013, 1, 1), dt.date(2013, 1, 20), SplitPolicy())


def test_normalisation_of_many_rows_is_that_of_all_of_them_at_once() -> None:
    """In pieces that fit a cache, to the same bits: the sums run in the order of rows."""
    generator = np.random.default_rng(3)
    values = generator.normal(5, 3, (2 * SUMMED_ROWS + 7, 3)).astype(np.float32)
    values[generator.random(values.shape) < 0.2] = np.nan
    whole = values.astype(np.float64)
    count = (~np.isnan(whole)).sum(axis=0)
    mean = np.nansum(whole, axis=0) / count
    std = np.sqrt(np.nansum((whole - mean) ** 2, axis=0) / count)
    assert normalisation(values) == (tuple(mean.tolist()), tuple(std.tolist()))


def test_vocabulary_and_normalisation_come_from_the_training_rows_alone(tmp_path: Path) -> None:
    columns = make.rows()
    late = make.FIRST + dt.timedelta(days=20)
    columns["flight__dest"] = [
        "NEW" if day >= late else dest for day, dest in zip(columns["day"], columns["flight__dest"], strict=True)
    ]
    columns["flight__distance"] = [1e6 if day >= late else 1.0 for day in columns["day"]]
    dataset = make.dataset(tmp_path, columns)
    evaluation = material(make.train_spec(dataset, tmp_path / "fit"))
    final = material(make.train_spec(dataset, tmp_path / "fit", fit="final", epochs=1))
    assert evaluation.train_last < late
    assert "NEW" not in evaluation.signature.categorical[2].vocabulary
    assert evaluation.mean[0] == 1.0
    assert "NEW" in final.signature.categorical[2].vocabulary
    assert final.mean[0] > 1.0
    assert (final.train_last, final.validation) == (make.windows(dataset).test_last, None)
    assert evaluation.seen_last == make.windows(dataset).validation_last


def test_the_batch_must_split_over_the_ranks(tmp_path: Path) -> None:
    network = make.NETWORK.model_copy(update={"global_batch": 65})
    with pytest.raises(ValidationError, match="use a multiple of 2"):
        make.train_spec(make.dataset(tmp_path), tmp_path / "fit", processes=2, network=network)


def test_another_version_than_the_reference_is_refused(tmp_path: Path) -> None:
    dataset = make.dataset(tmp_path).model_copy(update={"digest": sha256(b"another")})
    with pytest.raises(ArtifactCorrupt, match="rebuilt or altered"):
        read_rows(dataset, [])


def test_truncated_parquet_is_refused_before_it_is_read(tmp_path: Path) -> None:
    dataset = make.dataset(tmp_path)
    folder = local_path(dataset.uri)
    assert folder is not None
    (file,) = folder.glob("*/rows.parquet")
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(ArtifactCorrupt, match="differs from the manifest"):
        read_rows(dataset, [])


def _without(name: str) -> dict[str, Any]:
    return {key: values for key, values in make.rows(per_day=5).items() if key != name}


@pytest.mark.parametrize("name", ["flight__distance", "flight__carrier", "label"])
def test_a_missing_column_is_named(tmp_path: Path, name: str) -> None:
    dataset = make.dataset(tmp_path, _without(name))
    with pytest.raises(DataFault, match=f"column '{name}' is missing"):
        material(make.train_spec(dataset, tmp_path / "fit"))


def test_an_empty_window_is_refused(tmp_path: Path) -> None:
    columns = make.rows(per_day=5)
    cut = make.windows(make.dataset(tmp_path / "whole", columns))
    kept = [not cut.validation_first <= day <= cut.validation_last for day in columns["day"]]
    left = {name: [v for v, keep in zip(values, kept, strict=True) if keep] for name, values in columns.items()}
    dataset = make.dataset(tmp_path / "holed", left)
    with pytest.raises(DataFault, match="no rows in the validation window"):
        material(make.train_spec(dataset, tmp_path / "fit"))


@pytest.mark.parametrize(("label", "words"), [(0, "have label 0"), (1, "have label 1"), (2, "other than 0 and 1")])
def test_labels_that_teach_nothing_are_refused(tmp_path: Path, label: int, words: str) -> None:
    columns = make.rows(per_day=5)
    columns["label"] = np.full(len(columns["day"]), label, dtype=np.int8)
    dataset = make.dataset(tmp_path, columns)
    with pytest.raises(DataFault, match=words):
        material(make.train_spec(dataset, tmp_path / "fit"))


def test_a_reference_with_another_count_is_refused(tmp_path: Path) -> None:
    dataset = make.dataset(tmp_path, make.rows(per_day=5))
    with pytest.raises(DataFault, match="its reference says"):
        read_rows(dataset.model_copy(update={"rows": 1}), [])
