"""The specs of the ``features`` DAG's steps. Pure, but for manifests that it reads."""

from __future__ import annotations

import datetime as dt

from pydantic import AwareDatetime, BaseModel

from artifacts.refs import Uri
from feature_repo.contract import LATE_DAYS, BuildSpec, CheckOnlineSpec, IngestSpec, MaterializeSpec, OnlineRef
from feature_repo.snapshot import build_days, build_snapshot
from operators.pipelines import FeatureRepo

HOUR = dt.timedelta(hours=1)
DAY = dt.timedelta(days=1)


class Built(BaseModel, frozen=True, extra="forbid"):
    """How far a repo's views and online store have come: the record ``features/<repo>``."""

    built_to: AwareDatetime | None = None
    materialized_to: AwareDatetime | None = None


class Hours(BaseModel, frozen=True, extra="forbid"):
    """The hours that a run builds: those that end in (start, end]."""

    start: AwareDatetime
    end: AwareDatetime
    now: AwareDatetime


class HoursRefused(ValueError):
    """The hours asked for cannot be built; the message says which can."""


def _instant(name: str, text: str) -> dt.datetime:
    try:
        value = dt.datetime.fromisoformat(text)
    except ValueError as error:
        raise HoursRefused(f"{name}: '{text}' is no time; write it like 2013-08-31T14:00Z") from error
    value = (value if value.tzinfo else value.replace(tzinfo=dt.UTC)).astimezone(dt.UTC)
    return value.replace(minute=0, second=0, microsecond=0)


def hours(
    repo: FeatureRepo, built: Built, now: dt.datetime, start: str | None, end: str | None, *, replay: bool
) -> Hours | None:
    """The hours of a run, or None when nothing has closed since the last one.

    Without ``start`` a run goes on where the last one ended; without ``end`` it ends with the last closed hour. Hours that
    have not closed on the data clock are refused, except under the replay clock, whose lake holds the future already.
    """
    _require_forward(built, now, replay=replay)
    closed = now.replace(minute=0, second=0, microsecond=0)
    if repo.calendar.last is not None:
        closed = min(closed, repo.calendar.as_of(repo.calendar.last))
    first = repo.calendar.starts(repo.calendar.first)
    begin = _instant("from", start) if start else max(built.built_to or first, first)
    until = _instant("to", end) if end else closed
    if begin < first:
        raise HoursRefused(
            f"from={begin:%Y-%m-%dT%H:%MZ} lies before the calendar's first hour, {first:%Y-%m-%dT%H:%MZ}"
        )
    if built.built_to is not None and begin > built.built_to:
        raise HoursRefused(
            f"from={begin:%Y-%m-%dT%H:%MZ} would leave a gap: hours are built to {built.built_to:%Y-%m-%dT%H:%MZ}; begin there"
        )
    if until > closed and not replay:
        raise HoursRefused(f"to={until:%Y-%m-%dT%H:%MZ} has not closed; the data clock says {now:%Y-%m-%dT%H:%MZ}")
    if until <= begin:
        if start or end:
            raise HoursRefused(f"to={until:%Y-%m-%dT%H:%MZ} does not lie after from={begin:%Y-%m-%dT%H:%MZ}")
        return None
    return Hours(start=begin, end=until, now=now)


def _require_forward(built: Built, now: dt.datetime, *, replay: bool) -> None:
    """Refuses a data clock that shows less than what was done by it: the online store would hold the future."""
    ahead = (
        built.materialized_to
        if replay
        else max((at for at in (built.built_to, built.materialized_to) if at), default=None)
    )
    if ahead is not None and ahead > now:
        raise HoursRefused(
            f"the data clock says {now:%Y-%m-%dT%H:%MZ}, and {ahead:%Y-%m-%dT%H:%MZ} has been reached already: it has gone "
            "back; give this history its clock again, or begin another with its own PERENNIAL_STATE"
        )


def ingest(repo: FeatureRepo, store: Uri, asked: Hours) -> IngestSpec:
    """The raw days that a build of the hours reads, back and ahead."""
    first, last = build_days(repo.calendar, asked.start, asked.end)
    return IngestSpec(
        source=repo.source,
        calendar=repo.calendar,
        lake=repo.lake(store),
        first=first,
        last=last,
        built_to=asked.start,
        closed_to=asked.end,
    )


def closed_days(repo: FeatureRepo, asked: Hours) -> tuple[dt.date, ...]:
    """The days to check: closed, not yet so at the run's start, and with all their hours built by its end.

    Hours ahead of the data clock exist under replay only, whose lake holds the days to come whole, so those days count
    as closed.
    """
    now = max(asked.now, asked.end + repo.calendar.lateness) if asked.end > asked.now else asked.now
    newest = repo.calendar.newest_closed(min(now, asked.end + repo.calendar.lateness))
    if newest is None:
        return ()
    first = max(repo.calendar.of(asked.start - repo.calendar.lateness), repo.calendar.first)
    days = (first + number * dt.timedelta(days=1) for number in range((newest - first).days + 1))
    return tuple(day for day in days if repo.calendar.as_of(day) > asked.start)


def earlier_days(repo: FeatureRepo, asked: Hours) -> tuple[dt.date, ...]:
    """The closed days before those of ``closed_days`` that the run reads, and that may have been restated since."""
    first = max(build_days(repo.calendar, asked.start, asked.end)[0], repo.calendar.first)
    newest = repo.calendar.newest_closed(asked.start)
    count = (newest - first).days + 1 if newest is not None else 0
    return tuple(first + number * DAY for number in range(count))


def build(repo: FeatureRepo, store: Uri, asked: Hours) -> BuildSpec:
    """The views of the hours."""
    lake = repo.lake(store)
    return BuildSpec(
        calendar=repo.calendar,
        lake=lake,
        snapshot=build_snapshot(repo.calendar, lake, asked.start, asked.end),
        views=repo.views(store),
        start=asked.start,
        end=asked.end,
    )


def materialize(repo: FeatureRepo, store: Uri, online: str, asked: Hours, built: Built) -> MaterializeSpec | None:
    """What has become available on the data clock since the last materialisation; None when nothing can have.

    Hours that were asked for again go into the store again, together with all that came after them.
    """
    reached = built.materialized_to or asked.start
    start = min(reached, asked.start)
    end = max(reached, min(asked.now, asked.end + HOUR))
    if end <= start:
        return None
    return MaterializeSpec(
        calendar=repo.calendar,
        views=repo.views(store),
        online=online,
        start=start,
        end=end,
        lookback=LATE_DAYS * DAY,  # a build looks for late records in the hours of these days again
    )


def check_online(repo: FeatureRepo, store: Uri, online: OnlineRef) -> CheckOnlineSpec:
    """What a materialisation has left in the online store; each hour reads another sample back."""
    return CheckOnlineSpec(
        calendar=repo.calendar,
        views=repo.views(store),
        online=online.online,
        end=online.end,
        seed=int(online.end.timestamp()) // int(HOUR.total_seconds()),
    )
