"""The prediction log: one line per row, nothing acknowledged is lost, torn lines are left out, compaction repeats."""

from __future__ import annotations

import datetime as dt
import os
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from artifacts.refs import file_uri
from artifacts.settings import ROOT
from artifacts.step import DataFault
from artifacts.store import read_ref
from serving.compact import compact
from serving.contract import CompactSpec, Feedback
from serving.log import LogUnwritable, SegmentWriter, answered, segments, sync
from tests.make import gateway as make

STARTED = dt.datetime(2013, 9, 1, 14, tzinfo=dt.UTC)


def spec(root: Path) -> CompactSpec:
    return CompactSpec(
        model=make.MODEL,
        partition=make.FIRST,
        log=file_uri(root / "log"),
        predictions=file_uri(root / "predictions"),
        feedback=file_uri(root / "feedback"),
    )


def write(root: Path, *names: str, started: dt.datetime = STARTED, **changes: object) -> Path:
    writer = SegmentWriter(root / "log", started)
    writer.append("predictions", make.MODEL, make.FIRST, [make.prediction(name, **changes) for name in names], STARTED)
    sync(writer.take_dirty())
    writer.close()
    return segments(root / "log", "predictions", make.MODEL, make.FIRST)[-1]


def test_compaction_gives_the_columns_of_the_docstring(tmp_path: Path) -> None:
    write(tmp_path, "b", "a")
    found = compact(spec(tmp_path)).predictions
    table = pq.read_table(read_ref(found).file("predictions.parquet"))
    assert found.rows == table.num_rows == 2
    assert table["request_id"].to_pylist() == ["a", "b"]
    row = table.to_pylist()[0]
    assert (row["at"], row["partition"], row["version"], row["score"]) == (make.instant(1, 14), make.FIRST, 7, 0.5)
    assert (row["input__flight"], row["input__distance"], row["input__carrier"]) == (15, 200.0, "UA")
    assert (row["feature__flight__carrier"], row["feature__carrier__late_share_3h"]) == ("UA", 0.25)
    assert (row["feature__origin__late_share_3h"], row["age__carrier"], row["age__origin"]) == (None, 60.0, None)
    assert str(table.schema.field("at").type) == "timestamp[us, tz=UTC]"


def test_the_first_answer_counts_and_compaction_repeats(tmp_path: Path) -> None:
    write(tmp_path, "a", score=0.9, at=make.instant(1, 15), started=STARTED)
    write(tmp_path, "a", score=0.1, at=make.instant(1, 14), started=STARTED + dt.timedelta(hours=1))
    once, twice = compact(spec(tmp_path)), compact(spec(tmp_path))
    assert once == twice
    assert len(list((tmp_path / "predictions").glob("attempt-*"))) == 1
    assert pq.read_table(read_ref(once.predictions).file("predictions.parquet"))["score"].to_pylist() == [0.1]
    write(tmp_path, "b", started=STARTED + dt.timedelta(hours=2))
    assert compact(spec(tmp_path)).predictions.rows == 2


def test_an_empty_partition_has_no_rows(tmp_path: Path) -> None:
    found = compact(spec(tmp_path))
    assert (found.predictions.rows, found.feedback.rows) == (0, 0)


def test_a_torn_last_line_is_left_out_and_a_broken_line_is_refused(tmp_path: Path) -> None:
    segment = write(tmp_path, "a", "b")
    content = segment.read_bytes()
    segment.write_bytes(content[:-10])
    assert compact(spec(tmp_path)).predictions.rows == 1
    assert answered(tmp_path / "log", make.MODEL, make.FIRST) == {"a"}
    segment.write_bytes(content[:50] + b"\n" + content)
    with pytest.raises(DataFault, match=f"{segment}:1"):
        compact(spec(tmp_path))


