from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from artifacts.step import DataFault
from monitoring.drift import Bins, bins_of, day_counts, distance, finite, psi, sliding


def counted(bins: Bins, values: np.ndarray) -> np.ndarray:
    return np.bincount(bins.codes(values), minlength=bins.width)


def test_psi_is_the_textbook_sum() -> None:
    by_hand = (0.5 - 0.2) * np.log(0.5 / 0.2) + (0.5 - 0.8) * np.log(0.5 / 0.8)
    assert psi(np.array([50, 50]), np.array([20, 80])) == pytest.approx(by_hand)


def test_the_noise_floor_is_what_theory_says() -> None:
    """decisions.md 1.2: without drift the mean of PSI is (bins - 1) (1 / n + 1 / m)."""
    rng = np.random.default_rng(5)
    reference = rng.normal(size=50_000)
    bins = bins_of(reference, "numeric", 10)
    scores = [psi(counted(bins, rng.normal(size=1000)), counted(bins, reference)) for _ in range(200)]
    assert np.mean(scores) == pytest.approx(9 * (1 / 1000 + 1 / 50_000), rel=0.15)


@given(arrays(np.int64, (2, 6), elements=st.integers(0, 1000)).filter(lambda both: bool(both.sum(axis=1).all())))
def test_psi_is_symmetric_and_never_negative(both: np.ndarray) -> None:
    forth, back = psi(both[0], both[1]), psi(both[1], both[0])
    assert forth == pytest.approx(back)
    assert forth >= 0
    assert psi(both[0], both[0]) == 0


counts = st.lists(st.tuples(st.integers(0, 30_000), st.integers(0, 30_000)), min_size=2, max_size=40)


@given(both=counts, rare=st.sampled_from([0.0, 0.005]))
def test_the_fast_distance_is_evidentlys_own(both: list[tuple[int, int]], rare: float) -> None:
    current, reference = np.array(both).T
    if not current.any() or not reference.any():
        assert np.isnan(psi(current, reference, rare))
        assert np.isnan(distance(current, reference, rare))
        return
    assert float(psi(current, reference, rare)) == pytest.approx(distance(current, reference, rare), abs=1e-9)


def test_many_blocks_at_once_give_the_figures_of_each() -> None:
    rng = np.random.default_rng(2)
    blocks, rest = rng.integers(0, 50, (20, 12)), rng.integers(0, 9000, (20, 12))
    each = [float(psi(block, other, 0.005)) for block, other in zip(blocks, rest, strict=True)]
    assert psi(blocks, rest, 0.005).tolist() == pytest.approx(each, abs=1e-12)


def test_bins_are_called_by_their_edges() -> None:
    assert bins_of(np.arange(30.0), "numeric", 3).labels == (
        "00: up to 9.667", "01: 9.667 to 19.33", "02: above 19.33", "(null)",
    )  # fmt: skip
    assert Bins("categorical", categories=("a",)).labels == ("a", "(null)")
    assert bins_of(np.full(3, np.nan), "numeric", 3).labels == ("any", "(null)")


def test_quantile_bins_are_even_and_ties_share_one() -> None:
    bins = bins_of(np.arange(1000.0), "numeric", 10)
    assert counted(bins, np.arange(1000.0)).tolist() == [100] * 10 + [0]
    rain = np.where(np.arange(100) < 95, 0.0, 1.0)
    assert counted(bins_of(rain, "numeric", 10), rain).tolist() == [95, 5, 0]


def test_a_null_is_a_bin_of_its_own() -> None:
    values = np.array([1.0, np.nan, 2.0, np.nan])
    assert counted(bins_of(values, "numeric", 2), values).tolist() == [1, 1, 2]
    words = np.array(["a", None, "b"], dtype=object)
    assert counted(bins_of(words, "categorical", 2), words).tolist() == [1, 1, 1]


def test_new_categories_are_added_at_the_end_and_never_guessed() -> None:
    bins = Bins("categorical", categories=("a", "c"))
    values = np.array(["b", "c", None], dtype=object)
    with pytest.raises(ValueError, match="not listed"):
        bins.codes(values)
    assert bins.extended(values).categories == ("a", "c", "b")


def test_rare_categories_are_pooled() -> None:
    reference, current = np.array([9960, 20, 20]), np.array([9960, 40, 0])
    assert psi(current, reference, rare=0.005) == pytest.approx(0)
    assert psi(current, reference) > 0.005


def test_blocks_are_sums_over_runs_of_days() -> None:
    codes, days = np.array([0, 1, 1, 0, 1]), np.array([0, 0, 1, 2, 2])
    per_day = day_counts(codes, days, 2)
    assert per_day.tolist() == [[1, 1], [0, 1], [1, 1]]
    assert sliding(per_day, 2).tolist() == [[1, 2], [1, 2]]


@pytest.mark.parametrize("score", [float("nan"), float("inf")])
@pytest.mark.covers("field-reports 113")
def test_a_score_that_is_no_number_is_an_error(score: float) -> None:
    with pytest.raises(DataFault, match=r"drift of 'x': the score is (nan|inf)"):
        finite(score, "drift of 'x'")


def test_nothing_counted_gives_no_score_at_all() -> None:
    assert np.isnan(psi(np.array([0, 0]), np.array([1, 1])))
