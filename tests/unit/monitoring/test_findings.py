from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitoring.baseline import Monitored
from monitoring.contract import DriftPolicy, Finding
from monitoring.findings import Figures, measure, missing
from monitoring.reference import monitor, others, weekdays_of
from monitoring.share import drifted_share, extent

POLICY = DriftPolicy()
TODAY = (dt.date(2013, 9, 2),)  # a Monday
DAYS = np.repeat(np.arange(30), 200)
rng = np.random.default_rng(11)
NUMBERS = rng.normal(size=6000)
WORDS = rng.choice(np.array(["a", "b", "c"], dtype=object), 6000, p=[0.5, 0.3, 0.2])
SPARSE = np.where(rng.random(6000) < 0.02, np.nan, NUMBERS)


def feature(values: np.ndarray, days: np.ndarray = DAYS) -> Monitored:
    kind: Any = "numeric" if values.dtype.kind == "f" else "categorical"
    return monitor("origin__delay", kind, 0.4, values, days, POLICY)


def found(reference: np.ndarray, current: Any) -> Figures:
    dtype = float if reference.dtype.kind == "f" else object
    return measure(feature(reference), np.array(current, dtype=dtype), TODAY, POLICY)


@pytest.mark.parametrize(
    ("reference", "current", "kind"),
    [
        (NUMBERS, rng.normal(size=900), "ok"),
        (NUMBERS, rng.normal(2, 1, size=900), "drift"),
        (NUMBERS, NUMBERS[:900] + 0.1, "ok"),
        (NUMBERS, NUMBERS[:900] + 0.4, "warn"),
        (NUMBERS, NUMBERS[:900] + 0.6, "drift"),
        (NUMBERS, [np.nan] * 900, "empty"),
        (NUMBERS, [0.5] * 900, "constant"),
        (NUMBERS, [0.5, np.nan] * 450, "constant"),
        (SPARSE, np.where(np.arange(900) % 10 == 0, np.nan, rng.normal(size=900)), "nulls"),
        (WORDS, ["a"] * 450 + ["b"] * 270 + ["c"] * 180, "ok"),
        (WORDS, ["c"] * 700 + ["a"] * 200, "drift"),
        (WORDS, ["x"] * 450 + ["y"] * 450, "unseen"),
        (WORDS, ["a"] * 450 + ["b"] * 270 + ["c"] * 160 + ["x"] * 20, "warn"),
        (WORDS, [None] * 900, "empty"),
        (WORDS, ["a"] * 900, "drift"),
        (WORDS, ["b"] * 900, "constant"),
    ],
)
def test_each_kind_of_window_is_told_apart(reference: np.ndarray, current: Any, kind: str) -> None:
    figures = found(reference, current)
    assert figures.finding.kind == kind, figures
    assert figures.psi is not None
    assert np.isfinite(figures.psi)


def test_new_categories_only_are_counted_and_named() -> None:
    mixed = found(WORDS, ["x"] * 450 + ["y"] * 450)
    assert mixed.unseen_share == 1
    assert "'x', 'y'" in mixed.finding.words


def test_a_column_that_was_always_so_is_quiet() -> None:
    """What the reference's own days did is no finding: a weekday is constant, gusts are null on calm days."""
    weekday = np.array([str(day % 7) for day in DAYS], dtype=object)
    assert found(weekday, ["1"] * 900).finding.kind == "ok"  # the value that Mondays have
    assert found(weekday, ["3"] * 900).finding.kind == "drift"
    gusts = np.where(DAYS % 3 == 0, np.nan, NUMBERS)
    assert found(gusts, [np.nan] * 900).finding.kind == "ok"
    assert found(np.zeros(6000), [0.0] * 900).finding.kind == "ok"
    assert found(np.full(6000, np.nan), [np.nan] * 900).finding.kind == "ok"


def test_a_usual_value_all_day_is_a_good_day_and_any_other_is_a_broken_feed() -> None:
    cancelled = np.where(rng.random(6000) < 0.9, 0.0, rng.random(6000))
    assert found(cancelled, [0.0] * 900).finding.kind == "drift"
    assert found(cancelled, [0.1] * 900).finding.kind == "constant"
    assert found(NUMBERS, [0.0] * 900).finding.kind == "constant"


