"""Projects the routing record onto MLflow's aliases; the record decides, an alias moved by hand is moved back."""

from __future__ import annotations

import sys

from artifacts.step import DataFault, step
from training.contract import AliasRef, AliasSpec
from training.mlflow_store import CHALLENGER, CHAMPION, NONE, PACKAGE_DIGEST, PREVIOUS, PROJECTED, Registry


def project(spec: AliasSpec) -> AliasRef:
    """Sets or deletes the aliases champion, previous and challenger; doing it twice changes nothing.

    DataFault when a version is not there or carries another package than the routing record names.
    ``overruled`` names the aliases that stood elsewhere than the last projection had left them.
    """
    registry = Registry(spec.tracking_uri)
    if problems := _problems(spec, registry):
        raise DataFault(problems)
    wanted = {CHAMPION: spec.champion, PREVIOUS: spec.previous, CHALLENGER: spec.challenger}
    before, known = registry.aliases(spec.model), registry.model_tags(spec.model)
    overruled = tuple(
        f"{alias}={before.get(alias, NONE)}"
        for alias in wanted
        if _moved_by_hand(alias, before, known or {}, wanted[alias])
    )
    for alias, number in wanted.items():
        if before.get(alias) != number:
            registry.point(spec.model, alias, number)
        if known is not None and known.get(PROJECTED + alias) != _text(number):
            registry.tag_model(spec.model, PROJECTED + alias, _text(number))
    return AliasRef(model=spec.model, **wanted, overruled=overruled)


def _text(number: int | None) -> str:
    return NONE if number is None else str(number)


def _moved_by_hand(alias: str, before: dict[str, int], known: dict[str, str], wanted: int | None) -> bool:
    """Whether an alias stands where neither the last projection left it nor this one wants it (a crash in between)."""
    return _text(before.get(alias)) not in {known.get(PROJECTED + alias, NONE), _text(wanted)}


def _problems(spec: AliasSpec, registry: Registry) -> list[str]:
    problems = []
    digests = {CHAMPION: spec.package_digest, PREVIOUS: spec.previous_digest}
    wanted = {CHAMPION: spec.champion, PREVIOUS: spec.previous, CHALLENGER: spec.challenger}
    for alias, number in wanted.items():
        found = registry.version(spec.model, number) if number is not None else None
        digest = digests.get(alias)
        if number is not None and found is None:
            problems.append(f"{spec.tracking_uri}: '{spec.model}' has no version {number}, wanted as {alias}")
        elif digest is not None and found is not None and found.tags.get(PACKAGE_DIGEST) != digest:
            problems.append(
                f"{spec.tracking_uri}: version {number} of '{spec.model}' carries package {found.tags.get(PACKAGE_DIGEST)}, "
                f"the {alias} of the routing record is {digest}; the alias or the tag was set by hand"
            )
    return problems


if __name__ == "__main__":
    sys.exit(step(project, AliasSpec))
