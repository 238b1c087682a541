"""G5 and G6: what a slice or a group can stand against, and what must hold for any figures."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.make import gates as make
from training.contract import GatePolicy, Verdict
from training.gate_slices import calibration, slices
from training.measures import Gain, Slice

POLICY = GatePolicy()
BIASED = GatePolicy(group_gap=0.05)
NAN = math.nan
ORDER = {"fail": 0, "underpowered": 1, "pass": 2}


def judged(found: tuple[Slice, ...], policy: GatePolicy = POLICY, **evaluation: Any) -> Verdict:
    return slices(found, make.evaluation_ref(**evaluation), policy)


def one_of(*gains: Gain) -> tuple[Slice, ...]:
    return tuple(make.one_slice(f"s{place}", gain=gain) for place, gain in enumerate(gains))


def test_slices_that_lose_nothing_pass_and_the_worst_is_named() -> None:
    verdict = judged(one_of(make.gain(0.004, 0.002), make.gain(-0.003, 0.002)))
    assert verdict.status == "pass"
    assert verdict.figures["worst"] == "origin=s1"
    assert verdict.figures["judged"] == 2


def test_one_slice_that_loses_more_than_two_margins_beyond_doubt_fails() -> None:
    verdict = judged(one_of(make.gain(), make.gain(-0.02, 0.003)))
    assert verdict.status == "fail"
    assert "origin=s1: log loss gain -0.02000 lies below -0.01" in verdict.reason


def test_a_loss_that_many_looks_would_show_by_chance_is_none() -> None:
    beyond = make.gain(-0.0165, 0.003)  # p = 0.015: beyond doubt alone, by chance among twenty
    quiet = [make.gain(0.002, 0.003) for _ in range(19)]
    assert judged(one_of(beyond)).status == "fail"
    assert judged(one_of(beyond, *quiet)).status == "pass"


def test_a_small_slice_is_reported_and_never_judged() -> None:
    small = make.one_slice("s9", rows=384, gain=make.gain(-0.5, 0.001))
    verdict = judged((*make.slices(), small))
    assert verdict.status == "pass"
    assert verdict.figures["slices"] == 4
    assert verdict.figures["judged"] == 3


@pytest.mark.covers("bad evidence: new slice")
def test_a_slice_that_the_champion_never_saw_is_held_against_the_base_rate() -> None:
    worse_than_champion = make.one_slice("NEW", known=False, gain=make.gain(-0.1, 0.002))
    verdict = judged((*make.slices(), worse_than_champion))
    assert verdict.status == "pass"
    assert "new since the champion, held against the base rate: origin=NEW" in verdict.reason
    useless = make.one_slice("NEW", known=False, gain_over_base=make.gain(-0.1, 0.002))
    assert judged((*make.slices(), useless)).status == "fail"


def test_a_first_model_is_held_against_the_base_rate_and_the_skipped_part_is_on_record() -> None:
    alone = {"champion": None, "champion_key": None, "gain": None, "guard_gain": None}
    first = make.slices(gain=None, known=None)
    verdict = judged(first, **alone)
    assert verdict.status == "pass"
    assert "the comparison with a champion is skipped, there is none" in verdict.reason
    useless = make.slices(gain=None, known=None, gain_over_base=make.gain(-0.1, 0.002))
    assert judged(useless, **alone).status == "fail"


def test_a_window_whose_slices_cannot_show_the_loss_says_how_many_rows_would() -> None:
    weak = tuple(make.one_slice(name, rows=400, gain=make.gain(0.0, 0.008)) for name in ("a", "b"))
    clear = tuple(make.one_slice(name, rows=400, gain=make.gain(0.02, 0.008)) for name in ("a", "b"))
    assert judged(clear).status == "pass"  # too few rows to show the loss, but enough to rule it out
    verdict = judged(weak)
    assert verdict.status == "underpowered"
    assert "origin: slices with 0% of the rows can show a loss of 0.01; 1583 rows a slice would do" in verdict.reason
    assert judged((*weak, make.one_slice("c", rows=801))).status == "pass"
    small = judged((make.one_slice(rows=100),))
    assert small.status == "underpowered"
    assert "none of 1 slices has 385 rows, the largest has 100" in small.reason


@pytest.mark.parametrize(
    "found",
    [
        (),
        one_of(make.gain(NAN)),
        one_of(make.gain(), make.gain(0.01, math.inf)),
        make.slices(gain=None),
        make.slices(known=False, gain_over_base=None),
    ],
)
def test_a_comparison_that_is_missing_or_not_finite_fails(found: tuple[Slice, ...]) -> None:
    assert judged(found).status == "fail"


GAINS = st.builds(make.gain, st.floats(-0.05, 0.05), st.floats(0, 0.02))
SLICES = st.lists(
    st.builds(
        make.one_slice,
        st.sampled_from("abcdef"),
        dimension=st.sampled_from(["origin", "carrier"]),
        rows=st.integers(100, 5_000),
        gain=GAINS,
        gain_over_base=GAINS,
        known=st.booleans(),
        bias=st.floats(-0.2, 0.2),
        bias_error=st.floats(0, 0.05),
    ),
    min_size=1,
    max_size=8,
    unique_by=lambda each: each.name,
)


@given(found=SLICES, data=st.data())
def test_the_order_of_the_slices_changes_nothing(found: list[Slice], data: st.DataObject) -> None:
    turned = data.draw(st.permutations(found))
    assert judged(tuple(found)) == judged(tuple(turned))
    evaluation = make.evaluation_ref()
    assert calibration(found, evaluation, BIASED) == calibration(turned, evaluation, BIASED)


@given(found=SLICES, worse_by=st.floats(0, 0.1), data=st.data())
def test_a_slice_that_does_worse_never_helps(found: list[Slice], worse_by: float, data: st.DataObject) -> None:
    chosen = data.draw(st.sampled_from(found))

    def worse(gain: Gain) -> Gain:
        return make.gain(gain.mean - worse_by, gain.standard_error)

    changed = chosen.model_copy(
        update={"gain": worse(chosen.gain), "gain_over_base": worse(chosen.gain_over_base)}  # type: ignore[arg-type]
    )
    after = [changed if each is chosen else each for each in found]
    assert ORDER[judged(tuple(after)).status] <= ORDER[judged(tuple(found)).status]


@given(found=SLICES)
def test_a_pass_means_that_no_judged_slice_is_surely_worse_than_the_limit(found: list[Slice]) -> None:
    if judged(tuple(found)).status == "pass":
        count = sum(each.rows >= POLICY.slice_rows for each in found)
        for each in found:
            gain = each.gain if each.known else each.gain_over_base
            if each.rows >= POLICY.slice_rows:
                assert gain.p_below(-0.01) > POLICY.slice_alpha / count  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("ece", "champion", "wanted"),
    [(0.05, 0.01, "pass"), (0.051, 0.01, "fail"), (0.08, 0.07, "pass"), (0.0801, 0.07, "fail"), (NAN, 0.01, "fail")],
)
def test_answers_mean_what_they_say_or_as_little_as_the_champions(ece: float, champion: float, wanted: str) -> None:
    scores = [make.scores().model_copy(update={"ece": value}) for value in (ece, champion)]
    evaluation = make.evaluation_ref(candidate=scores[0], champion=scores[1])
    assert calibration(make.slices(), evaluation, POLICY).status == wanted


def test_a_group_whose_bias_lies_far_from_the_windows_fails_where_the_row_has_a_budget() -> None:
    far = (*make.slices(), make.one_slice("SWF", rows=1_000, bias=0.2, bias_error=0.01))
    assert calibration(far, make.evaluation_ref(), POLICY).status == "pass"
    verdict = calibration(far, make.evaluation_ref(), BIASED)
    assert verdict.status == "fail"
    assert "origin=SWF: bias lies 0.1754 from the window's, more than 0.05" in verdict.reason
    assert verdict.figures["widest_group"] == "origin=SWF"
    noisy = (*make.slices(), make.one_slice("SWF", rows=1_000, bias=0.2, bias_error=0.1))
    assert calibration(noisy, make.evaluation_ref(), BIASED).status == "pass"
    undeclared = tuple(each.model_copy(update={"group": False}) for each in far)
    assert "no declared group" in calibration(undeclared, make.evaluation_ref(), BIASED).reason
    unknown = make.slices(bias_error=None)
    assert calibration(unknown, make.evaluation_ref(), BIASED).status == "fail"
