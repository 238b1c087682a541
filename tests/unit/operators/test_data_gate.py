"""A day that a range's check has held is not checked again; any other is."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest

from artifacts.refs import file_uri, join, sha256
from artifacts.step import step_key
from artifacts.store import publish, write_bytes
from feature_repo.contract import CheckPolicy, Target, ValidateSpec
from operators.calls import features as calls
from operators.data_gate import MODULE, held_before, not_held
from operators.ledger import Attempt, ledger
from operators.pipelines import FLIGHTS
from operators.plans.features import Hours
from operators.settings import platform
from operators.steps import Skip, layer_digest
from tests.make import control

CODE, OTHER_CODE = sha256(b"code"), sha256(b"other")
DAY = dt.date(2013, 3, 8)


@pytest.fixture(autouse=True)
def _deployment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    control.deployment(tmp_path, monkeypatch, dt.datetime(2013, 9, 10, 15, tzinfo=dt.UTC))


def check(*days: int, content: str = "", policy: CheckPolicy | None = None, suite: str = "raw_day") -> ValidateSpec:
    found = [DAY + number * dt.timedelta(days=1) for number in days]
    targets = tuple(
        Target(uri=f"file:///lake/{day}", digest=sha256(f"{day}{content}".encode()), partition=day, history={"x": (9,)})
        for day in found
    )
    return ValidateSpec(
        suite=suite,
        calendar=FLIGHTS.calendar,
        targets=targets,
        policy=policy or CheckPolicy(),
        output="file:///pending",
    )


def ended(folder: Path, spec: ValidateSpec, outcome: str | None = "done", code: str = CODE) -> tuple[Attempt, ...]:
    place = join(file_uri(folder), f"check-{len(ledger().status())}")
    write_bytes(join(place, "spec.json"), spec.model_copy(update={"output": "file:///out"}).model_dump_json().encode())
    key = step_key(MODULE, spec, code)
    number = ledger().begin_attempt(key, {"module": MODULE, "folder": place})
    if outcome:
        ledger().finish_attempt(key, number, outcome)
    return ledger().status()


def test_the_check_of_a_range_stands_for_each_of_its_days(tmp_path: Path) -> None:
    whole = check(0, 1, 2)
    found = held_before(check(1), ended(tmp_path, whole), CODE)
    assert found == whole
    assert step_key(MODULE, found, CODE) == step_key(MODULE, whole, CODE)


@pytest.mark.parametrize(
    ("before", "outcome", "code"),
    [
        (check(0, 2), "done", CODE),
        (check(0, 1, 2), "refused", CODE),
        (check(0, 1, 2), None, CODE),
        (check(0, 1, 2), "done", OTHER_CODE),
        (check(0, 1, 2, content="restated"), "done", CODE),
        (check(0, 1, 2, policy=CheckPolicy(volume_low=0.1)), "done", CODE),
        (check(0, 1, 2, suite="view_day"), "done", CODE),
    ],
    ids=["another day", "refused", "not ended", "other code", "other bytes", "other policy", "other suite"],
)
def test_a_check_of_anything_else_does_not(
    tmp_path: Path, before: ValidateSpec, outcome: str | None, code: str
) -> None:
    assert held_before(check(1), ended(tmp_path, before, outcome, code), CODE) == check(1)


def test_an_attempt_whose_spec_is_gone_says_nothing(tmp_path: Path) -> None:
    attempts = ended(tmp_path, check(0, 1))
    (tmp_path / "check-0" / "spec.json").unlink()
    assert held_before(check(1), attempts, CODE) == check(1)


def test_a_spec_that_another_release_wrote_says_nothing(tmp_path: Path) -> None:
    attempts = ended(tmp_path, check(0, 1))
    (tmp_path / "check-0" / "spec.json").write_text('{"suite": "raw_day", "form": "of another release"}')
    assert held_before(check(1), attempts, CODE) == check(1)
    assert not_held(check(1), attempts, CODE) == check(1)


def test_what_is_left_of_a_check_are_days_that_none_has_held_as_they_are(tmp_path: Path) -> None:
    ended(tmp_path, check(0, 1))
    ended(tmp_path, check(2), "refused")
    attempts = ended(tmp_path, check(3))
    wanted = check(0, 1, 2, 3, 4)
    left = not_held(wanted, attempts, CODE)
    assert left is not None
    assert left.targets == check(2, 4).targets
    assert not_held(check(0, 1, 3), attempts, CODE) is None
    assert not_held(check(0, 1, content="restated"), attempts, CODE) == check(0, 1, content="restated")
    assert not_held(wanted, attempts, OTHER_CODE) == wanted


def lay(day: dt.date, content: str) -> None:
    with publish(join(FLIGHTS.lake(platform().store), day.isoformat()), "raw-day") as draft:
        (draft.path / "rows.parquet").write_text(content)
        draft.facts.update(day=day.isoformat(), rows={"schedule": 900})


def test_an_hourly_run_checks_what_closed_and_what_was_restated_and_nothing_twice(tmp_path: Path) -> None:
    closing = dt.datetime(2013, 9, 1, 14, tzinfo=dt.UTC)
    hours = Hours(start=closing - dt.timedelta(hours=1), end=closing, now=closing).model_dump(mode="json")
    spec_of = calls.validate_raw(FLIGHTS).spec
    days = [dt.date(2013, 8, 29) + number * dt.timedelta(days=1) for number in range(3)]
    for day in days:
        lay(day, "first")
    first = spec_of(hours, {})
    assert [target.partition for target in first.targets] == days
    ended(tmp_path, first, code=layer_digest("features"))
    assert isinstance(spec_of(hours, {}), Skip)
    lay(days[0], "restated")
    assert [target.partition for target in spec_of(hours, {}).targets] == days[:1]
