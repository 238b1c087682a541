from __future__ import annotations

import datetime as dt
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from artifacts import store
from artifacts.refs import file_uri, join
from artifacts.step import DataFault
from feature_repo.source_rows import published_files, read_files

T = dt.datetime(2013, 6, 3, 15, tzinfo=dt.UTC)
HOUR = dt.timedelta(hours=1)


def written(path: Path, hours: list[int], **more: list[float]) -> Path:
    instants = pa.array([T + hour * HOUR for hour in hours], pa.timestamp("us", tz="UTC"))
    pq.write_table(pa.table({"event_time": instants, **more}), path)
    return path


def test_only_rows_of_the_span_are_read(tmp_path: Path) -> None:
    files = [written(tmp_path / "1.parquet", [-3, -2]), written(tmp_path / "2.parquet", [-1, 0, 1])]
    for span, count in {(None, None): 5, (T - 2 * HOUR, T): 2, (None, T - HOUR): 3, (T, None): 1}.items():
        assert read_files(files, "event_time", span).num_rows == count
    assert read_files(files, "no such column", (None, T)).num_rows == 0


def test_a_file_with_other_columns_is_named(tmp_path: Path) -> None:
    files = [written(tmp_path / "1.parquet", [0]), written(tmp_path / "2.parquet", [0], trips=[1.0])]
    with pytest.raises(DataFault, match=r"1\.parquet: trips: column is missing"):
        read_files(files, "event_time", (None, None))


def test_an_artifact_without_the_file_is_named(tmp_path: Path) -> None:
    uri = join(file_uri(tmp_path), "2013-06-03")
    with store.publish(uri, "view-day") as draft:
        written(draft.path / "carrier.parquet", [0])
    found = [store.read(uri)]
    assert [path.name for path in published_files(file_uri(tmp_path), "carrier.parquet", found)] == ["carrier.parquet"]
    with pytest.raises(DataFault, match=r"2013-06-03: origin\.parquet: file is missing; build these hours again"):
        published_files(file_uri(tmp_path), "origin.parquet", found)
    with pytest.raises(DataFault, match="nothing has been published here"):
        published_files(file_uri(tmp_path), "carrier.parquet", [])
