"""Which version answers, and which routing records are refused."""

from __future__ import annotations

from serving.contract import Routing
from serving.routing import answering, problems
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
