"""The as-of join's row rule, one case per row, in a real Spark."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from feature_repo import asof, spark, tables
from tests.make.feature_repo import utc

pytestmark = pytest.mark.spark

T = utc("2013-06-03T15:00:00")
HOUR = dt.timedelta(hours=1)
INSTANT = dt.timedelta(microseconds=1)
TTL = dt.timedelta(days=7)
ASKED = pa.schema({"row_id": pa.string(), "origin": pa.string(), "carrier": pa.string(), "at": tables.INSTANT})
OFFERED = pa.schema({
    "origin": pa.string(), "event_time": tables.INSTANT, "available_time": tables.INSTANT, "temp": pa.float64(),
})  # fmt: skip


@pytest.fixture(scope="module")
def session() -> Iterator[SparkSession]:
    with spark.session("tests") as shared:
        yield shared


def offer(origin: str | None, event: dt.timedelta, available: dt.timedelta, temp: float | None) -> dict[str, Any]:
    return {"origin": origin, "event_time": T + event, "available_time": T + available, "temp": temp}


def ask(
    session: SparkSession, entities: Sequence[dict[str, Any]], offers: Sequence[dict[str, Any]], **rule: Any
) -> dict[str, Any]:
    joined = asof.join(
        spark.frame(session, pa.Table.from_pylist(list(entities), schema=ASKED)),
        {
            "weather": asof.Offers(
                spark.frame(session, pa.Table.from_pylist(list(offers), schema=OFFERED)),
                ("origin",),
                **{"ttl": TTL} | rule,
            )
        },
    ).toArrow()
    assert joined.num_rows == len(entities), "rows out = rows in"
    return dict(zip(joined["row_id"].to_pylist(), joined["weather__temp"].to_pylist(), strict=True))


CASES = {
    "newest": ([(-3 * HOUR, -3 * HOUR, 1.0), (-HOUR, -HOUR, 2.0)], 2.0),
    "at T itself": ([(0 * HOUR, 0 * HOUR, 1.0)], 1.0),
    "event after T": ([(-HOUR, -HOUR, 1.0), (INSTANT, INSTANT, 2.0)], 1.0),
    "available after T": ([(-2 * HOUR, -2 * HOUR, 1.0), (-HOUR, INSTANT, 2.0)], 1.0),
    "back-filled before T, older event": ([(-HOUR, -HOUR, 1.0), (-2 * HOUR, -INSTANT, 2.0)], 1.0),
    "restated: same event, later available": ([(-HOUR, -HOUR, 1.0), (-HOUR, -INSTANT, 2.0)], 2.0),
    "same clocks: the larger value, whatever the order": ([(-HOUR, -HOUR, 5.0), (-HOUR, -HOUR, 4.0)], 5.0),
    "just alive": ([(-TTL + INSTANT, -TTL + INSTANT, 1.0)], 1.0),
    "expired": ([(-TTL, -TTL, 1.0)], None),
    "expired event that became available late": ([(-TTL, -HOUR, 1.0)], None),
    "the newest holds a null": ([(-2 * HOUR, -2 * HOUR, 1.0), (-HOUR, -HOUR, None)], None),
    "same clocks: a number before a null": ([(-HOUR, -HOUR, None), (-HOUR, -HOUR, -1.0)], -1.0),
    "nothing offered": ([], None),
}


@pytest.mark.covers("decisions 3.1", "decisions 3.2", "field-reports 53")
def test_each_case_of_the_row_rule(session: SparkSession) -> None:
    entities = [{"row_id": name, "origin": name, "carrier": "UA", "at": T} for name in CASES]
    offers = [offer(name, *row) for name, (rows, _) in CASES.items() for row in rows]
    expected = {name: value for name, (_, value) in CASES.items()}
    assert ask(session, entities, offers) == expected
    assert ask(session, entities[::-1], offers[::-1]) == expected


@pytest.mark.covers("decisions 3.4", "field-reports 54", "field-reports 55")
def test_equal_rows_and_null_keys_all_stay(session: SparkSession) -> None:
    entities = [{"row_id": f"r{n}", "origin": "JFK", "carrier": "UA", "at": T} for n in range(3)]
    entities.append({"row_id": "none", "origin": None, "carrier": "UA", "at": T})
    found = ask(session, entities, [offer("JFK", -HOUR, -HOUR, 7.0), offer(None, -HOUR, -HOUR, 8.0)])
    assert found == {"r0": 7.0, "r1": 7.0, "r2": 7.0, "none": None}


def test_the_declared_delay_hides_a_row_until_it_is_that_old(session: SparkSession) -> None:
    entities = [{"row_id": "r", "origin": "JFK", "carrier": "UA", "at": T}]
    offers = [offer("JFK", -2 * HOUR, -2 * HOUR, 1.0), offer("JFK", -HOUR, -HOUR, 2.0)]
    assert ask(session, entities, offers, delay=HOUR) == {"r": 2.0}
    assert ask(session, entities, offers, delay=HOUR + INSTANT) == {"r": 1.0}
    assert ask(session, entities, offers, ttl=HOUR) == {"r": None}


def test_views_keep_their_own_keys_delay_ttl_and_age(session: SparkSession) -> None:
    entities = [
        {"row_id": "r", "origin": "JFK", "carrier": "UA", "at": T},
        {"row_id": "no carrier", "origin": "JFK", "carrier": None, "at": T},
        {"row_id": "no instant", "origin": "JFK", "carrier": "UA", "at": None},
    ]
    both = pa.schema([pa.field("carrier", pa.string()), *OFFERED])
    rows = {
        "origin": pa.Table.from_pylist(
            [offer("JFK", -HOUR, -HOUR, 1.0), offer("JFK", -3 * HOUR, -HOUR, 2.0)], schema=OFFERED
        ),
        "pair": pa.Table.from_pylist(
            [{"carrier": c, **offer("JFK", -2 * HOUR, -HOUR, 3.0)} for c in ("UA", None)], schema=both
        ),
        "short": pa.Table.from_pylist([offer("JFK", -2 * HOUR, -2 * HOUR, 4.0)], schema=OFFERED),
        "no clock": pa.Table.from_pylist([offer("JFK", -HOUR, -HOUR, 5.0) | {"available_time": None}], schema=OFFERED),
    }
    frames = {view: spark.frame(session, table) for view, table in rows.items()}
    found = asof.join(
        spark.frame(session, pa.Table.from_pylist(entities, schema=ASKED)),
        {
            "pair": asof.Offers(frames["pair"], ("origin", "carrier")),
            "origin": asof.Offers(frames["origin"], ("origin",), delay=2 * HOUR, ttl=TTL),
            "short": asof.Offers(frames["short"], ("origin",), ttl=2 * HOUR),
            "no clock": asof.Offers(frames["no clock"], ("origin",)),
        },
        ages=True,
    ).toArrow()
    values = {
        row["row_id"]: {name: row[name] for name in found.column_names if "__" in name} for row in found.to_pylist()
    }
    nothing = dict.fromkeys(values["r"])
    assert list(nothing) == [
        f"{view}__{name}" for view in ("pair", "origin", "short", "no clock") for name in ("temp", "age")
    ]
    only_origin = {"origin__temp": 2.0, "origin__age": 3 * 3600.0}
    assert values["r"] == nothing | only_origin | {"pair__temp": 3.0, "pair__age": 2 * 3600.0}
    assert values["no carrier"] == nothing | only_origin
    assert values["no instant"] == nothing
