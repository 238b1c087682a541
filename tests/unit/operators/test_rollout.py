import datetime as dt

import pytest

from operators.rollout import Refused, Released, choose, not_newer, promoted, rolled_back
from serving.contract import Routing
from tests.make.control import NOON, deployed, version

WEEK = dt.timedelta(days=7)
OLD, NEW = dt.date(2013, 8, 31), dt.date(2013, 9, 8)
EMPTY = Routing(model="flight_delay")


def pick(versions, routing=EMPTY, releases=(), typed=None, *, force=False, now=NOON):
    found = choose(versions, routing, releases, typed, now, WEEK, force=force)
    return found.registered.version if found else None


def released(one, outcome):
    return Released(package_digest=one.registered.package.digest, outcome=outcome, at=NOON)


def test_the_newest_unjudged_version_is_next(tmp_path):
    versions = [version(tmp_path, 1, OLD), version(tmp_path, 2, NEW), version(tmp_path, 3, OLD)]
    assert pick(versions) == 2
    assert pick(versions, releases=[released(versions[1], "refused")]) == 3
    assert pick(versions, releases=[released(one, "refused") for one in versions]) is None


def test_an_older_partition_never_replaces_a_newer_one(tmp_path):
    live = Routing(model="flight_delay", champion=deployed(2, NEW))
    assert pick([version(tmp_path, 5, OLD)], live) is None
    with pytest.raises(Refused, match="an older version never replaces a newer one without force"):
        pick([version(tmp_path, 5, OLD)], live, typed=5)
    assert pick([version(tmp_path, 5, OLD)], live, typed=5, force=True) == 5


def test_the_live_version_is_not_released_again(tmp_path):
    live = Routing(model="flight_delay", champion=deployed(1))
    assert not_newer(version(tmp_path, 1), live) == "version 1 is live already"


def test_a_refused_version_is_blocked_for_a_week(tmp_path):
    one = version(tmp_path, 1)
    with pytest.raises(Refused, match="it may come back after 2013-09-08T12:00Z"):
        pick([one], releases=[released(one, "refused")], typed=1, now=NOON + WEEK / 2)
    assert pick([one], releases=[released(one, "refused")], typed=1, now=NOON + WEEK) == 1
    assert pick([one], releases=[released(one, "refused")], typed=1, force=True) == 1


def test_an_unknown_version_names_those_that_exist(tmp_path):
    with pytest.raises(Refused, match=r"version 9 is not registered; the versions are \[1\]"):
        pick([version(tmp_path, 1)], typed=9)


def test_promotion_keeps_the_old_one_and_rollback_brings_it_back():
    first = promoted(EMPTY, deployed(1))
    second = promoted(first, deployed(2, NEW))
    assert (second.champion, second.previous) == (deployed(2, NEW), deployed(1))
    back = rolled_back(second, NOON + WEEK)
    assert back.champion
    assert back.previous
    assert (back.champion.version, back.previous.version) == (1, 2)
    assert back.champion.promoted_at == NOON + WEEK


def test_rollback_needs_a_previous_version():
    with pytest.raises(Refused, match="no previous version"):
        rolled_back(EMPTY, NOON)
