"""The one encoding: codes, nulls and what it refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from artifacts.step import DataFault
from tests.make import training as make
from training.encoding import UNKNOWN, codes, encode, words


def test_words_become_codes_and_null_becomes_nan() -> None:
    columns: dict[str, Any] = {"y": np.array([1.5, np.nan]), "x": [None, 2], "c": ["B6", None], "unread": [1, 2]}
    numeric, categorical = encode(columns, make.signature())
    np.testing.assert_array_equal(numeric, np.array([[np.nan, 1.5], [2.0, np.nan]], dtype=np.float32))
    assert categorical.tolist() == [[2], [0]]
    assert [array.dtype.name for array in (numeric, categorical)] == ["float32", "int64"]


@pytest.mark.parametrize("strange", [None, float("nan"), "ZZ", b"ZZ", ""])
def test_null_and_unseen_words_are_unknown(strange: object) -> None:
    assert codes([strange], ("AA", "B6")).tolist() == [UNKNOWN]


@pytest.mark.parametrize("value", ["3", b"3", 3, 3.0, np.int64(3), np.float32(3)])
def test_a_whole_number_is_the_same_word_however_it_is_sent(value: object) -> None:
    assert codes([value], ("1", "3")).tolist() == [2]


def test_a_number_beyond_float32_is_infinite_and_warns_nobody() -> None:
    numeric, _ = encode({"x": [1e300], "y": [-1e300], "c": ["AA"]}, make.signature())
    assert np.isposinf(numeric[0, 0])
    assert np.isneginf(numeric[0, 1])


def test_every_absent_column_is_named() -> None:
    with pytest.raises(DataFault) as fault:
        encode({"x": [1.0]}, make.signature())
    assert [problem.split("'")[1] for problem in fault.value.problems] == ["y", "c"]


def test_unequal_lengths_are_refused() -> None:
    with pytest.raises(DataFault, match="lengths differ"):
        encode({"x": [1.0], "y": [1.0, 2.0], "c": ["AA"]}, make.signature())


def test_text_in_a_numeric_column_is_refused_by_name() -> None:
    with pytest.raises(DataFault, match="'x' holds something that is no number"):
        encode({"x": ["far"], "y": [1.0], "c": ["AA"]}, make.signature())


@given(st.lists(st.one_of(st.none(), st.text(max_size=3)), min_size=1, max_size=30))
def test_every_word_of_the_own_vocabulary_comes_back(values: list[str | None]) -> None:
    vocabulary = words(values)
    found = codes(values, vocabulary)
    assert [vocabulary[code - 1] if code else None for code in found] == values


@given(st.lists(st.sampled_from(["AA", "B6", "UA", None]), min_size=1, max_size=20))
def test_a_row_is_encoded_alike_alone_and_in_a_batch(values: list[str | None]) -> None:
    together = codes(values, ("AA", "B6"))
    assert together.tolist() == [codes([value], ("AA", "B6"))[0] for value in values]
