"""A replay through a real gateway: the right features at each instant, closed partitions, and a second start."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from artifacts.clock import DataClock
from artifacts.step import DataFault
from artifacts.store import read_ref
from feature_repo.contract import DatasetRef
from serving.contract import TritonServer
from serving.replay import replay
from tests.make import gateway as make

pytestmark = pytest.mark.triton
DAY = dt.date(2013, 9, 2)


class Killed(BaseException):
    """Stands for the end of the replay's process."""


@dataclass
class Stage:
    """A gateway with nothing asked yet, and the history to replay."""

    root: Path
    gateway: make.Process
    clock: DataClock


@pytest.fixture(scope="module")
def ready(tmp_path_factory: pytest.TempPathFactory, triton: TritonServer, dataset: DatasetRef) -> Iterator[Stage]:
    root = tmp_path_factory.mktemp("replay")
    make.lake(root), make.views(root)
    records = make.records(root)
    make.route(records, make.staged(root, dataset, triton, 911))
    with make.gateway(root, triton.grpc) as process:
        yield Stage(root, process, make.clock(records))


def expected(at: dt.datetime, view: str) -> float:
    """The value of the newest row that was known at an instant."""
    known = at - dt.timedelta(minutes=20 if view == "weather" else 0)
    return make.feature_value(view, known.replace(minute=0))


def test_a_killed_replay_goes_on_and_serves_what_was_known(ready: Stage) -> None:
    spec = make.replay_spec(ready.root, ready.gateway.url, first=DAY, last=DAY)

    def die(fraction: float, doing: str) -> None:
        if fraction > 0.15:
            raise Killed

    with pytest.raises(Killed):
        list(replay(spec, ready.clock, die))
    died_at = ready.clock.now()
    assert make.CALENDAR.starts(DAY) < died_at < make.CALENDAR.ends(DAY)
    (closed,) = replay(spec, ready.clock, lambda *_: None)
    assert ready.clock.now() == make.CALENDAR.as_of(DAY)
    assert 0 < closed.sent < 6
    assert closed.sent + closed.skipped == 6
    rows = pq.read_table(read_ref(closed.compacted.predictions).file("predictions.parquet")).to_pylist()
    assert [row["request_id"] for row in rows] == [f"2013-09-02-UA{number}" for number in range(6)]
    for number, row in enumerate(rows):
        at = make.instant(2, 8) + dt.timedelta(hours=2 * number)  # two hours before departure
        assert row["at"] == at
        for view in ("carrier", "weather", "congestion"):
            feature = {"carrier": "late_share_1d", "weather": "temp", "congestion": "known_late_last_3h"}[view]
            assert row[f"feature__{view}__{feature}"] == expected(at, view)
    labels = pq.read_table(read_ref(closed.compacted.feedback).file("feedback.parquet")).to_pylist()
    assert [row["label"] for row in labels] == [0, 1, 1, 0, 0, 0]


def test_the_next_days_go_on_from_the_clock_and_can_be_stopped_between(ready: Stage) -> None:
    spec = make.replay_spec(ready.root, ready.gateway.url, first=DAY, last=dt.date(2013, 9, 4))
    running = replay(spec, ready.clock, lambda *_: None)
    again = next(running)  # it closed before; its event may have been lost, so it is announced once more
    assert (again.partition, again.sent, again.compacted.predictions.rows) == (DAY, 0, 6)
    third = next(running)
    assert third.partition == dt.date(2013, 9, 3)
    assert (third.sent + third.skipped, third.compacted.predictions.rows) == (6, 6)
    assert third.skipped == 3  # asked by the replay before, which had to play on until its partition closed
    running.close()
    assert ready.clock.now() == make.CALENDAR.as_of(third.partition)
    repeated = list(replay(spec.model_copy(update={"last": third.partition}), ready.clock))
    assert [(one.partition, one.sent) for one in repeated] == [(third.partition, 0)]


def test_a_refused_request_ends_the_replay_with_the_gateways_words(ready: Stage) -> None:
    narrow = make.serving_block(request=make.REQUEST[:-1])
    spec = make.replay_spec(
        ready.root, ready.gateway.url, first=dt.date(2013, 9, 4), last=dt.date(2013, 9, 4), serving=narrow
    )
    with pytest.raises(DataFault, match="scheduled_arrival: is missing"):
        next(replay(spec, ready.clock, lambda *_: None))
