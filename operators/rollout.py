"""Which version goes in front of traffic next, and how the routing changes. Pure.

Promotion is monotonic in (partition, created_at): an older partition never wins. Rollback is an explicit act.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

from pydantic import AwareDatetime, BaseModel

from artifacts.refs import Digest
from operators.versions import BACKFILL, Version
from serving.contract import Deployed, PackageRef, Routing


class Released(BaseModel, frozen=True):
    """What the ledger remembers of an earlier release of a package."""

    package_digest: Digest
    outcome: str
    at: AwareDatetime


class Refused(ValueError):
    """This version may not be released; the message says why and what would allow it."""


def triton_name(model: str, version: int) -> str:
    """The Triton model name of a version; never reused."""
    return f"{model}_v{version}"


def rank(version: Version) -> tuple[dt.date, dt.datetime]:
    """What promotion is monotonic in."""
    return version.registered.partition, version.registered.created_at


def not_newer(version: Version, routing: Routing) -> str | None:
    """Why a version may not replace the champion, or None when it may."""
    live = routing.champion
    if live is None:
        return None
    if live.package.digest == version.registered.package.digest:
        return f"version {live.version} is live already"
    if rank(version) <= (live.package.partition, live.created_at):
        return (
            f"superseded: version {version.registered.version} is for {version.registered.partition}, version {live.version} for "
            f"{live.package.partition} is live; an older version never replaces a newer one without force and a reason"
        )
    return None


def choose(
    versions: Sequence[Version],
    routing: Routing,
    releases: Sequence[Released],
    typed: int | None,
    now: dt.datetime,
    blocked: dt.timedelta,
    *,
    force: bool = False,
) -> Version | None:
    """The version to release: the one asked for, else the newest that nobody has judged; None when there is none.

    Raises Refused when the version asked for may not go.
    """
    judged = {row.package_digest for row in releases}
    if typed is not None:
        wanted = [version for version in versions if version.registered.version == typed]
        if not wanted:
            raise Refused(
                f"version {typed} is not registered; the versions are {[v.registered.version for v in versions]}"
            )
        version = wanted[0]
        if version.trigger == BACKFILL:
            raise Refused(
                f"version {typed} is a backfill for {version.registered.partition}, and those are never released; start "
                f"retrain__{version.registered.model} with that partition, which takes it as it is"
            )
        if not force:
            _check(version, routing, releases, now, blocked)
        return version
    waiting = [
        v
        for v in versions
        if v.trigger != BACKFILL and v.registered.package.digest not in judged and not_newer(v, routing) is None
    ]
    return max(waiting, key=rank, default=None)


def _check(
    version: Version, routing: Routing, releases: Sequence[Released], now: dt.datetime, blocked: dt.timedelta
) -> None:
    problem = not_newer(version, routing)
    if problem:
        raise Refused(problem)
    for row in releases:
        if (
            row.package_digest == version.registered.package.digest
            and row.outcome == "refused"
            and now - row.at < blocked
        ):
            raise Refused(
                f"version {version.registered.version} was refused at {row.at:%Y-%m-%dT%H:%MZ}; it may come back after "
                f"{row.at + blocked:%Y-%m-%dT%H:%MZ}, or earlier with force and a reason"
            )


def deployed(version: Version, package: PackageRef, now: dt.datetime) -> Deployed:
    """A version as the routing record names it."""
    return Deployed(
        name=triton_name(version.registered.model, version.registered.version),
        version=version.registered.version,
        package=package,
        created_at=version.registered.created_at,
        promoted_at=now,
    )


def promoted(routing: Routing, candidate: Deployed) -> Routing:
    """The routing with the candidate as champion; the old champion stays loaded as the previous one."""
    return Routing(model=routing.model, champion=candidate, previous=routing.champion)


def rolled_back(routing: Routing, now: dt.datetime) -> Routing:
    """The routing with the previous version in front again; raises Refused when there is none."""
    if routing.previous is None:
        raise Refused(f"'{routing.model}' has no previous version to go back to")
    return Routing(
        model=routing.model,
        champion=routing.previous.model_copy(update={"promoted_at": now}),
        previous=routing.champion,
    )
