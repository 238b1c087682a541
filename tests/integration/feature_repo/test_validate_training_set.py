from __future__ import annotations

import datetime as dt
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from artifacts.step import DataFault
from feature_repo.contract import ValidateSpec
from feature_repo.validate import validate
from tests.make import expectations as make

pytestmark = pytest.mark.spark


def check(rows: pa.Table, folder: Path) -> tuple[str, ...]:
    """The lines of what did not hold; empty when the set passes."""
    target = make.publish_tables(make.folder_uri(folder, "dataset"), "dataset", {"rows": rows})
    spec = ValidateSpec(
        suite="training_set",
        calendar=make.CALENDAR,
        targets=(make.target(target, make.DAY + dt.timedelta(days=1)),),
        output=make.folder_uri(folder, "report"),
    )
    try:
        found = validate(spec)
    except DataFault as fault:
        return fault.problems
    assert [line for line in found.warnings if "fewer than 3 same weekdays" not in line] == []
    return ()


def test_a_sound_set_passes(tmp_path: Path) -> None:
    assert check(make.training_rows(), tmp_path) == ()


def test_faults_and_leaks_are_told_together(tmp_path: Path) -> None:
    rows = make.training_rows()
    label = np.array(rows["label"])
    cancelled = (label == 1) & (np.arange(len(label)) % 10 < 8)
    tail = [None if gone else f"N{number % 300}" for number, gone in enumerate(cancelled)]
    early = rows["at"].to_pylist()
    rows = make.change(rows, "label_time", [early[0] - make.HOUR, *rows["label_time"].to_pylist()[1:]])
    rows = make.change(rows, "at", [*early[:-1], early[-1] + make.MINUTE])
    rows = make.change(rows, "carrier__late_share_1d", [1.5, *rows["carrier__late_share_1d"].to_pylist()[1:]])
    rows = make.blank(rows, "origin__departures_7d", 0.5)
    rows = make.change(rows, "weather__temp", [None] * rows.num_rows)
    rows = make.change(rows, "row_id", ["row-000001", *rows["row_id"].to_pylist()[1:]])
    rows = rows.append_column("flight__tailnum", pa.array(tail))
    lines = check(rows, tmp_path)
    for expected in (
        "expect_no_group_with_one_label(rows.flight__tailnum): 1 groups of 500 rows or more hold one label only, first 1: null",
        f"expect_table_columns_to_match_set(rows): {rows.num_columns} columns; missing [], not expected ['flight__tailnum']",
        "unexpected_rows_expectation(rows.instants): 2 rows break 'at = scheduled_departure - INTERVAL 7200 SECONDS AND ",
        "expect_column_values_to_be_between(rows.carrier__late_share_1d): 0.025 % outside [0, 1] (1 of 4000 rows), "
        "first 1: key row-000001 (carrier__late_share_1d=1.5)",
        "expect_column_values_to_not_be_null(rows.origin__departures_7d): 50 % null (2000 of 4000 rows)",
        "expect_column_values_to_not_be_null(rows.weather__temp): 100 % null",
        "expect_column_values_to_be_unique(rows.row_id): 0.05 % not unique (2 of 4000 rows), first 1: key row-000001",
    ):
        assert [line for line in lines if line.startswith(expected)], f"{expected!r} is not in\n" + "\n".join(lines)
    assert len(lines) == 8  # those, and where the report lies


def test_an_empty_set_and_a_label_of_text_do_not_pass(tmp_path: Path) -> None:
    rows = make.training_rows().slice(0, 0)
    lines = check(make.change(rows, "label", pa.array([], pa.string())), tmp_path)
    assert any(
        line.startswith("expect_table_row_count_to_be_between(rows): 0 rows, expected 1000 or more") for line in lines
    )
    assert "expect_no_leaks(rows.label): could not run: no whole column of integer labels" in lines
    assert "expect_column_values_to_be_of_type(rows.label): type is StringType, expected ByteType" in lines
