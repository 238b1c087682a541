"""What the doctor says about aliases, versions and routing records that do not agree: one line each, with its fix."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from artifacts.refs import sha256
from training.doctor import Package, Routed, State, findings
from training.mlflow_store import Version

MODEL = "flight_delay"


def digest(number: int) -> str:
    return sha256(f"package {number}".encode())


def routed(number: int) -> Routed:
    return Routed(
        version=number,
        package=Package(uri=f"file:///{number}", digest=digest(number), training_key=sha256(f"key {number}".encode())),
    )


def version(number: int, **tags: str) -> Version:
    known = {"package_digest": digest(number), "training_key": sha256(f"key {number}".encode())}
    return Version(number, "run", dt.datetime(2013, 9, 1, tzinfo=dt.UTC), {**known, **tags})


def state(**changes: Any) -> State:
    whole: dict[str, Any] = {
        "model": MODEL,
        "routed": {"champion": routed(3), "previous": routed(2)},
        "aliases": {"champion": 3, "previous": 2},
        "tags": {"projected_champion": "3", "projected_previous": "2", "projected_challenger": "none"},
        "versions": {number: version(number) for number in (2, 3, 4)},
    }
    return State(**{**whole, **changes})


def test_what_agrees_is_no_finding() -> None:
    assert findings(state()) == []
    judging = {"aliases": {"champion": 3, "previous": 2, "challenger": 4}, "tags": {"projected_challenger": "4"}}
    assert findings(state(**judging)) == []
    assert findings(State(MODEL, {}, {}, {})) == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"aliases": {"champion": 4, "previous": 2}},
            "alias 'champion' names version 4, the routing record says 3; it was set by hand; clear the task `alias`",
        ),
        (
            {"aliases": {"champion": 2, "previous": 2}, "tags": {"projected_champion": "2"}},
            "alias 'champion' names version 2, the routing record says 3; the projection is behind; clear the task `alias`",
        ),
        ({"aliases": {"champion": 3}}, "alias 'previous' is not there, the routing record says 2; clear the task"),
        (
            {"aliases": {"champion": 3, "previous": 2, "challenger": 4}},
            "alias 'challenger' names version 4, the last release says none; it was set by hand",
        ),
        (
            {"aliases": {"champion": 3, "previous": 2, "best": 4}},
            "alias 'best' names version 4; nobody here sets it: delete it",
        ),
        (
            {"routed": {"champion": routed(3), "previous": None}},
            "alias 'previous' names version 2, the routing record says none; the projection is behind",
        ),
        ({"versions": {2: version(2)}}, "version 3, the champion of the routing record, is gone; restore MLflow"),
        (
            {"versions": {2: version(2), 3: version(3, package_digest="sha256:0")}},
            "tag 'package_digest' is sha256:0, the routing record says sha256:",
        ),
        (
            {"versions": {2: version(2), 3: version(3, training_key="sha256:0")}},
            "tag 'training_key' is sha256:0, the routing record says sha256:",
        ),
        ({"versions": {2: version(2), 3: version(3, duplicate_of="1")}}, "version 3 is a duplicate of 1"),
        ({"damaged": {3: "its package cannot be opened (gone)"}}, "version 3: its package cannot be opened (gone); restore"),
    ],
)  # fmt: skip
def test_each_disagreement_is_one_line_with_its_fix(changes: dict[str, Any], words: str) -> None:
    found = findings(state(**changes))
    assert len(found) == 1
    assert words in found[0]
    assert found[0].startswith(f"{MODEL}: ")
