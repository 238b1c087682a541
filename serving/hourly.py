"""Keeps house in the prediction log: closed hours to a sink, closed partitions to the store and announced, old segments away.

``python -m serving.hourly`` does it once; the gateway starts it every ``PERENNIAL_GATEWAY_HOURLY_SECONDS`` as a process of
its own, so that no request waits for it. Every part may be repeated: the same segments give the same bytes under the same
names (at least once; readers go by request id). Under replay the replay tool closes partitions, and this does nothing.
"""

from __future__ import annotations

import datetime as dt
import logging
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import JsonValue

from artifacts.clock import Calendar
from artifacts.records import Records, connect
from artifacts.refs import Uri, file_uri, join
from artifacts.store import manifest, write_bytes
from feature_repo.contract import Task
from serving.announce import AnnouncementRefused, announce
from serving.answer import UTC_DAYS
from serving.compact import compact, feedback_table, prediction_table
from serving.contract import CompactSpec, Feedback, Prediction, Routing
from serving.gateway_settings import GatewaySettings
from serving.log import KINDS, Kind, hour_of, rows, segments
from serving.retention import old
from serving.structured import log_as_json

log = logging.getLogger(__name__)

GRACE = dt.timedelta(minutes=5)
"""After an hour's end: an answer is logged at the instant it was asked for, at most the gateway's deadline ago."""
NICE = 15


class Sink(Protocol):
    """Where closed hours go. ``put`` must be atomic, and putting the same name again replaces it."""

    def put(self, name: str, content: bytes) -> None:
        """Stores one object; raises OSError or StoreAway when that could not be done, and is then asked again."""


class StoreSink:
    """A folder, or object storage (s3://bucket/prefix) through fsspec, as ``PERENNIAL_STORES`` declares it."""

    def __init__(self, root: Uri) -> None:
        self._root = root

    def put(self, name: str, content: bytes) -> None:
        """Writes one object."""
        write_bytes(join(self._root, *name.split("/")), content)


def partitions(log_root: Path, model: str) -> list[dt.date]:
    """The partitions that have segments on this machine, oldest first."""
    return sorted(dt.date.fromisoformat(path.name) for path in (log_root / model).glob("????-??-??"))


def ship(log_root: Path, model: str, sink: Sink, now: dt.datetime, task: Task = "classification") -> list[str]:
    """Puts every closed hour that has changed since it was last put; the names that were put.

    ``<model>/<kind>/<partition>/<hour>-<machine>.parquet`` holds the rows of all this machine's segments of that hour,
    one per request id. What was put is remembered beside the segments, after the sink has taken it.
    """
    put = []
    for partition in partitions(log_root, model):
        for kind in KINDS:
            for hour, found in _hours(segments(log_root, kind, model, partition)):
                if now < hour + dt.timedelta(hours=1) + GRACE:
                    continue
                state = ",".join(f"{path.name}:{path.stat().st_size}" for path in found)
                note = found[0].with_name(f".{kind}-{hour:%Y%m%dT%H}.put")
                if note.exists() and note.read_text() == state:
                    continue
                name = f"{model}/{kind}/{partition}/{hour:%Y%m%dT%H}-{os.uname().nodename}.parquet"
                sink.put(name, _parquet(kind, found, task))
                note.write_text(state)
                put.append(name)
    return put


def _hours(found: Sequence[Path]) -> Iterator[tuple[dt.datetime, list[Path]]]:
    hours: dict[dt.datetime, list[Path]] = {}
    for path in found:
        hours.setdefault(hour_of(path), []).append(path)
    yield from sorted(hours.items())


def _parquet(kind: Kind, found: Sequence[Path], task: Task) -> bytes:
    if kind == "predictions":
        table = prediction_table(row for path in found for row in rows(path, Prediction))
    else:
        table = feedback_table((row for path in found for row in rows(path, Feedback)), task)
    output = pa.BufferOutputStream()
    pq.write_table(table.replace_schema_metadata({"schema_version": "1"}), output, compression="zstd")
    return bytes(output.getvalue().to_pybytes())


def close(settings: GatewaySettings, routing: Routing, now: dt.datetime) -> list[dt.date]:
    """Compacts each closed partition that is not in the store yet, announces it, and prunes old ones; the closed ones.

    A partition is announced before the next is looked at; one whose announcement failed is announced by the next run.
    """
    calendar, task = _calendar(routing)
    closed, here = [], partitions(settings.log, routing.model)
    for partition in here:
        if calendar.as_of(partition) > now:
            continue
        spec = _spec(settings, routing.model, partition, task)
        said = settings.log / routing.model / partition.isoformat() / ".announced"
        if manifest(spec.predictions) is not None and said.exists():
            continue
        found = compact(spec).predictions
        if to := settings.announcement(routing.model):
            extra: dict[str, JsonValue] = {
                "partition": partition.isoformat(),
                "uri": found.uri,
                "digest": found.digest,
                "rows": found.rows,
            }
            announce(to.airflow, to.username, to.password_file, to.asset, extra)
        said.touch()
        closed.append(partition)
    for partition in old(here, calendar.of(now), dt.timedelta(days=settings.gateway_log_keep_days + 2)):
        prune(settings.log, _spec(settings, routing.model, partition, task))
    return closed


def prune(log_root: Path, spec: CompactSpec) -> int:
    """Removes the segments of a partition after compacting them once more; how many. No row may come to it any more."""
    if manifest(spec.predictions) is None or manifest(spec.feedback) is None:
        return 0
    there = [path for kind in KINDS for path in segments(log_root, kind, spec.model, spec.partition)]
    if not there:
        return 0
    compact(spec)
    for path in there:
        path.unlink()
    return len(there)


def _calendar(routing: Routing) -> tuple[Calendar, Task]:
    serving = routing.champion.package.serving if routing.champion else None
    return (serving.calendar or UTC_DAYS, serving.task) if serving else (UTC_DAYS, "classification")


def _spec(settings: GatewaySettings, model: str, partition: dt.date, task: Task) -> CompactSpec:
    place = {kind: join(settings.store, kind, model, partition.isoformat()) for kind in KINDS}
    return CompactSpec(model=model, partition=partition, task=task, log=file_uri(settings.log), **place)


def main() -> int:
    """Keeps house once; exit code 1 when a part has to be tried again."""
    log_as_json()
    os.nice(NICE)
    settings = GatewaySettings()
    if settings.clock == "replay":
        return 0
    records, now, failed = Records(connect(settings.database)), dt.datetime.now(dt.UTC), False
    for model in settings.gateway_models:
        record = records.get(Routing.record(model))
        routing = Routing.model_validate(record.value) if record.version else Routing(model=model)
        try:
            closed = close(settings, routing, now)
            put = (
                ship(settings.log, model, StoreSink(settings.gateway_log_sink), now)
                if settings.gateway_log_sink
                else []
            )
            log.info("kept house", extra={"said": {"model": model, "closed": closed, "put": len(put)}})
        except (OSError, RuntimeError, ConnectionError, AnnouncementRefused) as error:
            failed = True
            log.error("%s: %s", type(error).__name__, error)  # noqa: TRY400  the text is enough
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
