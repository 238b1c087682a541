"""``python -m operators.backfill MODEL FIRST LAST --reason WHY``: trains through each day of the past, the newest first.

One run of ``backfill__<model>`` per day, one after the other in their own pool; it starts them and does not wait.
"""

from __future__ import annotations

import argparse
import datetime as dt
import sys
from typing import Any

from artifacts.clock import NotClosed
from operators import live
from operators.partitions import resolve
from operators.pipelines import pipeline
from operators.rollback import client

MOST_DAYS = 60


def days(first: dt.date, last: dt.date) -> tuple[dt.date, ...]:
    """The service days from ``first`` to ``last``, newest first; raises ValueError when they are none, or too many."""
    count = (last - first).days + 1
    if not 1 <= count <= MOST_DAYS:
        raise ValueError(
            f"{first} to {last} are {count} days; give the older one first, and at most {MOST_DAYS} at a time"
        )
    return tuple(last - dt.timedelta(days=number) for number in range(count))


def main(argv: list[str], airflow: Any = None) -> int:
    """Starts the runs; every day has to be closed, or none is started."""
    parser = argparse.ArgumentParser(prog="python -m operators.backfill", description=__doc__)
    parser.add_argument("model")
    parser.add_argument("first", type=dt.date.fromisoformat)
    parser.add_argument("last", type=dt.date.fromisoformat)
    parser.add_argument("--reason", required=True)
    parser.add_argument("--user", default="admin", help="Airflow user; the ledger names it")
    arguments = parser.parse_args(argv)
    row = pipeline(arguments.model)
    try:
        wanted = days(arguments.first, arguments.last)
        for day in wanted:
            resolve(day.isoformat(), None, row.calendar, live.now())
    except (ValueError, NotClosed) as error:
        parser.error(str(error))
    airflow = airflow or client(arguments.user)
    for day in wanted:
        airflow.trigger(f"backfill__{row.model}", {"partition": day.isoformat(), "reason": arguments.reason})
    print(f"{len(wanted)} runs of backfill__{row.model} wait, {wanted[0]} first")  # noqa: T201  what the command is for
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
