"""What happens to the joined rows: counted, dated, cut to the days whose outcomes are known, ordered."""

import datetime as dt
from pathlib import Path

import pyarrow as pa
import pytest

from artifacts.refs import file_uri
from artifacts.step import DataFault
from feature_repo.catalogue import feature_columns
from feature_repo.contract import TrainingSetSpec
from feature_repo.training_set import finish
from tests.make import feature_repo as make


@pytest.fixture
def spec(tmp_path: Path) -> TrainingSetSpec:
    uri = file_uri(tmp_path / "x")
    return make.training_set_spec(uri, uri, uri, "2013-11-04", "2013-11-01", known_share=0.5)


def joined(*labels: tuple[str, int | None]) -> pa.Table:
    """Rows as the join gives them: (scheduled departure, label)."""
    rows = []
    for number, (departure, label) in enumerate(labels):
        row = make.raw_row("schedule", flight_id=f"f{number}", scheduled_departure=make.utc(departure))
        rows.append({"row_id": row.pop("flight_id"), "at": row["scheduled_departure"], "label": label} | row)
    table = pa.Table.from_pylist(rows).append_column("label_time", pa.nulls(len(rows), pa.timestamp("us", "UTC")))
    table = table.set_column(2, "label", table["label"].cast(pa.int32()))
    for name in feature_columns():
        table = table.append_column(name, pa.nulls(len(rows), pa.float64()))
    return table


def test_rows_are_dated_by_service_day_and_columns_stand_in_order(spec: TrainingSetSpec) -> None:
    rows, facts = finish(spec, joined(("2013-11-02T07:00:00", 1), ("2013-11-02T08:00:00", 0)), 2)
    assert rows["day"].to_pylist() == [dt.date(2013, 11, 1), dt.date(2013, 11, 2)]
    assert rows.column_names[:5] == ["row_id", "day", "at", "label", "label_time"]
    assert rows.schema.field("label").type == pa.int8()
    assert rows.column_names[-len(feature_columns()) :] == list(feature_columns())
    assert facts["rows_without_outcome"] == 0


@pytest.mark.covers("decisions 3.4", "field-reports 55")
def test_a_join_that_lost_or_doubled_rows_is_refused(spec: TrainingSetSpec) -> None:
    table = joined(("2013-11-02T15:00:00", 1), ("2013-11-02T16:00:00", 0))
    with pytest.raises(DataFault, match="3 rows went into the join, 2 rows"):
        finish(spec, table, 3)
    with pytest.raises(DataFault, match="4 rows with 2 ids came out"):
        finish(spec, pa.concat_tables([table, table]), 4)


@pytest.mark.covers("decisions 3.3")
def test_an_unknown_outcome_is_left_out_and_counted(spec: TrainingSetSpec) -> None:
    rows, facts = finish(spec, joined(("2013-11-02T15:00:00", 1), ("2013-11-02T16:00:00", None)), 2)
    assert rows["row_id"].to_pylist() == ["f0"]
    assert facts == {"rows_without_outcome": 1, "rows_in": 2}


def test_a_last_day_that_is_half_known_is_left_off(spec: TrainingSetSpec) -> None:
    table = joined(("2013-11-01T15:00:00", 0), ("2013-11-02T15:00:00", 1), *[("2013-11-02T16:00:00", None)] * 2)
    rows, _ = finish(spec, table, 4)
    assert set(rows["day"].to_pylist()) == {dt.date(2013, 11, 1)}


def test_a_day_in_the_middle_that_is_half_known_is_a_fault(spec: TrainingSetSpec) -> None:
    days = [("2013-11-01T15:00:00", 0), ("2013-11-02T15:00:00", None), ("2013-11-03T15:00:00", 1)]
    with pytest.raises(DataFault, match=r"2013-11-02: label: outcomes of 0\.0% of the rows are known"):
        finish(spec, joined(*days), 3)


def test_nothing_known_is_a_fault(spec: TrainingSetSpec) -> None:
    with pytest.raises(DataFault, match="no outcome of 2013-11-01 to 2013-11-04 is known"):
        finish(spec, joined(("2013-11-01T15:00:00", None)), 1)
