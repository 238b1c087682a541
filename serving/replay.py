"""Replays past service days through a gateway: advances the data clock, makes visible what became known, asks, labels.

Slot by slot: everything that became available up to the slot's start is materialised, the clock is advanced to it, then
the slot's requests are sent, then the labels that became known in it. When a partition closes on the data clock, its
part of the log is compacted and announced. A replay that was killed goes on from the clock; it never goes back.
"""

from __future__ import annotations

import asyncio
import collections
import datetime as dt
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import httpx
from pydantic import JsonValue

from artifacts.clock import DataClock
from artifacts.records import Records, check_schema, connect
from artifacts.refs import join, local_path
from artifacts.settings import settings
from artifacts.step import DataFault, TryAgain, progress, step
from artifacts.store import children, manifest
from feature_repo.materialize import Materializer
from serving.announce import announce
from serving.compact import compact
from serving.contract import Announcement, CompactRef, CompactSpec, Feedback, ReplayedPartition, ReplayRef, ReplaySpec
from serving.history import DAY, History, slots
from serving.log import answered
from serving.past import Asked

TICK = dt.timedelta(microseconds=1)
REQUEST_SECONDS = 10.0
PAUSE_SECONDS = 1.0
FIRST_PAUSE_SECONDS = 0.1
BUSY = {429, 503}

Say = Callable[[float, str], None]
Item = TypeVar("Item")


class Caller:
    """Sends requests and labels to one gateway, a few at a time, and waits for it when it is busy or restarting."""

    def __init__(self, spec: ReplaySpec) -> None:
        self._spec = spec
        self._runner = asyncio.Runner()
        token = spec.token_file.read_text().strip()
        self._client = httpx.AsyncClient(
            base_url=spec.gateway,
            headers={"Authorization": f"Bearer {token}", "Accept-Encoding": "identity"},
            timeout=REQUEST_SECONDS,
            trust_env=False,
        )

    def close(self) -> None:
        """Closes the connections."""
        self._runner.run(self._client.aclose())
        self._runner.close()

    def ask(self, requests: list[Asked]) -> None:
        """Sends each request on its own; raises TryAgain when the gateway stays away, DataFault when it refuses."""
        self._runner.run(self._ask_all(requests))

    def label(self, labels: list[Feedback]) -> None:
        """Sends labels in one request."""
        body = [label.model_dump(mode="json") for label in labels]
        self._runner.run(self._post(f"/v2/feedback?model={self._spec.model}", body))

    async def _ask_all(self, requests: list[Asked]) -> None:
        waiting = iter(requests)

        async def work() -> None:
            for asked in waiting:
                await self._post(f"/v2/models/{self._spec.model}/infer", self._body(asked))

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(self._spec.concurrency, len(requests))):
                    group.create_task(work())
        except BaseExceptionGroup as errors:  # the step's door knows single errors
            raise errors.exceptions[0] from None

    def _body(self, asked: Asked) -> dict[str, object]:
        inputs = [
            {"name": item.name, "shape": [1, 1], "datatype": item.datatype, "data": [asked.inputs[item.name]]}
            for item in self._spec.serving.request
        ]
        return {"id": asked.request_id, "inputs": inputs}

    async def _post(self, path: str, body: object) -> None:
        pause, deadline = FIRST_PAUSE_SECONDS, time.monotonic() + self._spec.patience.total_seconds()
        while True:
            try:
                answer = await self._client.post(path, json=body)
                if answer.is_success:
                    return
                said = f"HTTP {answer.status_code}: {answer.text[:300]}"
                if answer.status_code not in BUSY:
                    raise DataFault([f"{self._spec.gateway}{path}: {said}"])
            except httpx.TransportError as error:
                said = type(error).__name__
            if time.monotonic() > deadline:
                raise TryAgain(f"{self._spec.gateway}{path}: {said}; gave up after {self._spec.patience}")
            await asyncio.sleep(pause)
            pause = min(2 * pause, 2.0)


