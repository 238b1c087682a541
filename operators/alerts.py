"""Alerts from outside: what a body says, and what of it becomes evidence in the ledger. An alert never starts a retrain.

An alert is told by its id and its time, and is kept once: the ledger's unique key is the memory against replays. It is
bounded, because what is older than ``max_age`` is refused by its time, and a day of a model takes ``per_day`` alerts at most.
"""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Literal, NamedTuple, TypeVar

from pydantic import AwareDatetime, BaseModel, Field, StringConstraints, ValidationError

from artifacts.refs import key_digest
from artifacts.step import explain
from operators.ledger import Ledger
from operators.pipelines import PIPELINES, Pipeline, pipeline
from operators.plans.evidence import LONGEST_WORDS
from operators.plans.watch import ALERT

Name = Annotated[str, StringConstraints(min_length=1, max_length=200)]


Form = TypeVar("Form", bound=BaseModel)


class AlertPolicy(BaseModel, frozen=True, extra="forbid"):
    """What is taken from outside."""

    body_bytes: int = Field(
        default=256 << 10, gt=0, description="Of a body; an Alertmanager group of 100 has about 60 kB."
    )
    alerts: int = Field(default=100, gt=0, description="In one body.")
    per_minute: int = Field(
        default=60, gt=0, description="Requests to one API server; Alertmanager sends one per group and 5 minutes."
    )
    max_age: dt.timedelta = Field(
        default=dt.timedelta(days=3),
        description="The days that the debounce looks back; older ones can change nothing.",
    )
    ahead: dt.timedelta = Field(default=dt.timedelta(minutes=5), description="How far a sender's clock may be ahead.")
    per_day: int = Field(default=50, gt=0, description="Of a model and partition; all of them are one hit.")


class Refused(ValueError):
    """Nothing of a body was taken; ``status`` is HTTP's, and there is one line per problem."""

    def __init__(self, status: int, *lines: str) -> None:
        super().__init__("\n".join(lines))
        self.status, self.lines = status, lines


class Said(NamedTuple):
    """One alert: ``id`` is the sender's own, ``at`` the time at which it began."""

    model: str
    id: str
    at: dt.datetime
    words: str
    source: Literal["alertmanager", "generic"]


class _Firing(BaseModel):
    """One alert of Alertmanager's webhook, version 4; fields that are not read may come and go."""

    status: Literal["firing", "resolved"]
    labels: dict[str, str]
    annotations: dict[str, str] = {}
    startsAt: AwareDatetime  # noqa: N815  Alertmanager's own names
    fingerprint: Name


class _Group(BaseModel):
    version: Literal["4"]
    alerts: list[_Firing]


class _Generic(BaseModel, extra="forbid"):
    """The plain form, for anything that is no Alertmanager."""

    id: Name
    at: AwareDatetime
    model: Name
    words: Annotated[str, StringConstraints(min_length=1)]


def from_alertmanager(body: bytes, policy: AlertPolicy) -> list[Said]:
    """The firing alerts of a group; resolved ones are left out, since that it fired stays true. Raises Refused."""
    group = _parsed(_Group, body, "alertmanager")
    if len(group.alerts) > policy.alerts:
        raise Refused(
            422, f"alertmanager: alerts: {len(group.alerts)} are too many; at most {policy.alerts} are taken at once"
        )
    unlabelled = [
        f"alertmanager: alerts.{place}.labels.model: is missing; add the label to the rule, one of {_models()}"
        for place, alert in enumerate(group.alerts)
        if "model" not in alert.labels
    ]
    if unlabelled:
        raise Refused(422, *unlabelled)
    return [
        Said(alert.labels["model"], alert.fingerprint, alert.startsAt, _alert_words(alert), "alertmanager")
        for alert in group.alerts
        if alert.status == "firing"
    ]


def _alert_words(alert: _Firing) -> str:
    said = alert.annotations.get("summary") or alert.annotations.get("description") or ""
    return ": ".join(word for word in (alert.labels.get("alertname", ""), said) if word) or alert.fingerprint


def from_generic(body: bytes, _policy: AlertPolicy) -> list[Said]:
    """The one alert of the plain form; raises Refused."""
    found = _parsed(_Generic, body, "alert")
    return [Said(found.model, found.id, found.at, found.words, "generic")]


def _parsed(kind: type[Form], body: bytes, place: str) -> Form:
    try:
        return kind.model_validate_json(body)
    except ValidationError as error:
        status = 400 if error.errors()[0]["type"] == "json_invalid" else 422
        raise Refused(status, *(line[:LONGEST_WORDS] for line in explain(error, place))) from None