def test_the_latest_label_counts(tmp_path: Path) -> None:
    writer = SegmentWriter(tmp_path / "log", STARTED)
    for label, hour in ((1, 18), (0, 20), (1, 19)):
        row = Feedback(request_id="a", label=label, known_at=make.instant(1, hour))
        writer.append("feedback", make.MODEL, make.FIRST, [row, row], STARTED)
    writer.close()
    table = pq.read_table(read_ref(compact(spec(tmp_path)).feedback).file("feedback.parquet"))
    assert table.to_pylist() == [{"request_id": "a", "label": 0, "known_at": make.instant(1, 20)}]


def test_after_a_short_write_the_torn_line_stays_the_last_of_its_segment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, whole = SegmentWriter(tmp_path / "log", STARTED), os.write
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda file, content: whole(file, content[:20]))
        with pytest.raises(LogUnwritable, match="is the disk full"):
            writer.append("predictions", make.MODEL, make.FIRST, [make.prediction("a")], STARTED)
    writer.append("predictions", make.MODEL, make.FIRST, [make.prediction("b")], STARTED)
    writer.close()
    assert answered(tmp_path / "log", make.MODEL, make.FIRST) == {"b"}
    assert compact(spec(tmp_path)).predictions.rows == 1


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("a file")
    with pytest.raises(LogUnwritable, match="Not a directory"):
        SegmentWriter(tmp_path / "log", STARTED).append(
            "predictions", make.MODEL, make.FIRST, [make.prediction()], STARTED
        )


def test_many_partitions_keep_few_files_open(tmp_path: Path) -> None:
    writer = SegmentWriter(tmp_path / "log", STARTED)
    days = [make.FIRST + dt.timedelta(days=n) for n in range(40)]
    before = len(list(Path("/proc/self/fd").iterdir()))
    for day in days:
        writer.append("predictions", make.MODEL, day, [make.prediction("a")], STARTED)
    assert len(list(Path("/proc/self/fd").iterdir())) <= before + 8
    writer.close()
    assert all(answered(tmp_path / "log", make.MODEL, day) == {"a"} for day in days)


WRITER = """
import datetime as dt, sys
from pathlib import Path
from serving.log import SegmentWriter
from tests.make import gateway as make
writer = SegmentWriter(Path(sys.argv[1]), dt.datetime(2013, 9, 1, tzinfo=dt.UTC))
for number in range(100000):
    writer.append("predictions", make.MODEL, make.FIRST, [make.prediction(f"r{number}")], make.instant(1, 14))
    print(number, flush=True)
"""


def test_a_killed_writer_keeps_every_acknowledged_line(tmp_path: Path) -> None:
    words = [sys.executable, "-c", WRITER, str(tmp_path / "log")]
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if int(line) == 500:
                process.send_signal(signal.SIGKILL)
                break
        acknowledged = 500 + sum(1 for _ in process.stdout)
    kept = answered(tmp_path / "log", make.MODEL, make.FIRST)
    assert {f"r{number}" for number in range(acknowledged + 1)} <= kept
    assert compact(spec(tmp_path)).predictions.rows == len(kept)


def test_labels_are_of_the_kind_that_the_model_says(tmp_path: Path) -> None:
    writer = SegmentWriter(tmp_path / "log", STARTED)
    for request_id, label in (("a", 61.5), ("b", 60)):
        row = Feedback(request_id=request_id, label=label, known_at=make.instant(1, 18))
        writer.append("feedback", make.MODEL, make.FIRST, [row], STARTED)
    writer.close()
    numbers = compact(spec(tmp_path).model_copy(update={"task": "regression"}))
    table = pq.read_table(read_ref(numbers.feedback).file("feedback.parquet"))
    assert table["label"].to_pylist() == [61.5, 60.0]
    assert str(table.schema.field("label").type) == "double"


def test_labels_of_classes_stay_one_byte(tmp_path: Path) -> None:
    writer = SegmentWriter(tmp_path / "log", STARTED)
    writer.append(
        "feedback", make.MODEL, make.FIRST, [Feedback(request_id="a", label=1, known_at=make.instant(1, 18))], STARTED
    )
    writer.close()
    table = pq.read_table(read_ref(compact(spec(tmp_path)).feedback).file("feedback.parquet"))
    assert str(table.schema.field("label").type) == "int8"
