"""Slices cover each row once per dimension, and their gains are those of their own rows."""

from __future__ import annotations

import numpy as np
import pytest

from training.measures import Dimension, Slice
from training.scoring import row_losses, scores_of
from training.slices import Answers, slices_of

ROWS = 900
GENERATOR = np.random.default_rng(6)
COLUMNS = {
    "origin": GENERATOR.choice(np.array(["EWR", "JFK", None], dtype=object), ROWS),
    "hour": np.where(GENERATOR.random(ROWS) < 0.05, np.nan, GENERATOR.uniform(0, 24, ROWS)),
}
LABEL = (GENERATOR.random(ROWS) < 0.3).astype(np.float64)
CANDIDATE = np.clip(0.3 + 0.3 * (LABEL - 0.3) + GENERATOR.normal(0, 0.1, ROWS), 0.01, 0.99)
CHAMPION = np.clip(0.3 + GENERATOR.normal(0, 0.1, ROWS), 0.01, 0.99)
ORIGIN, HOUR = Dimension(column="origin", group=True), Dimension(column="hour", edges=(9, 15))


def sliced(*dimensions: Dimension, champion: np.ndarray | None = CHAMPION) -> dict[str, Slice]:
    answers = Answers("classification", LABEL, CANDIDATE, np.full(ROWS, 0.3), champion)
    found = slices_of(COLUMNS, dimensions, answers, lambda _, value: value != "JFK")
    return {each.name: each for each in found}


def test_the_slices_of_a_dimension_cover_each_row_once_and_nulls_are_a_slice() -> None:
    found = sliced(ORIGIN, HOUR)
    assert list(found) == [
        "origin=(none)",
        "origin=EWR",
        "origin=JFK",
        "hour=below 9",
        "hour=9 to 15",
        "hour=15 and above",
        "hour=(none)",
    ]
    for dimension in ("origin", "hour"):
        members = [each for each in found.values() if each.dimension == dimension]
        assert sum(each.rows for each in members) == ROWS
        assert sum(each.positives for each in members) == LABEL.sum()


def test_an_edge_belongs_to_the_bucket_above_it() -> None:
    hour = Dimension(column="h", edges=(9, 15))
    answers = Answers("regression", np.zeros(3), np.zeros(3), np.zeros(3))
    found = slices_of({"h": [8.9, 9.0, 15.0]}, (hour,), answers, lambda *_: True)
    assert [each.value for each in found] == ["below 9", "9 to 15", "15 and above"]


def test_a_slice_says_what_its_own_rows_say() -> None:
    each, rows = sliced(ORIGIN)["origin=EWR"], COLUMNS["origin"] == "EWR"
    scores = scores_of(CANDIDATE[rows], LABEL[rows])
    assert each.deciding == pytest.approx(scores.log_loss)
    assert each.guard == pytest.approx(scores.auc)
    difference = row_losses(CHAMPION[rows], LABEL[rows]) - row_losses(CANDIDATE[rows], LABEL[rows])
    assert each.gain is not None
    assert each.gain.mean == pytest.approx(difference.mean())
    assert each.gain.standard_error == pytest.approx(difference.std(ddof=1) / np.sqrt(rows.sum()))
    assert each.gain.lower < each.gain.mean < each.gain.upper
    assert each.bias == pytest.approx((CANDIDATE[rows] - LABEL[rows]).mean())
    assert each.group


def test_a_value_that_the_champion_never_saw_is_new_and_a_bucket_never_is() -> None:
    found = sliced(ORIGIN, HOUR)
    assert {name for name, each in found.items() if each.known is False} == {"origin=JFK"}
    alone = sliced(ORIGIN, champion=None)
    assert {each.known for each in alone.values()} == {None}
    assert {each.gain for each in alone.values()} == {None}


def test_a_single_row_and_a_single_class_have_no_interval_and_no_auc() -> None:
    answers = Answers("classification", np.array([1.0]), np.array([0.4]), np.array([0.3]), np.array([0.2]))
    found = slices_of({"origin": ["EWR"]}, (ORIGIN,), answers, lambda *_: True)
    assert (found[0].guard, found[0].gain, found[0].gain_over_base, found[0].bias_error) == (None, None, None, None)


def test_edges_that_do_not_rise_are_refused() -> None:
    with pytest.raises(ValueError, match="of 'hour' do not rise"):
        Dimension(column="hour", edges=(9, 9))
