"""Gates G0 to G4 and what all gates come to: each rule, and what must hold for any figures."""

from __future__ import annotations

import datetime as dt
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from artifacts.refs import sha256
from tests.make import gates as make
from training.approval import APPROVAL, ApprovalEvidence, approval_verdict
from training.contract import GateEvidence, GatePolicy, Verdict
from training.gate import CHAMPION, GATES, passed, reason_for_approval, verdicts
from training.measures import Gain
from training.power import rows_needed

POLICY = GatePolicy()
NAN = math.nan
FIRST_MODEL = {"evaluation": make.first_evaluation(), "champion_partition": None}


def status(evidence: GateEvidence, gate: str, policy: GatePolicy = POLICY) -> str:
    return one(evidence, gate, policy).status


def one(evidence: GateEvidence, gate: str, policy: GatePolicy = POLICY) -> Verdict:
    return next(found for found in verdicts(evidence, policy) if found.gate.startswith(gate))


def whole(evidence: GateEvidence, policy: GatePolicy = POLICY) -> tuple[Verdict, ...]:
    """All verdicts with G10, while nobody has been asked."""
    found = verdicts(evidence, policy)
    approval = approval_verdict(ApprovalEvidence(needed=reason_for_approval(found, policy)), policy)
    return (*found, *((approval,) if approval else ()))


def compared(log_loss: Gain, auc: Gain | None = None, **changes: Any) -> GateEvidence:
    evaluation = make.evaluation_ref(gain=log_loss, guard_gain=auc or make.gain())
    return make.gate_evidence(evaluation=evaluation, **changes)


def test_good_evidence_passes_every_gate_in_order() -> None:
    found = whole(make.gate_evidence())
    assert tuple(verdict.gate for verdict in found) == (*GATES, APPROVAL)
    assert {verdict.status for verdict in found} == {"pass"}
    assert passed(found, POLICY)
    assert reason_for_approval(found, POLICY) is None


@pytest.mark.parametrize("missing", range(len(GATES) + 1))
def test_a_gate_that_did_not_run_is_no_pass(missing: int) -> None:
    found = list(whole(make.gate_evidence()))
    del found[missing]
    assert not passed(found, POLICY)
    assert not passed([], POLICY)


def test_the_same_gate_twice_is_no_pass() -> None:
    found = whole(make.gate_evidence())
    assert not passed([*found, found[0]], POLICY)


@pytest.mark.parametrize("gate", [gate for gate in (*GATES, APPROVAL) if gate != CHAMPION])
def test_only_the_champion_gate_may_be_skipped(gate: str) -> None:
    skipped = Verdict(gate=gate, status="skipped", reason="for no reason")
    found = [skipped if verdict.gate == gate else verdict for verdict in whole(make.gate_evidence())]
    assert not passed(found, POLICY)


def test_a_row_names_the_gates_that_look_inside_the_window_and_no_others() -> None:
    plain = GatePolicy(gates=("G0", "G1", "G2", "G3", "G4"))
    assert passed(whole(make.gate_evidence(slices=()), plain), plain)
    with pytest.raises(ValueError, match="always apply"):
        GatePolicy(gates=("G0", "G1", "G2", "G4", "G5", "G6"))
    with pytest.raises(ValueError, match="may be added"):
        GatePolicy(gates=("G0", "G1", "G2", "G3", "G4", "G12"))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"candidate": make.fit_ref("final")}, "no evaluation fit"),
        ({"final": make.fit_ref("evaluation")}, "final fit is none"),
        ({"final": make.fit_ref("final", training_key=sha256(b"other"))}, "training keys differ"),
        ({"final": make.fit_ref("final", seed=2)}, "recipe or seed"),
        ({"final": make.fit_ref("final", epochs=4)}, "epochs"),
        ({"final": make.fit_ref("final", dataset=make.dataset_ref(digest=sha256(b"o")))}, "final fit used another"),
        ({"candidate": make.fit_ref(seen_last=dt.date(2013, 8, 17))}, "has seen 2013-08-17"),
        ({"candidate": make.fit_ref(train_last=dt.date(2013, 8, 20))}, "evaluation fit has seen"),
        ({"evaluation": make.evaluation_ref(test_last=dt.date(2013, 9, 2))}, "beyond the dataset"),
        ({"code": None}, "the code that trained it has no digest"),
        ({"final": make.fit_ref("final", task="regression")}, "recipe or seed"),
    ],
)
def test_lineage_that_does_not_fit_fails(changes: dict[str, Any], words: str) -> None:
    verdict = one(make.gate_evidence(**changes), "G0")
    assert verdict.status == "fail"
    assert words in verdict.reason


def test_what_git_says_of_the_tree_is_on_record() -> None:
    assert one(make.gate_evidence(commit="4f0c1d2a3b4c-dirty"), "G0").figures["commit"] == "4f0c1d2a3b4c-dirty"


