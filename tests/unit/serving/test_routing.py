"""Which version answers, and which routing records are refused."""

from __future__ import annotations

from collections import Counter

import pytest

from serving.contract import Canary, Routing
from serving.routing import answering, leaks, place, problems, split, weights
from tests.make import gateway as make

ONE, TWO = make.deployed(1), make.deployed(2)


def test_the_champion_answers_and_a_pin_finds_both() -> None:
    routing = Routing(model=make.MODEL, champion=TWO, previous=ONE)
    assert answering(routing) is TWO
    assert answering(routing, 1) is ONE
    assert answering(routing, 2) is TWO
    assert answering(routing, 3) is None
    assert answering(Routing(model=make.MODEL)) is None


def test_sound_records_have_no_problems() -> None:
    assert problems(Routing(model=make.MODEL)) == ()
    assert problems(Routing(model=make.MODEL, champion=ONE)) == ()
    assert problems(Routing(model=make.MODEL, champion=ONE, previous=TWO)) == ()  # after a rollback


def test_each_problem_is_a_line() -> None:
    other = make.deployed(3, make.package_ref(model="another"), name="flight_delay_v4")
    assert problems(Routing(model=make.MODEL, champion=other)) == (
        "champion.package.model is 'another', the record is for 'flight_delay'",
        "champion.name is 'flight_delay_v4', version 3 is 'flight_delay_v3'",
    )
    assert problems(Routing(model=make.MODEL, champion=ONE, previous=ONE)) == (
        "champion and previous are both 'flight_delay_v1'",
    )
    assert problems(Routing(model=make.MODEL, previous=ONE)) == ("there is a previous version but no champion",)


KEYS = [f"caller-{number}" for number in range(20_000)]


def canary(share: float, *, baseline: bool = True, **changes: object) -> Routing:
    clone = make.deployed(1, name="flight_delay_v1_baseline") if baseline else None
    trial = Canary.model_validate({"candidate": make.deployed(2), "baseline": clone, "share": share, **changes})
    return Routing(model=make.MODEL, champion=ONE, canary=trial)


def seen(routing: Routing) -> Counter[str]:
    return Counter(arm.name for arm in (split(routing, key) for key in KEYS) if arm)


@pytest.mark.covers("field-reports 122")
@pytest.mark.parametrize(("share", "baseline"), [(0.05, True), (0.25, True), (0.5, False), (1.0, False)])
def test_callers_are_split_as_the_weights_say_and_nobody_else_is_asked(share: float, baseline: bool) -> None:
    routing = canary(share, baseline=baseline)
    found = seen(routing)
    assert leaks(routing, found, tolerance=0.0) == ()
    assert found["flight_delay_v2"] / len(KEYS) == pytest.approx(share, abs=0.01)
    assert found["flight_delay_v1_baseline"] / len(KEYS) == pytest.approx(share if baseline else 0, abs=0.01)
    assert problems(routing) == ()


def test_a_caller_stays_with_the_candidate_as_its_share_grows() -> None:
    before: set[str] = set()
    for share in (0.05, 0.25, 0.5, 1.0):
        now = {key for key in KEYS if split(canary(share, baseline=share <= 0.25), key) == make.deployed(2)}
        assert before <= now
        before = now
    assert before == set(KEYS)


@pytest.mark.covers("field-reports 122")
def test_traffic_that_reaches_an_old_version_is_named_however_little() -> None:
    routing = canary(0.05)
    found = seen(routing)
    assert leaks(routing, found | {"flight_delay_v0": 1}) == (
        f"'flight_delay_v0' has no weight and answered 1 of {len(KEYS) + 1} rows",
    )
    done = Routing(model=make.MODEL, champion=make.deployed(2), previous=ONE)
    assert weights(done) == {"flight_delay_v2": 1.0, "flight_delay_v1": 0.0}
    assert leaks(done, {"flight_delay_v2": 5000, "flight_delay_v1": 1}) == (
        "'flight_delay_v1' has no weight and answered 1 of 5001 rows",
    )
    said = leaks(routing, {"flight_delay_v1": 700, "flight_delay_v2": 200, "flight_delay_v1_baseline": 100})
    assert "'flight_delay_v2' should answer 5.0% and answered 20.0% of 1000 rows" in said
    assert leaks(routing, {}) == ()


def test_an_unfair_canary_is_refused() -> None:
    other = make.package_ref(digest="sha256:" + "1" * 64)
    assert problems(canary(0.6)) == ("canary.share is 0.6; beside a baseline of the same share it is at most 0.5",)
    assert problems(canary(0.1, candidate=ONE)) == (
        "canary.candidate is 'flight_delay_v1', which is champion or previous already",
    )
    clone = make.deployed(1, other, name="flight_delay_v1_baseline")
    assert problems(canary(0.1, baseline=True).model_copy(update={"champion": None})) == (
        "there is a canary but no champion",
    )
    trial = Canary(candidate=make.deployed(2), baseline=clone, share=0.1)
    assert problems(Routing(model=make.MODEL, champion=ONE, canary=trial))[0].startswith("canary.baseline holds")


def test_two_models_split_the_same_callers_differently() -> None:
    first, second = ([place(model, key) < 0.5 for key in KEYS] for model in ("one", "two"))
    assert sum(a == b for a, b in zip(first, second, strict=True)) / len(KEYS) == pytest.approx(0.5, abs=0.02)
