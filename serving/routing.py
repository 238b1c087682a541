"""Which version answers a request, and whether a routing record makes sense. Pure."""

from __future__ import annotations

from serving.contract import Deployed, Routing


def answering(routing: Routing, version: int | None = None) -> Deployed | None:
    """The version that answers: the champion, or the pinned version if it is champion or previous; else None."""
    if version is None:
        return routing.champion
    return next((arm for arm in (routing.champion, routing.previous) if arm and arm.version == version), None)


def problems(routing: Routing) -> tuple[str, ...]:
    """What is wrong with a routing record, one line each; a gateway keeps its old routing until this is empty."""
    found = []
    for role, arm in (("champion", routing.champion), ("previous", routing.previous)):
        if arm is None:
            continue
        if arm.package.model != routing.model:
            found.append(f"{role}.package.model is '{arm.package.model}', the record is for '{routing.model}'")
        if arm.name != f"{routing.model}_v{arm.version}":
            found.append(f"{role}.name is '{arm.name}', version {arm.version} is '{routing.model}_v{arm.version}'")
    if routing.previous and not routing.champion:
        found.append("there is a previous version but no champion")
    if routing.previous and routing.champion and routing.previous.name == routing.champion.name:
        found.append(f"champion and previous are both '{routing.champion.name}'")
    return tuple(found)
