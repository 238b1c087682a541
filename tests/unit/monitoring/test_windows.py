from __future__ import annotations

import datetime as dt
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from artifacts.refs import file_uri, sha256
from artifacts.step import DataFault
from artifacts.store import publish
from monitoring.contract import DriftPolicy
from monitoring.windows import column, generator, labelled, log_window, merged, reference_rows, sample
from tests.make import monitoring as make

SMALL = DriftPolicy(minimum_rows=100, merge_partitions=3, minimum_blocks=3, reference_days=5, sample_rows=40)
FAR = 10**9


def logged(root: Path, *sizes: int, **extra: object) -> list:
    days = make.stream(len(sizes), max(sizes))
    return [
        make.predictions(
            file_uri(root),
            make.LAST + number * make.DAY,
            {name: values[:size] for name, values in days[number].items()},
            make.LIVE,
            **extra,
        )
        for number, size in enumerate(sizes)
    ]


def test_the_fewest_newest_partitions_that_suffice_are_merged(tmp_path: Path) -> None:
    window = log_window(logged(tmp_path, 90, 60, 50, 30), make.LIVE, FAR, 1)
    assert merged(window, SMALL).partitions == tuple(make.LAST + n * make.DAY for n in (1, 2, 3))
    assert merged(window, SMALL).rows == 140
    assert merged(window, SMALL.model_copy(update={"minimum_rows": 30})).rows == 30
    assert merged(window, SMALL.model_copy(update={"minimum_rows": 10_000})).rows == 140


def test_repeated_request_ids_count_once_and_the_first_answer_stays(tmp_path: Path) -> None:
    at = [make.noon(make.LAST) + dt.timedelta(seconds=second) for second in (3, 1, 2, 0)]
    [ref] = logged(
        tmp_path,
        4,
        request_id=["a", "a", "b", "b"],
        at=pa.array(at, pa.timestamp("us", "UTC")),
        score=[0.3, 0.1, 0.2, 0.0],
    )
    window = log_window([ref], make.LIVE, FAR, 1)
    assert dict(zip(window.table["request_id"].to_pylist(), window.table["score"].to_pylist(), strict=True)) == {
        "a": 0.1,
        "b": 0.0,
    }
    assert window.notes == ("2 repeated request ids left out, the first answer counts",)


def test_a_log_that_is_no_parquet_file_is_a_data_fault(tmp_path: Path) -> None:
    [ref] = logged(tmp_path, 3)
    with publish(ref.uri, "predictions") as draft:
        (draft.path / "predictions.parquet").write_text("no Parquet")
    assert draft.manifest is not None
    broken = ref.model_copy(update={"digest": draft.manifest.digest})
    with pytest.raises(DataFault, match=r"predictions\.parquet is no Parquet file .*; compact the log again"):
        log_window([broken], make.LIVE, FAR, 1)


def test_answers_of_other_versions_are_left_out(tmp_path: Path) -> None:
    [ref] = logged(tmp_path, 3, package_digest=[make.LIVE, sha256(b"canary"), make.LIVE])
    window = log_window([ref], make.LIVE, FAR, 1)
    assert window.rows == 2
    assert "1 answers of other versions" in window.notes[0]


@pytest.mark.parametrize("score", [float("nan"), float("inf"), None])
def test_a_score_that_is_no_number_is_refused(tmp_path: Path, score: float | None) -> None:
    refs = logged(tmp_path, 3, score=pa.array([0.1, score, 0.2], pa.float64()))
    with pytest.raises(DataFault, match="score is no finite number in 1 rows"):
        log_window(refs, make.LIVE, FAR, 1)


def test_a_log_without_its_columns_or_order_is_refused(tmp_path: Path) -> None:
    first, second = logged(tmp_path, 3, 3, drop=("package_digest",))
    with pytest.raises(DataFault, match="column 'package_digest' is missing"):
        log_window([first], make.LIVE, FAR, 1)
    with pytest.raises(DataFault, match="out of order"):
        log_window([second, first], make.LIVE, FAR, 1)


