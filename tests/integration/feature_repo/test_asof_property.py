"""The as-of join beside a plain reading of its rule, on records that are late, restated, repeated and tied."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from feature_repo import asof, spark
from tests.make.history import HOUR, INSTANT, T

pytestmark = pytest.mark.spark

TICK = dt.timedelta(microseconds=1)
KEYS = {"one": ("who",), "also": ("who",), "pair": ("who", "number")}
RULES: Mapping[str, tuple[dt.timedelta, dt.timedelta | None]] = {
    "one": (dt.timedelta(0), 2 * HOUR), "also": (HOUR, None), "pair": (TICK, 3 * HOUR),
}  # fmt: skip
ASKED = pa.schema({"row_id": pa.int64(), "who": pa.string(), "number": pa.int64(), "at": INSTANT})
OFFERED = pa.schema({
    "who": pa.string(), "number": pa.int64(), "event_time": INSTANT, "available_time": INSTANT, "x": pa.float64(), "y": pa.string(),
})  # fmt: skip

instants = st.builds(lambda hours, ticks: T + hours * HOUR + ticks * TICK, st.integers(-4, 2), st.integers(-1, 1))
entity = {"who": st.sampled_from(["a", "b", None]), "number": st.sampled_from([1, 2, None])}
numbers = st.sampled_from([None, math.nan, -math.inf, -1.0, 0.0, 2.0])
asks = st.lists(st.fixed_dictionaries({**entity, "at": instants}), min_size=1, max_size=40)
offers = st.lists(
    st.fixed_dictionaries({
        **entity, "event_time": instants, "available_time": instants, "x": numbers, "y": st.sampled_from([None, "", "z"]),
    }),
    max_size=60,
)  # fmt: skip


@pytest.fixture(scope="module")
def session() -> Iterator[SparkSession]:
    with spark.session("tests") as shared:
        yield shared


def ordered(value: float | str | None) -> tuple[Any, ...]:
    """Spark's order: null, then numbers or text, then NaN."""
    if value is None:
        return (0,)
    return (2,) if isinstance(value, float) and math.isnan(value) else (1, value)


def expected(row: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], view: str) -> tuple[Any, ...]:
    """The rule, read aloud: for one entity row over all rows of a view."""
    delay, ttl = RULES[view]
    usable = [
        offer
        for offer in rows
        if all(row[key] is not None and row[key] == offer[key] for key in KEYS[view])
        and offer["event_time"] <= row["at"] - delay
        and offer["available_time"] <= row["at"]
        and (ttl is None or offer["event_time"] > row["at"] - ttl)
    ]
    if not usable:
        return (None, None, None)
    best = max(
        usable,
        key=lambda offer: (offer["event_time"], offer["available_time"], ordered(offer["x"]), ordered(offer["y"])),
    )
    return best["x"], best["y"], (row["at"] - best["event_time"]).total_seconds()


def same(found: Any, wanted: Any) -> bool:
    both_nan = all(isinstance(value, float) and math.isnan(value) for value in (found, wanted))
    return both_nan or found == wanted


def joined(session: SparkSession, rows: Sequence[Any], views: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    frames = {}
    for view, content in views.items():
        unused = {"who", "number"} - set(KEYS[view])
        table = pa.Table.from_pylist(list(content), schema=OFFERED).drop_columns(list(unused))
        frames[view] = asof.Offers(spark.frame(session, table), KEYS[view], *RULES[view])
    found = asof.join(spark.frame(session, pa.Table.from_pylist(list(rows), schema=ASKED)), frames, ages=True)
    return sorted(found.toArrow().to_pylist(), key=lambda row: row["row_id"])


@settings(max_examples=8, suppress_health_check=list(HealthCheck))
@given(rows=asks, one=offers, also=offers, pair=offers)
def test_every_row_gets_what_the_rule_says(session: SparkSession, rows: Any, one: Any, also: Any, pair: Any) -> None:
    """Rows 54 and 55 of the field reports too: rows out are rows in, also when they repeat."""
    rows = [{"row_id": number, **row} for number, row in enumerate(rows)]
    views = {"one": one, "also": also, "pair": pair}
    found = joined(session, rows, views)
    assert [row["row_id"] for row in found] == [row["row_id"] for row in rows]
    for row, answer in zip(rows, found, strict=True):
        for view, content in views.items():
            got = tuple(answer[f"{view}__{name}"] for name in ("x", "y", "age"))
            wanted = expected(row, content, view)
            assert all(map(same, got, wanted)), f"{view}: {row} got {got}, the rule says {wanted}"


@settings(max_examples=3, suppress_health_check=list(HealthCheck))
@given(rows=asks, one=offers, later=offers)
def test_order_and_what_is_known_later_change_nothing(session: SparkSession, rows: Any, one: Any, later: Any) -> None:
    """Row 57 of the field reports: what arrives afterwards, however old its event, leaves a past answer as it was."""
    rows = [{"row_id": number, **row} for number, row in enumerate(rows)]
    end = max(row["at"] for row in rows)
    sentinels = [offer | {"available_time": end + TICK, "x": 666.0} for offer in later]
    before = joined(session, rows, {"one": one})
    after = joined(session, rows[::-1], {"one": [*sentinels, *one[::-1]]})
    assert repr(before) == repr(after)