def test_looks_are_counted_and_a_fourth_seed_on_the_same_data_is_refused() -> None:
    two = make.gate_evidence(looks=(make.look(1), make.look(2)))
    assert one(two, "G0").status == "pass"
    assert one(two, "G0").figures["earlier_looks"] == 2
    three = one(make.gate_evidence(looks=(make.look(1), make.look(2), make.look(3))), "G0")
    assert three.status == "fail"
    assert "3 versions of this recipe were refused" in three.reason
    assert "another seed is no new evidence" in three.reason


@pytest.mark.parametrize(
    "other",
    [
        {"passed": True},
        {"dataset": sha256(b"newer data")},
        {"recipe": sha256(b"another recipe")},
        {"recipe": None},
        {"training_key": make.KEY},
        {"training_key": sha256(b"seed 1")},
    ],
)
def test_only_refusals_of_other_seeds_of_this_recipe_on_this_data_count_and_each_once(other: dict[str, Any]) -> None:
    evidence = make.gate_evidence(looks=(make.look(1), make.look(2), make.look(3, **other)))
    assert one(evidence, "G0").figures["earlier_refusals"] == 2
    assert one(evidence, "G0").status == "pass"


def test_a_suite_that_the_row_names_and_that_did_not_run_fails() -> None:
    both = GatePolicy(suites=("raw_day", "training_set"))
    assert "the suite 'raw_day' did not run" in one(make.gate_evidence(), "G1", both).reason
    raw = make.validation_ref(suite="raw_day", target=sha256(b"raw"))
    assert one(make.gate_evidence(validations=(raw, make.validation_ref())), "G1", both).status == "pass"


@pytest.mark.parametrize("validations", [(), (make.validation_ref(target=sha256(b"another dataset")),)])
def test_a_dataset_without_its_own_validation_fails(validations: tuple[Any, ...]) -> None:
    assert status(make.gate_evidence(validations=validations), "G1") == "fail"


@pytest.mark.parametrize("kind", ["candidate", "final"])
@pytest.mark.parametrize(
    "changes",
    [
        {"loss_last": NAN},
        {"loss_first": math.inf},
        {"grad_norm_max": NAN},
        {"grad_norm_max": 1000.1},
        {"loss_last": 0.6},
    ],
)
def test_a_fit_that_did_not_learn_or_stay_finite_fails(kind: str, changes: dict[str, float]) -> None:
    fit = make.fit_ref("evaluation" if kind == "candidate" else "final", **changes)
    assert status(make.gate_evidence(**{kind: fit}), "G2") == "fail"


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({"candidate": make.scores(0.545, 0.75)}, "pass"),
        ({"candidate": make.scores(0.5451, 0.75)}, "fail"),
        ({"candidate": make.scores(0.45, 0.736)}, "pass"),
        ({"candidate": make.scores(0.45, 0.734)}, "fail"),
        ({"final": make.scores(0.4549, 0.75)}, "pass"),
        ({"final": make.scores(0.4551, 0.75)}, "fail"),
        ({"candidate": make.scores(NAN, 0.75)}, "fail"),
        ({"candidate": make.scores(-math.inf, 0.75)}, "fail"),
        ({"candidate": make.scores(0.45, NAN)}, "fail"),
        ({"final": make.scores(NAN, 0.75)}, "fail"),
        ({"boosting": make.scores(0.45, NAN)}, "fail"),
        ({"base_rate": make.scores(math.inf, 0.5)}, "fail"),
    ],
)
def test_the_floor_is_where_the_policy_puts_it(changes: dict[str, Any], wanted: str) -> None:
    assert status(make.gate_evidence(evaluation=make.evaluation_ref(**changes)), "G3") == wanted


@pytest.mark.parametrize(
    ("limits", "wanted"),
    [
        ({"deciding_limit": 0.45, "guard_limit": 0.75}, "pass"),
        ({"deciding_limit": 0.449}, "fail"),
        ({"guard_limit": 0.751}, "fail"),
    ],
)
def test_an_absolute_limit_holds_whatever_the_others_do(limits: dict[str, float], wanted: str) -> None:
    assert one(make.gate_evidence(), "G3", GatePolicy(**limits)).status == wanted


@pytest.mark.covers("bad evidence: equal scores")
def test_a_scorer_that_answers_the_same_for_all_rows_is_refused_by_the_floor() -> None:
    constant = make.scores(0.55, 0.5)
    verdict = one(make.gate_evidence(evaluation=make.evaluation_ref(candidate=constant, final=constant)), "G3")
    assert verdict.status == "fail"
    assert "log loss 0.55000 beats the base rate's 0.55000 by 0.00000, less than 0.005" in verdict.reason


