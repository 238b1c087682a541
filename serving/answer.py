"""From checked rows to a logged answer: derive, look up, encode, score, write down, reply."""

from __future__ import annotations

import datetime as dt
import json
import logging
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from pydantic import TypeAdapter, ValidationError

from artifacts.clock import Calendar, DataClock
from artifacts.step import DataFault, explain
from feature_repo.catalogue import ENTITY_KEYS
from feature_repo.online import MAX_ROWS, PRESENT, UNAVAILABLE, OnlineFeatures, OnlineReader, unavailable
from feature_repo.online_server import OnlineUnavailable
from serving.contract import Feedback, Prediction
from serving.endpoint import Arm, Endpoint, Triton, TritonUnavailable
from serving.log import SegmentWriter
from serving.metrics import Metrics
from serving.oip import InferRequest
from serving.rows import MOST_PROBLEMS, REQUEST_ID, RowFault, Rows, check
from training.encoding import encode

log = logging.getLogger(__name__)

FEEDBACK = TypeAdapter(list[Feedback])
UTC_DAYS = Calendar(zone="UTC", close=dt.time(0), lateness=dt.timedelta(0), first=dt.date(1970, 1, 1))
SLACK = dt.timedelta(days=31)  # labels of the last partition become known after it


class Refusal(Exception):
    """An answer other than 200, with the line that the caller reads."""

    def __init__(self, status: int, text: str, retry_after: int | None = None) -> None:
        super().__init__(text)
        self.status, self.text, self.retry_after = status, text, retry_after


def calendar_of(arm: Arm) -> Calendar:
    """The calendar that cuts the model's log into partitions."""
    return arm.deployed.package.serving.calendar or UTC_DAYS


@dataclass(frozen=True)
class Answered:
    """What one request came to: B rows, the columns before encoding, the views' ages by row, scores [B, 1]."""

    rows: Rows
    at: dt.datetime
    columns: Mapping[str, np.ndarray]
    ages: tuple[dict[str, float | None], ...]
    score: np.ndarray


