from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators.jobs.states import EDGES, STATES, TERMINAL, State, path

states = st.sampled_from(STATES)


@given(states, states)
def test_a_way_is_made_of_edges_and_begins_and_ends_where_it_should(before: State, wanted: State) -> None:
    try:
        way = path(before, wanted)
    except ValueError:
        assert before != wanted
        return
    places = (before, *way)
    assert all(after in EDGES[one] for one, after in itertools.pairwise(places))
    assert places[-1] == wanted


@given(st.sampled_from(sorted(TERMINAL)), states)
def test_terminal_is_terminal(end: State, wanted: State) -> None:
    if end == wanted:
        assert path(end, wanted) == ()
        return
    with pytest.raises(ValueError, match="cannot become"):
        path(end, wanted)


@pytest.mark.parametrize("end", sorted(TERMINAL))
def test_what_has_worked_stores_before_it_ends(end: State) -> None:
    assert "STORING" in path("PROCESSING", end)
    assert "STORING" in path("DOWNLOADING", end)


def test_two_looks_may_be_far_apart() -> None:
    assert path("DECLARED", "COMPLETED") == ("VALIDATED", "ADMITTED", "STARTING", "PROCESSING", "STORING", "COMPLETED")
    assert path("EVICTED", "STARTING") == ("QUEUED", "ADMITTED", "STARTING")


def test_every_state_is_reached_and_leads_to_an_end() -> None:
    for state in STATES:
        path("DECLARED", state)
        assert state in TERMINAL or path(state, "FAILED")