def test_a_first_model_skips_the_comparison_with_a_record_and_needs_a_person() -> None:
    automatic = GatePolicy(first_release="automatic")
    found = whole(make.gate_evidence(**FIRST_MODEL))
    assert one(make.gate_evidence(**FIRST_MODEL), "G4").status == "skipped"
    assert "first model" in one(make.gate_evidence(**FIRST_MODEL), "G4").reason
    assert not passed(found, POLICY)
    assert reason_for_approval(found, POLICY) is not None
    assert passed(whole(make.gate_evidence(**FIRST_MODEL), automatic), automatic)


@pytest.mark.parametrize(
    "evidence",
    [
        make.gate_evidence(evaluation=make.first_evaluation()),
        make.gate_evidence(evaluation=make.evaluation_ref(champion=None)),
        make.gate_evidence(evaluation=make.evaluation_ref(guard_gain=None)),
        make.gate_evidence(champion_partition=None),
        compared(make.gain(NAN)),
        compared(make.gain(), make.gain(0.004, NAN)),
    ],
)
def test_a_champion_that_could_not_be_compared_is_a_failure(evidence: GateEvidence) -> None:
    assert status(evidence, "G4") == "fail"


def test_log_loss_decides_and_auc_guards() -> None:
    assert status(compared(make.gain(0.004), make.gain(-0.001)), "G4") == "pass"
    assert status(compared(make.gain(0.004), make.gain(-0.004)), "G4") == "fail"
    assert status(compared(make.gain(-0.004), make.gain(0.01)), "G4") == "fail"


def test_a_merely_non_inferior_candidate_needs_a_reason_to_replace_the_champion() -> None:
    equal = make.gain(0.0)
    assert "no reason to change" in one(compared(equal), "G4").reason
    assert status(compared(equal, drift_triggered=True), "G4") == "pass"
    age = make.PARTITION - POLICY.champion_age
    assert status(compared(equal, champion_partition=age), "G4") == "fail"
    assert status(compared(equal, champion_partition=age - dt.timedelta(days=1)), "G4") == "pass"


def test_a_window_that_cannot_show_the_margin_is_underpowered_and_says_how_many_rows_would() -> None:
    wide = make.gain(0.02, 0.0021)  # (1.645 + 0.842) * 0.0021 = 0.00522 > 0.005
    found = whole(compared(wide))
    verdict = one(compared(wide), "G4")
    assert verdict.status == "underpowered"
    assert not passed(found, POLICY)
    assert reason_for_approval(found, POLICY) is not None
    rows = rows_needed(13_000, wide, POLICY.margin, POLICY)
    assert str(rows) in verdict.reason
    assert 14_000 < rows < 14_400
    shrunk = make.gain(0.02, 0.0021 * math.sqrt(13_000 / rows))
    assert status(compared(shrunk), "G4") == "pass"


def test_an_underpowered_candidate_that_is_surely_worse_fails_and_nobody_is_asked() -> None:
    found = verdicts(compared(make.gain(-0.05, 0.01)), POLICY)
    assert one(compared(make.gain(-0.05, 0.01)), "G4").status == "fail"
    assert reason_for_approval(found, POLICY) is None


ORDER = {"fail": 0, "underpowered": 1, "pass": 2}
GAINS = st.floats(-0.05, 0.05)
ERRORS = st.floats(1e-5, 0.02)


@given(low=GAINS, high=GAINS, error=ERRORS, auc=GAINS, drift=st.booleans())
def test_a_worse_candidate_never_does_better(low: float, high: float, error: float, auc: float, drift: bool) -> None:
    low, high = sorted((low, high))
    guard = make.gain(auc, 0.001)
    worse, better = (
        status(compared(make.gain(mean, error), guard, drift_triggered=drift), "G4") for mean in (low, high)
    )
    assert ORDER[worse] <= ORDER[better]


@given(mean=GAINS, error=ERRORS, other=GAINS)
def test_whatever_passes_is_shown_to_be_non_inferior_with_power(mean: float, error: float, other: float) -> None:
    log_loss, auc = make.gain(mean, error), make.gain(other, error)
    if status(compared(log_loss, auc), "G4") == "pass":
        assert log_loss.lower > 0
        assert auc.lower >= -POLICY.guard_margin
        assert 2.486 * error <= POLICY.margin


@given(low=st.floats(0.3, 0.7), high=st.floats(0.3, 0.7), area=st.floats(0.5, 0.9))
def test_a_larger_log_loss_never_passes_the_floor_where_a_smaller_fails(low: float, high: float, area: float) -> None:
    low, high = sorted((low, high))
    smaller, larger = (
        status(
            make.gate_evidence(
                evaluation=make.evaluation_ref(candidate=make.scores(loss, area), final=make.scores(0.3))
            ),
            "G3",
        )
        for loss in (low, high)
    )
    assert not (smaller == "fail" and larger == "pass")


