"""What service days of the lake must look like: schema, volume, nulls, ranges, keys, freshness, rules across columns. Pure.

Schedule, departure and arrival gate critically: labels are made of them. The weather's volume and ranges only warn,
since the model imputes what is missing, and a silent weather station must not age the rest of the online store; its
file, columns, types and keys gate like the others'.
"""

from __future__ import annotations

import pyarrow as pa

from feature_repo.contract import RAW_TABLES, CheckPolicy
from feature_repo.expectations import daily
from feature_repo.expectations.daily import Daily
from feature_repo.expectations.rules import Rule, TableSuite, between, columns, holds, known, rows, unique
from feature_repo.tables import RAW_KEYS, RAW_SCHEMAS

TABLES = RAW_TABLES
FLIGHT = ("flight_id", "carrier", "flight", "origin", "dest", "scheduled_departure", "event_time", "available_time")
FLIGHTS = "flights"
"""A table made of three: one row per flight of a day, what is known of it last in schedule, departure and arrival."""

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
DEPARTURE_DELAY = (-180, 2880)  # minutes; 2013 has -43 to 1301
ARRIVAL_DELAY = (-240, 2880)  # minutes; 2013 has -86 to 1272

IN_ORDER = ("event_time", "available_time")
KNOWN_IN_ORDER = "event_time <= available_time"


def suites(policy: CheckPolicy, days: int) -> tuple[TableSuite, ...]:
    """The suites of the four tables, of the flights across them, and of the days as a whole, for ``days`` days."""
    return (
        _suite("schedule", [rows(days), *_schedule()]),
        _suite("departure", [rows(days), *_departure()]),
        _suite("arrival", [rows(days), *_arrival()]),
        _suite("weather", [rows(days, severity="warning"), *_weather()]),
        _across(),
        daily.suite(daily_checks(policy), days),
    )


def daily_checks(policy: CheckPolicy) -> dict[str, Daily]:
    """What is asked of each table's days; departures and arrivals are counted against the flights, not past weekdays."""
    flown = Daily(policy.flights_fresh, volume=False)
    return {
        "schedule": Daily(policy.flights_fresh),
        "departure": flown,
        "arrival": flown,
        "weather": Daily(policy.weather_fresh, "warning"),
    }


def _suite(table: str, rules: list[Rule]) -> TableSuite:
    key = (*RAW_KEYS[table], "available_time")  # a restated record has the same key and a later available time
    schema = RAW_SCHEMAS[table].append(pa.field("partition", pa.date32()))
    return TableSuite(table, RAW_KEYS[table], (*columns(schema), *rules, unique(*key)))


def _schedule() -> list[Rule]:
    return [
        *known((*FLIGHT, "distance", "scheduled_arrival")),
        between("distance", 1, 6000),
        holds(
            "arrives_after_departure",
            "scheduled_arrival",
            "scheduled_arrival > scheduled_departure",
            ("scheduled_departure", "scheduled_arrival"),
        ),
    ]


def _departure() -> list[Rule]:
    return [
        *known((*FLIGHT, "cancelled")),
        between("departure_delay", *DEPARTURE_DELAY),
        holds(
            "delay_unless_cancelled",
            "departure_delay",
            "(departure_delay IS NULL) = cancelled",
            ("departure_delay", "cancelled"),
        ),
        holds("known_in_order", "available_time", KNOWN_IN_ORDER, IN_ORDER),
    ]


def _arrival() -> list[Rule]:
    return [
        *known((*FLIGHT, "diverted")),
        between("arrival_delay", *ARRIVAL_DELAY),
        holds(
            "delay_unless_diverted",
            "arrival_delay",
            "(arrival_delay IS NULL) = diverted",
            ("arrival_delay", "diverted"),
        ),
        holds("known_in_order", "available_time", KNOWN_IN_ORDER, IN_ORDER),
    ]


def _weather() -> list[Rule]:
    return [
        *known(("origin", "event_time", "available_time")),
        *known(WEATHER_KNOWN, share=0.9, severity="warning"),
        *(between(name, low, high, severity="warning") for name, (low, high) in WEATHER_RANGES.items()),
        holds("known_in_order", "available_time", KNOWN_IN_ORDER, IN_ORDER),
    ]


def _across() -> TableSuite:
    """Facts of one flight that stand in different tables."""
    rules = (
        rows(1),
        *known(("flight_id",)),
        holds("departure_is_scheduled", "departed", "NOT departed OR scheduled", ("departed", "scheduled")),
        holds(
            "arrival_has_departed", "arrived", "NOT arrived OR (departed AND NOT cancelled)", ("arrived", "departed")
        ),
        holds("arrives_after_it_left", "came", "NOT arrived OR came > left_at", ("came", "left_at")),
    )
    return TableSuite(FLIGHTS, ("flight_id",), rules)
