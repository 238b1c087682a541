"""What the online store serves at any instant is what the as-of rule says of that instant, whatever comes late or anew."""

from __future__ import annotations

import dataclasses
import datetime as dt
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from artifacts.refs import join
from feature_repo import materialize as materialization
from feature_repo import online as reading
from feature_repo.catalogue import VIEWS
from feature_repo.materialize import Materializer
from feature_repo.online import OnlineReader
from tests.make import expectations as make
from tests.make.expectations import HOUR, MINUTE

START = make.DAY_START + HOUR
HOURS, INSTANTS = 20, 40
TTL, DELAY = 5 * HOUR, 2 * HOUR
TICK = dt.timedelta(microseconds=1)
ENTITIES = [("EWR", "BOS"), ("JFK", "BOS"), ("BOS", "EWR")]


def history(rng: np.random.Generator) -> list[tuple[Any, dt.datetime, dt.timedelta, float | None]]:
    """Rows at some hours; some known late, some restated, some without a value."""
    rows = []
    for entity in ENTITIES:
        for hour in range(1, HOURS):
            if rng.random() < 0.5:
                continue
            known = rng.choice([0, 0, 0, 7, 95, 320]) * MINUTE
            for _ in range(rng.integers(1, 4)):
                value = None if rng.random() < 0.2 else float(rng.normal())
                rows.append((entity, START + hour * HOUR, known, value))
                known += int(rng.integers(1, 200)) * MINUTE
    return rows


def usable(rows: list[Any], entity: Any, at: dt.datetime) -> Any:
    """The as-of rule of decisions 3.1 and 3.2, row by row."""
    known = [
        (event, event + late, value)
        for one, event, late, value in rows
        if one == entity and at - TTL < event <= at - DELAY and event + late <= at
    ]
    return max(known, key=lambda row: row[:2], default=None)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", ["sqlite", "redis"])
@pytest.mark.covers("decisions 3.12")
def test_every_read_equals_the_rule(
    kind: str, seed: int, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed = {**VIEWS, "route": dataclasses.replace(VIEWS["route"], ttl=TTL, delay=DELAY)}
    monkeypatch.setattr(materialization, "VIEWS", changed)
    monkeypatch.setattr(materialization, "LONGEST_DELAY", DELAY)
    monkeypatch.setattr(reading, "VIEWS", changed)
    rng = np.random.default_rng(seed)
    rows, views = history(rng), make.folder_uri(tmp_path, "views")
    make.publish_tables(join(views, str(make.DAY)), "view-day", make.view_day({"route": rows}))
    online = request.getfixturevalue("redis").url if kind == "redis" else str(tmp_path / "online")
    writer, reader, seen = Materializer(make.CALENDAR, views, online), OnlineReader(online, seconds=5), 0
    visible = START
    keys = {"origin": [one for one, _ in ENTITIES], "dest": [other for _, other in ENTITIES]}
    for minute in sorted(rng.choice(HOURS * 60, INSTANTS, replace=False).tolist()):
        at = START + (minute + 1) * MINUTE
        writer.write(visible, at + TICK)
        visible = at + TICK
        found = reader.read(["route"], keys, at)
        for place, entity in enumerate(ENTITIES):
            truth = usable(rows, entity, at)
            assert found.columns["route__late_share_7d"][place] == (truth and truth[2]), (entity, at)
            assert found.age_seconds["route"][place] == (truth and (at - truth[0]).total_seconds()), (entity, at)
            seen += truth is not None
    assert seen > INSTANTS  # most reads found something