@given(
    value=st.sampled_from([NAN, math.inf, -math.inf]),
    field=st.sampled_from(["mean", "lower", "upper", "standard_error"]),
    metric=st.sampled_from(["gain", "guard_gain"]),
)
@pytest.mark.covers("bad evidence: NaN scores")
def test_nothing_that_is_not_finite_passes(value: float, field: str, metric: str) -> None:
    broken = make.gain().model_copy(update={field: value})
    found = verdicts(make.gate_evidence(evaluation=make.evaluation_ref(**{metric: broken})), POLICY)
    assert next(verdict for verdict in found if verdict.gate == CHAMPION).status == "fail"
    assert not passed(found, POLICY)
    assert all(isinstance(verdict.model_dump_json(), str) for verdict in found)


def test_what_is_underpowered_goes_on_only_if_a_person_has_agreed() -> None:
    found = verdicts(compared(make.gain(0.02, 0.0021)), POLICY)
    agreed = approval_verdict(make.approval(), POLICY)
    refused = approval_verdict(make.approval(answer="rejected"), POLICY)
    automatic = approval_verdict(ApprovalEvidence(), POLICY)
    assert passed((*found, agreed), POLICY)
    assert not passed((*found, refused), POLICY)
    assert not passed((*found, automatic), POLICY)


@pytest.mark.parametrize("gate", GATES)
def test_nobody_overrules_a_gate_that_failed(gate: str) -> None:
    bad = Verdict(gate=gate, status="fail", reason="for a reason")
    found = [bad if verdict.gate == gate else verdict for verdict in verdicts(make.gate_evidence(), POLICY)]
    assert reason_for_approval(found, POLICY) is None
    assert not passed((*found, approval_verdict(make.approval(), POLICY)), POLICY)


def test_a_model_of_the_high_tier_always_asks() -> None:
    high = GatePolicy(tier="high")
    found = verdicts(make.gate_evidence(), high)
    assert "high tier" in reason_for_approval(found, high)
    assert not passed(whole(make.gate_evidence(), high), high)
    assert passed((*found, approval_verdict(make.approval(), high)), high)


REGRESSION = GatePolicy(
    floor=0.5, boosting_margin=0.2, final_margin=0.1, margin=0.2, guard_margin=0.3, bias_limit=0.5, deciding_limit=5.0
)


@pytest.mark.parametrize(
    ("changes", "gate", "wanted"),
    [
        ({}, "G3", "pass"),
        ({"candidate": make.errors(5.6), "final": make.errors(5.6)}, "G3", "fail"),
        ({"candidate": make.errors(3.2)}, "G3", "fail"),  # 0.25 behind boosting
        ({"candidate": make.errors(NAN)}, "G3", "fail"),
        ({}, "G4", "pass"),
        ({"gain": make.gain(-0.3, 0.05)}, "G4", "fail"),
        ({"guard_gain": make.gain(-0.6, 0.1)}, "G4", "fail"),
        ({}, "G6", "pass"),
        ({"candidate": make.errors(bias=-0.6)}, "G6", "fail"),
        ({"candidate": make.errors(bias=NAN)}, "G6", "fail"),
    ],
)
def test_a_regression_is_judged_by_its_errors(changes: dict[str, Any], gate: str, wanted: str) -> None:
    slices = make.slices(gain=make.gain(0.2, 0.1), gain_over_base=make.gain(3.0, 0.1))
    evidence = make.gate_evidence(evaluation=make.regression_ref(**changes), slices=slices)
    assert one(evidence, gate, REGRESSION).status == wanted


def test_a_regression_may_go_without_a_guard() -> None:
    alone = REGRESSION.model_copy(update={"guard_margin": None})
    evidence = make.gate_evidence(evaluation=make.regression_ref(guard_gain=make.gain(-0.6, 0.1)))
    assert one(evidence, "G4", REGRESSION).status == "fail"
    assert one(evidence, "G4", alone).status == "pass"


@pytest.mark.parametrize(
    ("disagreement", "margin", "rows"),
    [
        (0.04, 0.01, 2_474),
        (0.04, 0.005, 9_893),
        (0.04, 0.0025, 39_569),
        (0.10, 0.01, 6_183),
        (0.10, 0.005, 24_731),
        (0.10, 0.0025, 98_921),
    ],
)
def test_the_rows_that_would_do_are_those_of_the_table_of_decisions(
    disagreement: float, margin: float, rows: int
) -> None:
    window = 5_000
    gain = make.gain(
        0.0, math.sqrt(disagreement / window)
    )  # of a difference that is +1 or -1 on that share of the rows
    assert rows_needed(window, gain, margin, POLICY) == rows