def test_a_feature_is_compared_with_its_own_days_of_the_same_length() -> None:
    level = np.repeat(np.sin(np.arange(30)), 200) * 5
    all_days = DriftPolicy(weekday_weeks=99)
    seasonal = monitor("origin__delay", "numeric", 0.4, level + NUMBERS, DAYS, all_days)
    today = np.sin(31) * 5 + rng.normal(size=900)
    assert measure(seasonal, today, TODAY, POLICY).finding.kind == "ok"
    assert measure(seasonal, today, TODAY, POLICY).psi > 10 * POLICY.psi_drift  # type: ignore[operator]
    assert measure(seasonal, today + 20, TODAY, POLICY).finding.kind == "drift"
    assert seasonal.limit(6).psi < seasonal.limit(1).psi
    assert seasonal.limit(99) == seasonal.limits[-1]


@pytest.mark.covers("field-reports 109")
@pytest.mark.parametrize("size", [1_000, 100_000])
def test_more_rows_make_no_drift_of_what_is_too_small_to_matter(size: int) -> None:
    """A test of significance rejects 0.05 deviations in nearly every window of 100,000 rows; a distance does not grow."""
    today = np.random.default_rng(12).normal(size=size)
    assert found(NUMBERS, today + 0.05).finding.kind == "ok"
    assert found(NUMBERS, today + 0.7).finding.kind == "drift"


def test_the_share_counts_importance_not_columns() -> None:
    heavy, light = found(NUMBERS, rng.normal(2, 1, 900)).finding, found(NUMBERS, rng.normal(size=900)).finding
    assert drifted_share([heavy, light, light]) == pytest.approx(0.4)
    assert drifted_share([light]) == 0


def test_a_feature_that_only_warns_counts_in_part() -> None:
    """A shift of half a deviation hovers around PSI 0.2: whole or nothing would lose it on every third day."""
    own = np.random.default_rng(5)
    day = np.repeat(np.arange(70), 900)
    large = monitor("origin__delay", "numeric", 0.4, own.normal(size=len(day)), day, POLICY)
    today = own.normal(size=900)
    shifts = [measure(large, today + shift, TODAY, POLICY).finding for shift in (0.1, 0.3, 0.4, 0.6)]
    assert [finding.kind for finding in shifts] == ["ok", "warn", "warn", "drift"]
    extents = [extent(finding) for finding in shifts]
    assert extents == sorted(extents)
    assert (extents[0], extents[-1]) == (0, 1)
    assert extents[2] == pytest.approx((shifts[2].score or 0) / POLICY.psi_drift)
    assert drifted_share(shifts[1:]) == pytest.approx(0.4 * sum(extents))


@given(scores=st.lists(st.floats(0, 2), min_size=2, max_size=2), floor=st.floats(0.001, 1))
def test_a_feature_further_away_never_counts_less(scores: list[float], floor: float) -> None:
    def kind(score: float) -> Any:
        return "drift" if score > floor else "warn" if score > floor / 3 else "ok"

    near, far = (
        extent(Finding(feature="x", kind=kind(score), score=score, threshold=floor, weight=1, words="-"))
        for score in sorted(scores)
    )
    assert 0 <= near <= far <= 1


# --- weekdays -----------------------------------------------------------------------------------------------------

MONDAY = dt.date(2013, 6, 3)
WEEKS = 10
WAVE = np.array([0.0, 0.2, 0.4, 0.6, 0.4, 2.0, 2.2])  # a weekend of its own
ORDINALS = np.repeat(MONDAY.toordinal() + np.arange(7 * WEEKS), 300)
WAVED = WAVE[(ORDINALS - MONDAY.toordinal()) % 7] + np.random.default_rng(3).normal(size=len(ORDINALS))


def on(weekday: int, length: int = 1) -> tuple[dt.date, ...]:
    first = MONDAY + dt.timedelta(days=7 * WEEKS + weekday)
    return tuple(first + dt.timedelta(days=number) for number in range(length))