class Replay:
    """One replay in progress."""

    def __init__(self, spec: ReplaySpec, clock: DataClock, say: Say) -> None:
        self._spec, self._clock, self._say = spec, clock, say
        log = local_path(spec.log)
        if log is None:
            raise DataFault([f"log: '{spec.log}' is no file:// URI; the replay reads the gateway's own folder"])
        self._log: Path = log
        self._history = History(spec)
        self._materializer = Materializer(spec.calendar, spec.views, spec.online)
        self._caller = Caller(spec)
        try:
            self._start = clock.now()
        except LookupError:
            self._start = spec.calendar.starts(spec.first)
        self._visible = self._start - spec.history
        self._asked: set[str] = set()
        today = spec.calendar.of(self._start)
        for partition in (today - 2 * DAY, today - DAY, today):
            self._asked |= answered(self._log, spec.model, partition)
        self._sent: collections.Counter[dt.date] = collections.Counter()

    def run(self) -> Iterator[ReplayedPartition]:
        """Yields each partition when it has closed, been compacted and announced."""
        calendar, now = self._spec.calendar, self._start
        partition = self._spec.first
        try:
            while partition <= self._spec.last:
                end, begun = calendar.as_of(partition), time.monotonic()
                if end > now:
                    labels = self._leg(partition, now, end)
                    now = end
                    yield self._close(partition, labels, begun)
                elif self._was_cut(partition):
                    yield self._close(partition, 0, begun)
                partition += DAY
        finally:
            self._caller.close()

    def _was_cut(self, partition: dt.date) -> bool:
        """Whether an earlier replay may have ended between a partition's close and its announcement.

        The newest one is announced once more, since a second event does no harm and a lost one does.
        """
        newest = self._spec.calendar.newest_closed(self._start)
        return partition == newest or manifest(join(self._spec.predictions, partition.isoformat())) is None

    def _leg(self, partition: dt.date, start: dt.datetime, end: dt.datetime) -> int:
        """Plays [start, end) and stops with the clock at ``end``; returns how many labels were sent."""
        spec, count = self._spec, 0
        cuts = self._history.instants(start, end) | {
            spec.calendar.ends(spec.calendar.of(start) + n * DAY) for n in (0, 1)
        }
        requests = collections.deque(self._history.requests(start, end))
        labels = collections.deque(self._history.labels(start, end))
        for a, b in slots(start, end, cuts):
            self._say(
                self._fraction(a), f"replaying {partition}: {a:%m-%d %H:%M}Z, {sum(self._sent.values())} requests"
            )
            self._arrive(a)
            due = [
                asked for asked in _until(requests, b, lambda asked: asked.at) if asked.request_id not in self._asked
            ]
            self._caller.ask(due)
            self._asked.update(asked.request_id for asked in due)
            self._sent.update(spec.calendar.of(asked.at) for asked in due)
            known = [
                label for label in _until(labels, b, lambda label: label.known_at) if label.request_id in self._asked
            ]
            if known:
                self._caller.label(known)
            count += len(known)
        self._arrive(end)
        return count

    def _arrive(self, instant: dt.datetime) -> None:
        """Makes visible what became available up to and including the instant, then moves the clock to it."""
        if instant + TICK > self._visible:
            self._materializer.write(self._visible, instant + TICK)
            self._visible = instant + TICK
        self._clock.advance(instant)

    def _fraction(self, instant: dt.datetime) -> float:
        calendar = self._spec.calendar
        whole = calendar.as_of(self._spec.last) - self._start
        return (instant - self._start) / whole if whole else 1.0

    def _close(self, partition: dt.date, labels: int, begun: float) -> ReplayedPartition:
        spec, calendar = self._spec, self._spec.calendar
        compacted = compact(
            CompactSpec(
                model=spec.model,
                task=spec.serving.task,
                partition=partition,
                log=spec.log,
                predictions=join(spec.predictions, partition.isoformat()),
                feedback=join(spec.feedback, partition.isoformat()),
            )
        )
        self._announce(partition, compacted)
        due = len(self._history.requests(calendar.starts(partition), calendar.ends(partition)))
        return ReplayedPartition(
            partition=partition,
            sent=self._sent[partition],
            skipped=due - self._sent[partition],
            labels=labels,
            seconds=time.monotonic() - begun,
            compacted=compacted,
        )

    def _announce(self, partition: dt.date, compacted: CompactRef) -> None:
        to, found = self._spec.announcement, compacted.predictions
        if to is not None:
            extra: dict[str, JsonValue] = {
                "partition": partition.isoformat(),
                "uri": found.uri,
                "digest": found.digest,
                "rows": found.rows,
            }
            self._post_event(to, extra)

    def _post_event(self, to: Announcement, extra: dict[str, JsonValue]) -> None:
        """Posts the event; an Airflow that is busy or restarting is asked again for as long as the gateway would be."""
        until = time.monotonic() + self._spec.patience.total_seconds()
        while True:
            try:
                announce(to.airflow, to.username, to.password_file, to.asset, extra)
            except ConnectionError:
                if time.monotonic() > until:
                    raise
                time.sleep(PAUSE_SECONDS)
            else:
                return


def _until(waiting: collections.deque[Item], end: dt.datetime, when: Callable[[Item], dt.datetime]) -> list[Item]:
    """Takes from the front everything that is earlier than ``end``."""
    taken = []
    while waiting and when(waiting[0]) < end:
        taken.append(waiting.popleft())
    return taken


def _require_forward(spec: ReplaySpec, clock: DataClock) -> None:
    """Refuses to play days again whose log has closed: the online store holds what came after them."""
    try:
        now = clock.now()
    except LookupError:
        now = spec.calendar.starts(spec.first)
    days = [dt.date.fromisoformat(name) for name in children(spec.predictions)]
    if days and spec.calendar.as_of(days[-1]) > now:
        raise DataFault([
            f"{spec.predictions}: {days[-1]} has been replayed and closed, and the data clock says {now:%Y-%m-%dT%H:%MZ}: it "
            "has gone back; replay into a state of its own (PERENNIAL_STATE)"
        ])


def replay(spec: ReplaySpec, clock: DataClock, say: Say = progress) -> Iterator[ReplayedPartition]:
    """Yields each partition of [first, last] after it has closed; the caller may wait between two, or stop.

    Raises TryAgain when the gateway or Airflow stays away, DataFault when data or requests are refused, or when the clock
    lies before what was replayed. Calling it again goes on from the data clock. Requests from before the clock are skipped
    and counted.
    """
    _require_forward(spec, clock)
    yield from Replay(spec, clock, say).run()


def replay_days(spec: ReplaySpec) -> ReplayRef:
    """Replays all days of the spec without waiting for anyone, on the clock of this deployment."""
    engine = connect(settings().database)
    check_schema(engine)
    clock = DataClock(settings().clock, Records(engine))
    return ReplayRef(model=spec.model, partitions=tuple(replay(spec, clock)))


if __name__ == "__main__":
    sys.exit(step(replay_days, ReplaySpec))
