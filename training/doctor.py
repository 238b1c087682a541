"""Whether MLflow still says what the routing records say: alias -> version -> package, one line per problem and its fix.

The routing record decides; the aliases champion and previous are its projection, challenger that of the release under way.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import BaseModel

from artifacts.records import Records, check_schema, connect
from artifacts.refs import Ref
from artifacts.settings import settings
from artifacts.store import ArtifactCorrupt, ArtifactMissing, read_ref
from training.mlflow_store import (
    CHALLENGER,
    CHAMPION,
    DUPLICATE,
    NONE,
    PACKAGE_DIGEST,
    PACKAGE_URI,
    PREVIOUS,
    PROJECTED,
    TRAINING_KEY,
    Registry,
    Version,
)

ROUTING = "routing/"
ROUTED = (CHAMPION, PREVIOUS)


class Package(BaseModel, frozen=True):
    """The package that a routing record names, as far as a registry can know it."""

    uri: str
    digest: str
    training_key: str


class Routed(BaseModel, frozen=True):
    """One version that a routing record names."""

    version: int
    package: Package


@dataclass(frozen=True)
class State:
    """What the registry and the records hold about one model, read at one moment."""

    model: str
    routed: Mapping[str, Routed | None]
    aliases: Mapping[str, int]
    tags: Mapping[str, str]
    versions: Mapping[int, Version] = field(default_factory=dict)
    """Those that an alias or the record names, as far as they exist."""
    damaged: Mapping[int, str] = field(default_factory=dict)
    """Why a version's package cannot be opened, by the version's number."""


def findings(state: State) -> list[str]:
    """What does not agree, one line per problem with its fix; an empty list means that all of it does. Pure."""
    found = [problem for alias in ROUTED for problem in _routed(state, alias, state.routed.get(alias))]
    for alias, number in sorted(state.aliases.items()):
        if alias in ROUTED:
            continue
        wanted = state.tags.get(PROJECTED + alias, NONE)
        if alias != CHALLENGER:
            found.append(_line(state, f"alias '{alias}' names version {number}", "nobody here sets it: delete it"))
        elif str(number) != wanted:
            found.append(_by_hand(state, alias, number, wanted, "the last release"))
        elif number not in state.versions:
            found.append(_line(state, f"alias '{alias}' names version {number}, which is gone", "delete the alias"))
    return found + [
        _line(state, f"version {number}: {why}", "restore it from a copy of the store, or roll back")
        for number, why in sorted(state.damaged.items())
    ]


def _routed(state: State, alias: str, routed: Routed | None) -> list[str]:
    number = state.aliases.get(alias)
    if routed is None:
        return [] if number is None else [_by_hand(state, alias, number, NONE, "the routing record")]
    problems = []
    if number is None:
        problems.append(
            _line(state, f"alias '{alias}' is not there, the routing record says {routed.version}", _clear(state))
        )
    elif number != routed.version:
        problems.append(_by_hand(state, alias, number, str(routed.version), "the routing record"))
    version = state.versions.get(routed.version)
    if version is None:
        what = f"version {routed.version}, the {alias} of the routing record, is gone"
        return [*problems, _line(state, what, "restore MLflow's database, or roll back")]
    wanted = {PACKAGE_DIGEST: routed.package.digest, TRAINING_KEY: routed.package.training_key}
    for tag, value in wanted.items():
        if version.tags.get(tag) != value:
            what = f"version {routed.version}: tag '{tag}' is {version.tags.get(tag)}, the routing record says {value}"
            problems.append(_line(state, what, "it was changed by hand: set the tag back"))
    if DUPLICATE in version.tags:
        what = f"version {routed.version} is a duplicate of {version.tags[DUPLICATE]} and serves as {alias}"
        problems.append(_line(state, what, "release the one that counts"))
    return problems


def _by_hand(state: State, alias: str, number: int, wanted: str, who: str) -> str:
    pointed = state.tags.get(PROJECTED + alias, NONE) != str(number)
    what = f"alias '{alias}' names version {number}, {who} says {wanted}"
    return _line(state, f"{what}; {'it was set by hand' if pointed else 'the projection is behind'}", _clear(state))


def _clear(state: State) -> str:
    return f"clear the task `alias` of the newest run of release__{state.model}"


def _line(state: State, what: str, fix: str) -> str:
    return f"{state.model}: {what}; {fix}"


def observed(registry: Registry, records: Records, model: str) -> State:
    """What there is about a model, with the package of every version that is named opened and its digest checked."""
    value = records.get(ROUTING + model).value
    routed = {name: Routed.model_validate(value[name]) if value.get(name) else None for name in ROUTED}
    aliases = registry.aliases(model)
    numbers = {*aliases.values(), *(one.version for one in routed.values() if one)}
    versions = {number: found for number in numbers if (found := registry.version(model, number)) is not None}
    damaged = {number: why for number, version in versions.items() if (why := unreadable(version)) is not None}
    return State(model, routed, aliases, registry.model_tags(model) or {}, versions, damaged)


def unreadable(version: Version) -> str | None:
    """Why the package that a version's tags pin cannot be opened, or None when every byte of it is as they say."""
    missing = [tag for tag in (PACKAGE_URI, PACKAGE_DIGEST) if tag not in version.tags]
    if missing:
        return f"has no tag {' and no tag '.join(missing)}, so nothing says what it is"
    try:
        read_ref(Ref(uri=version.tags[PACKAGE_URI], digest=version.tags[PACKAGE_DIGEST]))
    except (ArtifactMissing, ArtifactCorrupt) as error:
        return f"its package cannot be opened ({error})"
    return None


def doctor(argv: Sequence[str]) -> int:
    """Prints what is wrong with the given models (all of them by default); 1 when there is anything, 0 when not."""
    parser = argparse.ArgumentParser(prog="python -m training.register doctor", description=__doc__)
    parser.add_argument("model", nargs="*")
    named = parser.parse_args(argv).model
    registry = Registry(settings().mlflow)
    engine = connect(settings().database)
    check_schema(engine)
    records = Records(engine)
    known = sorted({*registry.models(), *(name.removeprefix(ROUTING) for name in records.names(ROUTING))})
    unknown = [f"{model}: neither MLflow nor a routing record knows it; there are {known}" for model in named]
    problems = [line for line, model in zip(unknown, named, strict=True) if model not in known]
    models = [model for model in named or known if model in known]
    for model in models:
        problems += findings(observed(registry, records, model))
    whole = f"whole: {', '.join(models) or 'no model'}; aliases, versions and packages are as the routing records say"
    sys.stdout.write("".join(f"{line}\n" for line in problems or [whole]))
    return int(bool(problems))
