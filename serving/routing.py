"""Which version answers a request, who gets which in a canary, and whether a routing record makes sense. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from serving.contract import Deployed, Routing

BUCKETS = 1 << 32


def loaded(routing: Routing) -> tuple[Deployed, ...]:
    """Every version that a route leads to."""
    trial = (routing.canary.candidate, routing.canary.baseline) if routing.canary else ()
    return tuple(one for one in (routing.champion, routing.previous, *trial) if one is not None)


def answering(routing: Routing, version: int | None = None) -> Deployed | None:
    """The champion, or the pinned version if one of that number is loaded; else None."""
    if version is None:
        return routing.champion
    return next((arm for arm in loaded(routing) if arm.version == version), None)


def place(model: str, key: str) -> float:
    """Where a caller stands in [0, 1): the same for ever, on every gateway, and unlike in another model."""
    return int.from_bytes(hashlib.blake2b(f"{model}\0{key}".encode(), digest_size=4).digest()) / BUCKETS


def split(routing: Routing, key: str) -> Deployed | None:
    """The version for a caller: the lowest places get the candidate, the highest the baseline, the rest the champion.

    A larger share takes callers over and gives none back, so that nobody changes sides twice in a rollout.
    """
    trial = routing.canary
    if trial is None:
        return routing.champion
    stands = place(routing.model, key)
    if stands < trial.share:
        return trial.candidate
    if trial.baseline is not None and stands >= 1 - trial.share:
        return trial.baseline
    return routing.champion


def weights(routing: Routing) -> dict[str, float]:
    """The share of the callers that each loaded version should get, by its name."""
    shares = {arm.name: 0.0 for arm in loaded(routing)}
    trial = routing.canary
    if trial is not None:
        shares[trial.candidate.name] = trial.share
        if trial.baseline is not None:
            shares[trial.baseline.name] = min(trial.share, 1 - trial.share)
    if routing.champion is not None:
        shares[routing.champion.name] = max(0.0, 1 - sum(shares.values()))
    return shares


def leaks(routing: Routing, seen: Mapping[str, int], tolerance: float = 0.05) -> tuple[str, ...]:
    """What observed traffic (rows by version name, since the record was followed) says against the weights.

    A version without weight must have none at all. ``tolerance`` is absolute and allows for few callers with many requests;
    it widens to four standard errors of a share where there are few rows.
    """
    total = sum(seen.values())
    if total == 0:
        return ()
    wanted, found = weights(routing), []
    for name in sorted(seen.keys() | wanted.keys()):
        share, count = wanted.get(name, 0.0), seen.get(name, 0)
        room = max(tolerance, 4 * (share * (1 - share) / total) ** 0.5)
        if share == 0 and count:
            found.append(f"'{name}' has no weight and answered {count} of {total} rows")
        elif abs(count / total - share) > room and share:
            found.append(f"'{name}' should answer {share:.1%} and answered {count / total:.1%} of {total} rows")
    return tuple(found)


def problems(routing: Routing) -> tuple[str, ...]:
    """What is wrong with a routing record, one line each; a gateway keeps its old routing until this is empty."""
    found = []
    trial = routing.canary
    arms: dict[str, Deployed | None] = {
        "champion": routing.champion,
        "previous": routing.previous,
        "canary.candidate": trial.candidate if trial else None,
        "canary.baseline": trial.baseline if trial else None,
    }
    for role, arm in arms.items():
        if arm is None:
            continue
        clone = "_baseline" if role == "canary.baseline" else ""
        if arm.package.model != routing.model:
            found.append(f"{role}.package.model is '{arm.package.model}', the record is for '{routing.model}'")
        if arm.name != f"{routing.model}_v{arm.version}{clone}":
            found.append(
                f"{role}.name is '{arm.name}', version {arm.version} is '{routing.model}_v{arm.version}{clone}'"
            )
    if (routing.previous or trial) and not routing.champion:
        found.append(f"there is a {'previous version' if routing.previous else 'canary'} but no champion")
    if routing.previous and routing.champion and routing.previous.name == routing.champion.name:
        found.append(f"champion and previous are both '{routing.champion.name}'")
    if trial and routing.champion:
        found += _unfair(routing)
    return tuple(found)


def _unfair(routing: Routing) -> list[str]:
    trial, champion, found = routing.canary, routing.champion, []
    if trial is None or champion is None:
        return []
    if trial.candidate.name in {arm.name for arm in (champion, routing.previous) if arm}:
        found.append(f"canary.candidate is '{trial.candidate.name}', which is champion or previous already")
    if trial.baseline is not None and trial.baseline.package.digest != champion.package.digest:
        found.append(f"canary.baseline holds {trial.baseline.package.digest}, the champion {champion.package.digest}")
    if trial.baseline is not None and trial.share > 0.5:  # noqa: PLR2004  two equal shares
        found.append(f"canary.share is {trial.share:g}; beside a baseline of the same share it is at most 0.5")
    return found
