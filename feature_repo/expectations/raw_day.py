"""What one service day of the lake must look like: schema, volume, nulls, ranges, keys, and rules across columns. Pure.

Schedule, departure and arrival gate critically: labels are made of them. The weather's volume and ranges only warn,
since the model imputes what is missing, and a silent weather station must not age the rest of the online store; its
file, columns, types and keys gate like the others'.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping

from feature_repo.contract import CheckPolicy
from feature_repo.expectations.rules import Rule, TableSuite, between, columns, holds, known, rows, unique
from feature_repo.tables import RAW_KEYS, RAW_SCHEMAS

FLIGHT = ("flight_id", "carrier", "flight", "origin", "dest", "scheduled_departure", "event_time", "available_time")

WEATHER_RANGES = {
    "temp": (-60, 140),  # degrees Fahrenheit
    "dewp": (-80, 100),
    "humid": (0, 100),  # percent
    "wind_dir": (0, 360),
    "wind_speed": (0, 150),  # miles per hour; 2013 holds one row of 1048
    "wind_gust": (0, 200),
    "precip": (0, 20),  # inches per hour
    "pressure": (850, 1100),  # hPa
    "visib": (0, 100),  # miles
}
WEATHER_KNOWN = ("temp", "dewp", "humid", "wind_speed", "precip", "visib")  # gusts and pressure are often unreported

KNOWN_IN_ORDER = "event_time <= available_time"


def suites(
    counts: Mapping[str, int], volume_history: tuple[int, ...], policy: CheckPolicy
) -> tuple[tuple[TableSuite, ...], tuple[str, ...]]:
    """The suites of the four tables, and a line per check that is left out.

    ``counts`` holds the distinct flights of ``schedule`` and the flights of ``departure`` that were not cancelled,
    which say how many rows the next table should have.
    """
    volume, notes = relative_volume(volume_history, policy)
    tables = (
        _suite("schedule", [rows(policy.flights_per_day), *volume, *_schedule()]),
        _suite("departure", [rows(_share(counts.get("schedule", 0), policy.departed_share)), *_departure()]),
        _suite("arrival", [rows(_share(counts.get("departed", 0), policy.arrived_share)), *_arrival()]),
        _suite("weather", [rows(policy.weather_rows, severity="warning"), *_weather()]),
    )
    return tables, notes


def relative_volume(history: tuple[int, ...], policy: CheckPolicy) -> tuple[list[Rule], tuple[str, ...]]:
    """Rows within a band around the median of the same weekdays before; left out, and said so, when too few are known."""
    if len(history) < policy.volume_history:
        return [], (
            f"relative volume was not checked: volume_history has {len(history)} entries, it needs {policy.volume_history}",
        )
    median = statistics.median(history)
    least, most = math.ceil(policy.volume_low * median), math.floor(policy.volume_high * median)
    return [rows(least, most, key="volume")], ()


def _suite(table: str, rules: list[Rule]) -> TableSuite:
    key = (*RAW_KEYS[table], "available_time")  # a restated record has the same key and a later available time
    return TableSuite(table, RAW_KEYS[table], (*columns(RAW_SCHEMAS[table]), *rules, unique(*key)))


def _share(whole: int, share: float) -> int:
    return max(1, math.ceil(whole * share))


def _schedule() -> list[Rule]:
    return [
        *known((*FLIGHT, "distance", "scheduled_arrival")),
        between("distance", 1, 6000),
        holds("arrives_after_departure", "scheduled_arrival", "scheduled_arrival > scheduled_departure"),
    ]


def _departure() -> list[Rule]:
    return [
        *known((*FLIGHT, "cancelled")),
        between("departure_delay", -180, 2880),  # minutes; 2013 has -43 to 1301
        holds("delay_unless_cancelled", "departure_delay", "(departure_delay IS NULL) = cancelled"),
        holds("known_in_order", "available_time", KNOWN_IN_ORDER),
    ]


def _arrival() -> list[Rule]:
    return [
        *known((*FLIGHT, "diverted")),
        between("arrival_delay", -240, 2880),  # minutes; 2013 has -86 to 1272
        holds("delay_unless_diverted", "arrival_delay", "(arrival_delay IS NULL) = diverted"),
        holds("known_in_order", "available_time", KNOWN_IN_ORDER),
    ]


def _weather() -> list[Rule]:
    return [
        *known(("origin", "event_time", "available_time")),
        *known(WEATHER_KNOWN, share=0.9, severity="warning"),
        *(between(name, low, high, severity="warning") for name, (low, high) in WEATHER_RANGES.items()),
        holds("known_in_order", "available_time", KNOWN_IN_ORDER),
    ]