class Taken(BaseModel, frozen=True):
    """What became of the alerts of one body."""

    accepted: int = 0
    repeated: int = 0
    refused: tuple[str, ...] = ()
    models: tuple[str, ...] = ()


def take(said: Sequence[Said], book: Ledger, now: dt.datetime, policy: AlertPolicy) -> Taken:
    """Writes what is new into the ledger; raises Refused when nothing of a body could be taken.

    An unknown model refuses the whole body before anything is written. ``now`` is the data clock.
    """
    unknown = {alert.model for alert in said} - set(_models())
    if unknown:
        raise Refused(422, *(f"model: there is no '{model}'; one of {_models()}" for model in sorted(unknown)))
    accepted, repeated, refused = set(), 0, []
    for alert in said:
        row, name = pipeline(alert.model), _identity(alert)
        if problem := _too_old_or_new(row, alert, now, policy):
            refused.append(problem)
        elif book.find(name):
            repeated += 1
        elif problem := _full(row, alert, book, policy):
            refused.append(problem)
        else:
            accepted.add((alert.model, _write(row, alert, book, name)))
    if refused and not accepted and not repeated:
        raise Refused(409, *refused)
    models = tuple(sorted({model for model, _ in accepted}))
    return Taken(accepted=len(accepted), repeated=repeated, refused=tuple(refused), models=models)


def _identity(alert: Said) -> str:
    return f"alert:{alert.model}:{key_digest({'id': alert.id, 'at': alert.at.astimezone(dt.UTC).isoformat()})}"


def _too_old_or_new(row: Pipeline, alert: Said, now: dt.datetime, policy: AlertPolicy) -> str | None:
    shown, clock = (
        f"alert '{alert.id}': at {alert.at:%Y-%m-%dT%H:%M:%SZ}",
        f"the data clock shows {now:%Y-%m-%dT%H:%MZ}",
    )
    if alert.at > now + policy.ahead:
        return f"{shown} lies ahead; {clock}. Mend the sender's clock"
    if alert.at < now - policy.max_age:
        return f"{shown} began more than {policy.max_age.days} days ago ({clock}) and can change nothing any more"
    if row.calendar.of(alert.at) < row.calendar.first:
        return f"{shown} lies before the calendar of '{row.model}', which begins on {row.calendar.first}"
    return None


def _full(row: Pipeline, alert: Said, book: Ledger, policy: AlertPolicy) -> str | None:
    day = row.calendar.of(alert.at).isoformat()
    there = sum(entry.body["partition"] == day for entry in book.entries(ALERT, row.model, newest=policy.per_day * 4))
    return (
        f"alert '{alert.id}': {day} has {there} alerts already, and they are one hit"
        if there >= policy.per_day
        else None
    )


def _write(row: Pipeline, alert: Said, book: Ledger, name: str) -> int:
    body = {
        "partition": row.calendar.of(alert.at).isoformat(),
        "words": " ".join(alert.words.split())[:LONGEST_WORDS],
        "id": alert.id,
        "began": alert.at.astimezone(dt.UTC).isoformat(),
        "source": alert.source,
    }
    return book.append(ALERT, row.model, body, unique=name, actor=alert.source).id


def _models() -> list[str]:
    return [row.model for row in PIPELINES]


class Rate:
    """A bucket of requests that refills evenly; ``clock`` gives seconds that never go back."""

    def __init__(self, per_minute: int, clock: Callable[[], float]) -> None:
        self._most, self._clock, self._lock = float(per_minute), clock, threading.Lock()
        self._left, self._at = self._most, clock()

    def wait(self) -> float:
        """Takes one request and returns 0, or the seconds after which there is room again."""
        with self._lock:
            now = self._clock()
            self._left = min(self._most, self._left + (now - self._at) * self._most / 60)
            self._at = now
            if self._left >= 1:
                self._left -= 1
                return 0.0
            return (1 - self._left) * 60 / self._most


def parsed(form: str, body: bytes, policy: AlertPolicy) -> list[Said]:
    """The alerts of a body in one of the forms; raises Refused with one line per problem."""
    if form not in FORMS:
        raise Refused(404, f"there is no form '{form}'; one of {sorted(FORMS)}")
    return FORMS[form](body, policy)


FORMS: Mapping[str, Callable[[bytes, AlertPolicy], list[Said]]] = {
    "alertmanager": from_alertmanager,
    "generic": from_generic,
}