@pytest.mark.parametrize("weekday", range(7))
def test_a_weekly_wave_cancels(weekday: int) -> None:
    wave = monitor("wave", "numeric", 0.4, WAVED, ORDINALS, POLICY)
    today = WAVE[weekday] + np.random.default_rng(weekday).normal(size=900)
    figures = measure(wave, today, on(weekday), POLICY)
    assert (figures.psi or 1) < POLICY.psi_warn
    assert figures.mean_reference == pytest.approx(WAVE[weekday], abs=0.1)
    assert sum(figures.bins_reference) == 300 * WEEKS
    loose = monitor("wave", "numeric", 0.4, WAVED, ORDINALS, DriftPolicy(weekday_weeks=WEEKS + 1))
    assert loose.weekdays == ()
    assert loose.limit(1).psi > wave.limit(1).psi


def test_a_weekend_on_a_monday_is_a_drift_though_weekends_are_known() -> None:
    wave = monitor("wave", "numeric", 0.4, WAVED, ORDINALS, POLICY)
    today = WAVE[5] + np.random.default_rng(8).normal(size=900)
    assert measure(wave, today, on(0), POLICY).finding.kind == "drift"
    assert measure(wave, today, on(5), POLICY).finding.kind == "ok"


def test_days_with_a_level_of_their_own_are_held_against_all_days() -> None:
    """Ten days of a weekday do not show how far weather may go; the storm after them must be seen all the same."""
    own = np.random.default_rng(10)
    level = np.repeat(own.normal(0, 1.5, 7 * WEEKS), 300)
    weather = monitor("weather", "numeric", 0.4, level + own.normal(size=len(level)), ORDINALS, POLICY)
    assert weather.weekdays == ()
    assert sum(weather.usual(on(0)).counts) == len(level)
    assert measure(weather, 10 + own.normal(size=900), on(0), POLICY).finding.kind == "drift"


def test_merged_partitions_are_held_against_their_own_weekdays() -> None:
    wave = monitor("wave", "numeric", 0.4, WAVED, ORDINALS, POLICY)
    noise = np.random.default_rng(9).normal(size=(2, 450))
    weekend = np.concatenate([WAVE[5] + noise[0], WAVE[6] + noise[1]])
    figures = measure(wave, weekend, on(5, 2), POLICY)
    assert (figures.psi or 1) < POLICY.psi_warn
    assert figures.mean_reference == pytest.approx(2.1, abs=0.1)
    assert wave.usual(on(0, 7)).counts == wave.counts


def test_a_block_is_held_against_the_other_days_of_its_weekdays() -> None:
    counts = np.arange(28)[:, None] ** 2
    weekday = weekdays_of(MONDAY.toordinal() + np.arange(28), 4)
    assert weekday.tolist() == [day % 7 for day in range(28)]
    days = np.arange(28)
    for length in (1, 3, 9):
        found = others(counts, weekday, length)[:, 0]
        for first in range(len(found)):
            inside = days[first : first + length]
            rest = [day for day in days if day not in inside]
            assert found[first] == sum(other**2 for day in inside for other in rest if (other - day) % 7 == 0)
    assert not weekdays_of(MONDAY.toordinal() + np.arange(27), 4).any()


def test_a_missing_column_has_no_score() -> None:
    finding = missing(feature(NUMBERS)).finding
    assert (finding.kind, finding.score) == ("missing", None)


@pytest.mark.covers("field-reports 109")
@pytest.mark.parametrize(("shift", "kind"), [(0.02, "ok"), (0.6, "drift")])
def test_what_is_drift_is_drift_of_five_percent_of_the_rows_too(shift: float, kind: str) -> None:
    """A test of hypotheses calls a shift of 0.02 deviations drift in nearly every check of 100,000 rows."""
    many = np.random.default_rng(3).normal(shift, 1, 100_000)
    assert {found(NUMBERS, many).finding.kind, found(NUMBERS, many[::20]).finding.kind} == {kind}