class Answerer:
    """Answers requests of one process."""

    def __init__(
        self,
        *,
        reader: OnlineReader,
        triton: Triton,
        writer: SegmentWriter,
        clock: DataClock,
        metrics: Metrics,
        keep: dt.timedelta,
    ) -> None:
        """``keep`` is how long the log's segments are kept: a label that became known before that would be lost."""
        self._keep = keep
        self._reader, self._triton, self._writer = reader, triton, writer
        self._clock, self._metrics = clock, metrics
        self._away = False

    def now(self) -> dt.datetime:
        """The data clock; refuses with 503 while a replay has not set it."""
        try:
            return self._clock.now()
        except LookupError as error:
            raise Refusal(503, str(error), 5) from error

    async def answer(self, arm: Arm, request: InferRequest) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """The answer's head and output tensors, after the rows are in the log. Raises Refusal."""
        package = arm.deployed.package
        try:
            rows = check(package.serving.request, request, package.signature.max_batch)
            columns = arm.derive(rows.columns)
        except (RowFault, DataFault) as error:
            raise Refusal(400, str(error)) from error
        now = self.now()
        ages = self._look_up(arm, rows, now, columns)
        numeric, categorical = encode(columns, arm.signature)
        try:
            score = await self._triton.score(arm.deployed.name, numeric, categorical, request.timeout_seconds)
        except TritonUnavailable as error:
            raise Refusal(503, str(error), 1) from error
        self._write(arm, Answered(rows, now, columns, ages, score))
        head = {
            "model_name": package.model,
            "model_version": str(arm.deployed.version),
            "parameters": {"name": arm.deployed.name},
        }
        request_ids = np.array([text.encode() for text in rows.request_ids], dtype=object)
        return head, {"score": score, REQUEST_ID: request_ids.reshape(-1, 1)}

    def take(self, model: str, arm: Arm | None, labels: list[Feedback]) -> None:
        """Logs labels in the partitions in which they became known. Raises Refusal for one that does not belong there."""
        calendar, now = calendar_of(arm) if arm else UTC_DAYS, self.now()
        parts: dict[dt.date, list[Feedback]] = {}
        for label in labels:
            partition = calendar.of(label.known_at)
            if fault := misfit(label, arm):
                raise Refusal(400, fault)
            if partition < calendar.first or (calendar.last and partition > calendar.last + SLACK):
                raise Refusal(400, f"feedback: known_at {label.known_at.isoformat()} lies outside the calendar")
            if now - label.known_at > self._keep:
                raise Refusal(
                    400, f"feedback: known_at {label.known_at.isoformat()} is more than {self._keep.days} days ago"
                )
            parts.setdefault(partition, []).append(label)
        for partition, found in parts.items():
            self._writer.append("feedback", model, partition, found, now)
        self._metrics.feedback.labels(model).inc(len(labels))

    def _look_up(
        self, arm: Arm, rows: Rows, now: dt.datetime, columns: dict[str, np.ndarray]
    ) -> tuple[dict[str, float | None], ...]:
        """Adds the online features to the columns, null where nothing fresh is there; the views' ages row by row."""
        model, views = arm.deployed.package.model, tuple(arm.views)
        ages: list[dict[str, float | None]] = []
        parts: dict[str, list[float | None]] = {}
        states: dict[str, list[str]] = {view: [] for view in views}
        for start in range(0, len(rows) if views else 0, MAX_ROWS):
            part = rows.sent[start : start + MAX_ROWS]
            found = self._read(model, views, part, now)
            for name, values in found.columns.items():
                parts.setdefault(name, []).extend(values)
            for view in views:
                states[view] += found.status[view]
            ages += [{view: found.age_seconds[view][row] for view in views} for row in range(len(part))]
        columns.update({name: np.array(values, dtype=float) for name, values in parts.items()})
        self._hold(arm, states)
        return tuple(ages) or ({},) * len(rows)

    def _hold(self, arm: Arm, states: Mapping[str, Sequence[str]]) -> None:
        """Counts what is missing, and refuses the request where its model does not impute."""
        package, lacking = arm.deployed.package, {}
        for view, found in states.items():
            for status, count in Counter(state for state in found if state != PRESENT).items():
                self._metrics.missing.labels(package.model, view, status).inc(count)
                lacking[f"{view} ({status})"] = count
        if not lacking or package.serving.missing == "impute":
            return
        self._metrics.refused_rows.labels(package.model).inc(len(next(iter(states.values()))))
        what = ", ".join(f"{name}: {count} rows" for name, count in lacking.items())
        text = f"'{package.model}' does not impute, and these views have nothing usable: {what}"
        if any(UNAVAILABLE in found for found in states.values()):
            raise Refusal(503, text, 1)
        raise Refusal(422, f"{text}; ask again when the entities are known")

    def _read(
        self, model: str, views: tuple[str, ...], part: Sequence[Mapping[str, Any]], now: dt.datetime
    ) -> OnlineFeatures:
        """What the online store holds for some rows; nulls, counted, while it is away: an imputed answer beats none."""
        keys = {key for view in views for key in ENTITY_KEYS[view]}
        try:
            found = self._reader.read(views, {key: [sent[key] for sent in part] for key in keys}, now)
        except OnlineUnavailable as error:
            self._metrics.online_failures.labels(model).inc()
            if not self._away:
                log.error("requests are answered with imputed features: %s", error)  # noqa: TRY400  the text is enough
            self._away = True
            return unavailable(views, len(part))
        if self._away:
            log.info("the online store answers again")
        self._away = False
        return found

    def _write(self, arm: Arm, answered: Answered) -> None:
        """Appends one line per row with one write. Raises LogUnwritable."""
        deployed, rows = arm.deployed, answered.rows
        model, partition = deployed.package.model, calendar_of(arm).of(answered.at)
        features = {name: _plain(answered.columns[name]) for name in arm.names}
        lines = [
            Prediction(
                request_id=request_id,
                at=answered.at,
                partition=partition,
                model=model,
                version=deployed.version,
                name=deployed.name,
                package_digest=deployed.package.digest,
                inputs=rows.sent[row],
                features={name: values[row] for name, values in features.items()},
                ages=answered.ages[row],
                score=float(answered.score[row, 0]),
            )
            for row, request_id in enumerate(rows.request_ids)
        ]
        self._writer.append("predictions", model, partition, lines, answered.at)
        self._metrics.rows.labels(model, str(deployed.version)).inc(len(rows))


def _plain(values: np.ndarray) -> list[float | str | None]:
    """A column as the log holds it: text as it is, numbers as floats, nothing usable as None."""
    if values.dtype.kind in "OU":
        return [None if value is None else str(value) for value in values.tolist()]
    return [value if math.isfinite(value) else None for value in values.astype(float).tolist()]


def misfit(label: Feedback, arm: Arm | None) -> str | None:
    """Why a label is none of the model that answers; None when it may be one."""
    if label.label in (0, 1) or (arm is not None and arm.deployed.package.serving.task == "regression"):
        return None
    if arm is None:
        return (
            f"feedback.label: {label.label} may be no label, and no version is loaded that says so; send it again later"
        )
    return f"feedback.label: {label.label} is neither 0 nor 1 (request {label.request_id!r}); send the class"


def describe(endpoint: Endpoint, arm: Arm) -> dict[str, object]:
    """The protocol's metadata of a model."""
    package = arm.deployed.package
    optional = {"name": REQUEST_ID, "datatype": "BYTES", "shape": [-1, 1]}
    return {
        "name": endpoint.model,
        "versions": [str(each.deployed.version) for each in endpoint.arms],
        "platform": "perennial",
        "inputs": [
            *({"name": item.name, "datatype": item.datatype, "shape": [-1, 1]} for item in package.serving.request),
            {**optional, "parameters": {"optional": True}},
        ],
        "outputs": [{"name": "score", "datatype": "FP32", "shape": [-1, 1]}, optional],
    }


def parse_feedback(body: bytes) -> list[Feedback]:
    """The labels of a body, one object or a list; refuses with 400 and one line per problem."""
    try:
        sent = json.loads(body)
        return FEEDBACK.validate_python(sent if isinstance(sent, list) else [sent])
    except ValidationError as error:
        raise Refusal(400, "\n".join(explain(error, "feedback")[:MOST_PROBLEMS])) from error
    except (ValueError, RecursionError) as error:
        raise Refusal(400, "the body is no JSON") from error
