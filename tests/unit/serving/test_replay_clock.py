"""A replay never goes back: days that have closed are not played again on a clock that was set anew."""

from __future__ import annotations

from pathlib import Path

import pytest

from artifacts.refs import join
from artifacts.step import DataFault
from artifacts.store import publish
from serving.replay import replay
from tests.make import gateway as make


def test_a_clock_that_was_set_back_is_refused_before_anything_is_sent(tmp_path: Path) -> None:
    spec = make.replay_spec(tmp_path, "http://127.0.0.1:9")
    with publish(join(spec.predictions, make.FIRST.isoformat()), "predictions") as draft:
        (draft.path / "predictions.parquet").write_bytes(b"")
    clock = make.clock(make.records(tmp_path))
    for _ in range(2):
        with pytest.raises(DataFault, match=f"{make.FIRST} has been replayed and closed.*it has gone back"):
            next(replay(spec, clock))
        clock.advance(make.CALENDAR.starts(make.FIRST))
