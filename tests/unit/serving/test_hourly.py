"""House-keeping of the log: closed hours to a sink at least once, closed partitions to the store, and a bounded disk."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import fsspec
import pyarrow.parquet as pq
import pytest

from artifacts.refs import file_uri
from serving import hourly
from serving.contract import CompactSpec, Feedback, Routing
from serving.gateway_settings import GatewaySettings
from serving.hourly import StoreSink, close, prune, ship
from serving.log import LogUnwritable, SegmentWriter, segments
from serving.retention import Room, old
from tests.make import gateway as make

NIGHT = make.instant(2, 4)


def write(root: Path, *names: str, hour: int = 14, started: dt.datetime = NIGHT) -> None:
    writer = SegmentWriter(root / "log", started)
    at = make.instant(1, hour)
    writer.append("predictions", make.MODEL, make.FIRST, [make.prediction(name, at=at) for name in names], at)
    writer.close()


class Shaky:
    """A sink that takes what it is given, and fails as often as it is told."""

    def __init__(self, failures: int = 0) -> None:
        self.held: dict[str, bytes] = {}
        self.failures = failures

    def put(self, name: str, content: bytes) -> None:
        self.held[name] = content  # a failure after the bytes have arrived: the caller cannot know
        if self.failures:
            self.failures -= 1
            raise OSError("away")


def test_only_closed_hours_are_put_and_each_once(tmp_path: Path) -> None:
    write(tmp_path, "a", "b", hour=14)
    write(tmp_path, "c", hour=15)
    sink = Shaky()
    assert ship(tmp_path / "log", make.MODEL, sink, make.instant(1, 15, 4)) == []
    (name,) = ship(tmp_path / "log", make.MODEL, sink, make.instant(1, 15, 5))
    assert name.startswith(f"{make.MODEL}/predictions/2013-09-01/20130901T14-")
    assert len(ship(tmp_path / "log", make.MODEL, sink, NIGHT)) == 1
    assert ship(tmp_path / "log", make.MODEL, sink, NIGHT) == []
    assert len(sink.held) == 2


def test_a_sink_that_fails_is_asked_again_and_a_late_segment_replaces_the_hour(tmp_path: Path) -> None:
    write(tmp_path, "a")
    sink = Shaky(failures=1)
    with pytest.raises(OSError, match="away"):
        ship(tmp_path / "log", make.MODEL, sink, NIGHT)
    first = dict(sink.held)
    assert len(ship(tmp_path / "log", make.MODEL, sink, NIGHT)) == 1
    assert sink.held == first  # at least once, and the same bytes
    write(tmp_path, "a", "b", started=NIGHT + dt.timedelta(hours=1))
    assert ship(tmp_path / "log", make.MODEL, sink, NIGHT) == list(first)
    (content,) = sink.held.values()
    table = pq.read_table(fsspec_bytes(content))
    assert table["request_id"].to_pylist() == ["a", "b"]  # a request that two processes logged is one row
    assert table.schema.metadata[b"schema_version"] == b"1"


def fsspec_bytes(content: bytes) -> object:
    with fsspec.open("memory://hour.parquet", "wb") as file:
        file.write(content)
    return fsspec.open("memory://hour.parquet", "rb").open()


def test_the_store_is_a_sink(tmp_path: Path) -> None:
    write(tmp_path, "a")
    (name,) = ship(tmp_path / "log", make.MODEL, StoreSink(file_uri(tmp_path / "sink")), NIGHT)
    assert pq.read_table(tmp_path / "sink" / name).num_rows == 1


def settings(root: Path, **changes: object) -> GatewaySettings:
    return GatewaySettings.model_validate({"state": root, "gateway_models": (make.MODEL,), **changes})


def test_a_partition_is_announced_when_it_has_closed_and_again_when_that_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "a", "b")
    routing = Routing(model=make.MODEL, champion=make.deployed(1, make.package_ref(serving=make.serving_block())))
    given = settings(
        tmp_path, gateway_announce="http://127.0.0.1:1", gateway_announce_passwords=tmp_path / "passwords.json"
    )
    said: list[dict[str, object]] = []

    def announce(_airflow: str, _user: str, _file: Path, asset: str, extra: dict[str, object]) -> int:
        said.append({"asset": asset, **extra})
        if len(said) == 1:
            raise ConnectionError("away")
        return 1

    monkeypatch.setattr(hourly, "announce", announce)
    assert close(given, routing, make.CALENDAR.as_of(make.FIRST) - dt.timedelta(seconds=1)) == []
    after = make.CALENDAR.as_of(make.FIRST)
    with pytest.raises(ConnectionError):
        close(given, routing, after)
    assert close(given, routing, after) == [make.FIRST]
    assert close(given, routing, after) == []
    assert said[0] == said[1]
    assert (said[0]["asset"], said[0]["rows"]) == (f"predictions/{make.MODEL}", 2)


def test_segments_go_only_after_their_partition_has_been_compacted(tmp_path: Path) -> None:
    write(tmp_path, "a")
    spec = CompactSpec(
        model=make.MODEL,
        partition=make.FIRST,
        log=file_uri(tmp_path / "log"),
        predictions=file_uri(tmp_path / "p"),
        feedback=file_uri(tmp_path / "f"),
    )
    assert prune(tmp_path / "log", spec) == 0
    hourly.compact(spec)
    assert prune(tmp_path / "log", spec) == 1
    assert segments(tmp_path / "log", "predictions", make.MODEL, make.FIRST) == []
    assert prune(tmp_path / "log", spec) == 0  # and never compacts nothing over what is there
    assert old([make.FIRST], make.FIRST + dt.timedelta(days=3), dt.timedelta(days=3)) == []
    assert old([make.FIRST], make.FIRST + dt.timedelta(days=4), dt.timedelta(days=3)) == [make.FIRST]


def test_a_full_log_takes_nothing_and_says_what_to_do(tmp_path: Path) -> None:
    room = Room(limit=1000, keep_free=0)
    writer = SegmentWriter(tmp_path / "log", NIGHT, room)
    row = Feedback(request_id="a", label=1, known_at=NIGHT)
    size = len(row.model_dump_json()) + 1
    for _ in range(1000 // size):
        writer.append("feedback", make.MODEL, make.FIRST, [row], NIGHT)
    assert room.alarm
    with pytest.raises(LogUnwritable, match="PERENNIAL_GATEWAY_LOG_BYTES"):
        writer.append("feedback", make.MODEL, make.FIRST, [row], NIGHT)
    writer.close()
    held = room.held
    room.measure(tmp_path / "log")
    assert room.held == held == 1000 // size * size
    (path,) = segments(tmp_path / "log", "feedback", make.MODEL, make.FIRST)
    path.unlink()
    room.measure(tmp_path / "log")
    assert not room.alarm
    assert "kept free" in (Room(limit=1000, keep_free=10, free=15).take(6) or "")