@pytest.mark.covers("drift input 6")
def test_partitions_of_a_clock_that_went_back_are_refused(tmp_path: Path) -> None:
    _, second = logged(tmp_path, 3, 3)
    ahead = pa.array([make.noon(make.LAST + 3 * make.DAY)] * 3, pa.timestamp("us", "UTC"))
    first = make.predictions(file_uri(tmp_path), make.LAST, make.stream(1, 3)[0], make.LIVE, at=ahead)
    with pytest.raises(DataFault) as caught:
        log_window([first, second], make.LIVE, FAR, 1)
    assert caught.value.problems == (
        "predictions: partition 2013-09-01 begins at 2013-09-01T16:00Z, before partition 2013-08-31 (2013-09-03T16:00Z); "
        "the gateway's clock has gone back, mend it and compact the log again",
    )


@pytest.mark.covers("field-reports 115")
def test_a_column_that_is_null_all_day_does_not_spoil_its_neighbours(tmp_path: Path) -> None:
    """The compactor cannot know the type of a column without values, and stores numbers."""
    first, second = logged(tmp_path, 3, 3)
    empty = make.predictions(
        file_uri(tmp_path),
        make.LAST,
        make.stream(1, 3)[0],
        make.LIVE,
        feature__flight__carrier=pa.nulls(3, pa.float64()),
    )
    window = log_window([empty, second], make.LIVE, FAR, 1)
    carriers = column(window.table, "feature__flight__carrier", "categorical")
    assert [value is None for value in carriers] == [True] * 3 + [False] * 3
    assert first.partition == empty.partition


@pytest.mark.covers("drift input 7")
def test_the_newest_label_counts_and_strangers_are_counted(tmp_path: Path) -> None:
    uri, [ref] = file_uri(tmp_path), logged(tmp_path, 4)
    day = ref.partition
    early = make.feedback(uri, day, {f"{day}-0": 0, f"{day}-1": 0, "stranger": 1})
    late = make.feedback(uri, day + make.DAY, {f"{day}-0": 1})
    found = labelled(log_window([ref], make.LIVE, FAR, 1), [late, early])
    assert found.label.tolist() == [1.0, 0.0]
    assert (found.coverage, found.unknown) == (0.5, 1)


def test_no_feedback_is_no_label(tmp_path: Path) -> None:
    found = labelled(log_window(logged(tmp_path, 4), make.LIVE, FAR, 1), [])
    assert (len(found.label), found.coverage) == (0, 0.0)


@pytest.mark.covers("field-reports 109", "field-reports 110")
def test_samples_depend_on_seed_and_names_only() -> None:
    table = pa.table({"x": np.arange(1000)})

    def drawn(seed: int, name: str) -> list[int]:
        return sample(table, 10, generator(seed, name))["x"].to_pylist()

    assert drawn(1, "a") == drawn(1, "a") == sorted(drawn(1, "a"))
    assert len({tuple(drawn(1, "a")), tuple(drawn(2, "a")), tuple(drawn(1, "b"))}) == 3
    assert sample(table, 1000, generator(1)) is table


def test_the_reference_is_the_last_days_that_touched_the_weights(tmp_path: Path) -> None:
    data = make.dataset(file_uri(tmp_path), make.stream(10, 50))
    last = make.FIRST + 7 * make.DAY
    rows = reference_rows(data, last, make.NUMERIC, SMALL, 1)
    assert rows.days == tuple(make.FIRST + n * make.DAY for n in range(3, 8))
    assert np.bincount(rows.day).tolist() == [40] * 5


def test_a_reference_that_cannot_be_one_is_refused(tmp_path: Path) -> None:
    data = make.dataset(file_uri(tmp_path), make.stream(2, 5))
    with pytest.raises(DataFault, match=r"2 days from .* a reference needs 3"):
        reference_rows(data, data.last, make.NUMERIC, SMALL, 1)
    with pytest.raises(DataFault, match="column 'weather__hail' is missing"):
        reference_rows(data, data.last, ["weather__hail"], SMALL, 1)
    text = pa.table({"x": ["a"]})
    with pytest.raises(DataFault, match="numbers are expected"):
        column(text, "x", "numeric")


def test_whole_numbers_that_a_null_made_floats_are_read_as_categories() -> None:
    table = pa.table({"weekday": pa.array([3.0, None], pa.float64())})
    assert column(table, "weekday", "categorical").tolist() == ["3", None]
