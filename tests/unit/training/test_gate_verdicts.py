"""Gates G0 to G4: each rule, and what must hold for any figures."""

from __future__ import annotations

import datetime as dt
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from artifacts.refs import sha256
from tests.make import gates as make
from training.contract import Gain, GateEvidence, GatePolicy, Verdict
from training.gate import GATES, passed, reason_for_approval, rows_needed, verdicts

POLICY = GatePolicy()
NAN = math.nan
FIRST_MODEL = {"evaluation": make.first_evaluation(), "champion_partition": None}


def status(evidence: GateEvidence, gate: str, policy: GatePolicy = POLICY) -> str:
    return one(evidence, gate, policy).status


def one(evidence: GateEvidence, gate: str, policy: GatePolicy = POLICY) -> Verdict:
    return next(found for found in verdicts(evidence, policy) if found.gate.startswith(gate))


def compared(log_loss: Gain, auc: Gain | None = None, **changes: Any) -> GateEvidence:
    evaluation = make.evaluation_ref(gain_log_loss=log_loss, gain_auc=auc or make.gain())
    return make.gate_evidence(evaluation=evaluation, **changes)


def test_good_evidence_passes_every_gate_in_order() -> None:
    found = verdicts(make.gate_evidence(), POLICY)
    assert tuple(verdict.gate for verdict in found) == GATES
    assert {verdict.status for verdict in found} == {"pass"}
    assert passed(found, POLICY)
    assert reason_for_approval(found, POLICY) is None


@pytest.mark.parametrize("missing", range(len(GATES)))
def test_a_gate_that_did_not_run_is_no_pass(missing: int) -> None:
    found = list(verdicts(make.gate_evidence(), POLICY))
    del found[missing]
    assert not passed(found, POLICY)
    assert not passed([], POLICY)


@pytest.mark.parametrize("gate", GATES[:-1])
def test_only_the_champion_gate_may_be_skipped(gate: str) -> None:
    skipped = Verdict(gate=gate, status="skipped", reason="for no reason")
    found = [skipped if verdict.gate == gate else verdict for verdict in verdicts(make.gate_evidence(), POLICY)]
    assert not passed(found, POLICY)


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
    ],
)
def test_lineage_that_does_not_fit_fails(changes: dict[str, Any], words: str) -> None:
    verdict = one(make.gate_evidence(**changes), "G0")
    assert verdict.status == "fail"
    assert words in verdict.reason


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


def test_a_first_model_skips_the_comparison_with_a_record_and_needs_a_person() -> None:
    found = verdicts(make.gate_evidence(**FIRST_MODEL), POLICY)
    assert found[-1].status == "skipped"
    assert "first model" in found[-1].reason
    assert passed(found, POLICY)
    assert reason_for_approval(found, POLICY) is not None
    assert reason_for_approval(found, GatePolicy(first_release="automatic")) is None


@pytest.mark.parametrize(
    "evidence",
    [
        make.gate_evidence(evaluation=make.first_evaluation()),
        make.gate_evidence(evaluation=make.evaluation_ref(champion=None)),
        make.gate_evidence(evaluation=make.evaluation_ref(gain_auc=None)),
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
    found = verdicts(compared(wide), POLICY)
    assert found[-1].status == "underpowered"
    assert not passed(found, POLICY)
    assert reason_for_approval(found, POLICY) is not None
    rows = rows_needed(13_000, wide, POLICY.margin_log_loss, POLICY)
    assert str(rows) in found[-1].reason
    assert 14_000 < rows < 14_400
    shrunk = make.gain(0.02, 0.0021 * math.sqrt(13_000 / rows))
    assert status(compared(shrunk), "G4") == "pass"


def test_an_underpowered_candidate_that_is_surely_worse_fails_and_nobody_is_asked() -> None:
    found = verdicts(compared(make.gain(-0.05, 0.01)), POLICY)
    assert found[-1].status == "fail"
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
        assert auc.lower >= -POLICY.margin_auc
        assert 2.487 * error <= POLICY.margin_log_loss


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
    metric=st.sampled_from(["gain_log_loss", "gain_auc"]),
)
def test_nothing_that_is_not_finite_passes(value: float, field: str, metric: str) -> None:
    broken = make.gain().model_copy(update={field: value})
    found = verdicts(make.gate_evidence(evaluation=make.evaluation_ref(**{metric: broken})), POLICY)
    assert found[-1].status == "fail"
    assert not passed(found, POLICY)
    assert all(isinstance(verdict.model_dump_json(), str) for verdict in found)
