"""The same rows give the same bytes on any number of cores and shuffle partitions."""

from __future__ import annotations

import pytest

from feature_repo import spark, tables
from feature_repo.build import compute
from feature_repo.contract import BuildSpec
from tests.make import brute_views as brute
from tests.make import feature_repo as make

pytestmark = pytest.mark.spark

CALENDAR = make.calendar("2013-11-01", "2013-11-06")  # the clock changes on 2013-11-03
BEGINS, ENDS = CALENDAR.starts(CALENDAR.first), CALENDAR.ends(CALENDAR.first.replace(day=6))
LAKE = brute.some_flights(5, BEGINS, 6, 300)
SPEC = BuildSpec(
    calendar=CALENDAR, lake="file:///lake", snapshot="sha256:" + "0" * 64, views="file:///views", start=BEGINS, end=ENDS
)
PARTITIONS = {"local[1]": (1, 8), "local[2]": (3,), "local[4]": (1, 8)}


def test_bytes_do_not_depend_on_cores_or_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for master, partitions in PARTITIONS.items():
        monkeypatch.setenv("PERENNIAL_SPARK_MASTER", master)
        with spark.session("tests") as session:
            assert session.sparkContext.master == master
            for number in partitions:
                session.conf.set("spark.sql.shuffle.partitions", number)
                rows = compute(session, SPEC, LAKE, BEGINS, ENDS)
                found.append({view: tables.view_bytes(view, table) for view, table in rows.items()})
    assert all(len(content) > 1000 for content in found[0].values())
    assert all(other == found[0] for other in found)
