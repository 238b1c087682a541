"""Whether a trained version may go on: gates G0 to G4 from their evidence alone. Pure.

A check that could not run is a failure, and a figure that is not finite never passes. Only a first model skips G4.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from training.contract import EvaluationRef, FitRef, Gain, GateEvidence, GatePolicy, Verdict

Figures = dict[str, float | int | str | None]

LINEAGE, DATA, SANITY, FLOOR, CHAMPION = "G0 lineage", "G1 data", "G2 training sanity", "G3 floor", "G4 champion"
GATES = (LINEAGE, DATA, SANITY, FLOOR, CHAMPION)
SKIPPABLE = frozenset({CHAMPION})


def verdicts(evidence: GateEvidence, policy: GatePolicy) -> tuple[Verdict, ...]:
    """All verdicts, in the order of the gates; never fewer than there are gates."""
    return (
        lineage(evidence),
        data(evidence),
        sanity(evidence, policy),
        floor(evidence.evaluation, policy),
        champion(evidence, policy),
    )


def passed(found: Sequence[Verdict], policy: GatePolicy) -> bool:  # noqa: ARG001  every gate is decided under a policy
    """Whether every gate has passed; a missing gate, an underpowered one or a skipped one (but G4) is no pass."""
    by_gate = {verdict.gate: verdict for verdict in found}
    return set(GATES) <= set(by_gate) and all(
        verdict.status == "pass" or (verdict.status == "skipped" and gate in SKIPPABLE)
        for gate, verdict in by_gate.items()
    )


def reason_for_approval(found: Sequence[Verdict], policy: GatePolicy) -> str | None:
    """Why a person has to agree before traffic, or None; not asked when a gate has failed, since nobody may overrule that."""
    by_gate = {verdict.gate: verdict for verdict in found}
    if not set(GATES) <= set(by_gate) or any(verdict.status == "fail" for verdict in found):
        return None
    unclear = [verdict for verdict in found if verdict.status == "underpowered"]
    if unclear:
        return "; ".join(f"{verdict.gate}: {verdict.reason}" for verdict in unclear)
    if by_gate[CHAMPION].status == "skipped" and policy.first_release == "approval":
        return "first release of this model, and policy.first_release is 'approval'"
    return None


def _verdict(gate: str, problems: Sequence[str], good: str, figures: Figures) -> Verdict:
    shown = {name: _plain(value) for name, value in figures.items()}
    if problems:
        return Verdict(gate=gate, status="fail", reason="; ".join(problems), figures=shown)
    return Verdict(gate=gate, status="pass", reason=good, figures=shown)


def _plain(value: float | int | str | None) -> float | int | str | None:
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def lineage(evidence: GateEvidence) -> Verdict:
    """G0: one dataset, one training key, one recipe; and no choice of the evaluation fit has seen the window."""
    candidate, final, evaluation = evidence.candidate, evidence.final, evidence.evaluation
    facts = {
        "the candidate is no evaluation fit": candidate.fit != "evaluation",
        "the final fit is none": final.fit != "final",
        "the evaluation fit used another dataset": candidate.dataset.digest != evidence.dataset.digest,
        "the final fit used another dataset": final.dataset.digest != evidence.dataset.digest,
        "training keys differ": len({candidate.training_key, final.training_key, evaluation.training_key}) != 1,
        "the two fits differ in recipe or seed": (candidate.columns, candidate.network, candidate.seed)
        != (final.columns, final.network, final.seed),
        "the two fits differ in epochs": candidate.epochs != final.epochs,
        f"the evaluation fit has seen {candidate.seen_last}, the window begins {evaluation.test_first}": (
            candidate.seen_last >= evaluation.test_first or candidate.train_last > candidate.seen_last
        ),
        "the window reaches beyond the dataset": evaluation.test_last > evidence.dataset.last,
        "models differ": len({candidate.model, final.model, evaluation.model, evidence.dataset.model}) != 1,
    }
    figures: Figures = {"seen_last": str(candidate.seen_last), "test_first": str(evaluation.test_first)}
    return _verdict(
        LINEAGE, [text for text, wrong in facts.items() if wrong], "one dataset, one key, unseen window", figures
    )


def data(evidence: GateEvidence) -> Verdict:
    """G1: expectations have held on exactly this dataset."""
    matching = [found for found in evidence.validations if found.target == evidence.dataset.digest]
    figures: Figures = {
        "suites": ", ".join(found.suite for found in matching),
        "expectations": sum(found.expectations for found in matching),
        "warnings": sum(len(found.warnings) for found in matching),
    }
    problems = [] if matching else [f"no validation is there for dataset {evidence.dataset.digest}"]
    return _verdict(DATA, problems, f"{figures['expectations']} expectations held", figures)


def _insane(name: str, fit: FitRef, policy: GatePolicy) -> list[str]:
    if not all(math.isfinite(value) for value in (fit.loss_first, fit.loss_last, fit.grad_norm_max)):
        return [f"{name} fit: a figure is not finite"]
    problems = []
    if fit.loss_last >= fit.loss_first:
        problems.append(f"{name} fit: loss went from {fit.loss_first:.5f} to {fit.loss_last:.5f}")
    if fit.grad_norm_max > policy.grad_norm_limit:
        problems.append(f"{name} fit: gradient norm {fit.grad_norm_max:.1f} exceeds {policy.grad_norm_limit:.1f}")
    return problems


def sanity(evidence: GateEvidence, policy: GatePolicy) -> Verdict:
    """G2: both fits are finite, better than they began, and their gradients stayed bounded."""
    fits = {"evaluation": evidence.candidate, "final": evidence.final}
    problems = [problem for name, fit in fits.items() for problem in _insane(name, fit, policy)]
    figures: Figures = {}
    for name, fit in fits.items():
        figures |= {f"{name}_loss_first": fit.loss_first, f"{name}_loss_last": fit.loss_last}
        figures[f"{name}_grad_norm_max"] = fit.grad_norm_max
    return _verdict(SANITY, problems, "both fits learnt and stayed finite", figures)


def floor(evaluation: EvaluationRef, policy: GatePolicy) -> Verdict:
    """G3: better than the base rate, close to boosting, and the final fit is no worse where it has seen the rows."""
    candidate = evaluation.candidate
    gain = evaluation.base_rate.log_loss - candidate.log_loss
    behind = evaluation.boosting.auc - candidate.auc
    final_excess = evaluation.final.log_loss - candidate.log_loss
    problems = []  # each comparison is written so that NaN counts against the candidate
    if not gain >= policy.floor_log_loss:
        problems.append(
            f"log loss {candidate.log_loss:.5f} beats the base rate's {evaluation.base_rate.log_loss:.5f} by {gain:.5f}, "
            f"less than {policy.floor_log_loss}"
        )
    if not behind <= policy.boosting_auc:
        problems.append(
            f"AUC {candidate.auc:.4f} is {behind:.4f} below boosting's {evaluation.boosting.auc:.4f}, more than {policy.boosting_auc}"
        )
    if not final_excess <= policy.final_log_loss:
        problems.append(
            f"final fit's log loss exceeds the evaluation fit's by {final_excess:.5f}, more than {policy.final_log_loss}"
        )
    scores = (evaluation.base_rate.log_loss, candidate.log_loss, candidate.auc, evaluation.boosting.auc)
    if not all(math.isfinite(value) for value in (*scores, evaluation.final.log_loss)):
        problems.append("a figure is not finite")
    figures: Figures = {
        "log_loss": candidate.log_loss,
        "base_log_loss": evaluation.base_rate.log_loss,
        "gain_over_base": gain,
        "auc": candidate.auc,
        "boosting_auc": evaluation.boosting.auc,
        "final_log_loss": evaluation.final.log_loss,
        "rows": evaluation.rows,
    }
    good = f"log loss {gain:.5f} better than the base rate, AUC {-behind:+.4f} against boosting"
    return _verdict(FLOOR, problems, good, figures)


def rows_needed(rows: int, gain: Gain, margin: float, policy: GatePolicy) -> int:
    """Rows with which the window could show the margin: the standard error falls with the root of the rows."""
    return math.ceil(rows * ((policy.significance_z + policy.power_z) * gain.standard_error / margin) ** 2)


def _figures(evidence: GateEvidence, log_loss: Gain, auc: Gain) -> Figures:
    figures: Figures = {"rows": evidence.evaluation.rows, "champion_partition": str(evidence.champion_partition)}
    for name, gain in (("log_loss", log_loss), ("auc", auc)):
        figures |= {f"gain_{name}": gain.mean, f"gain_{name}_lower": gain.lower, f"gain_{name}_upper": gain.upper}
    return figures


def _inferior(name: str, gain: Gain, margin: float, policy: GatePolicy, rows: int) -> tuple[str, str] | None:
    """(status, reason) against the candidate in one score, or None when it is shown to be non-inferior."""
    detectable = (policy.significance_z + policy.power_z) * gain.standard_error
    powered = detectable <= margin
    if gain.lower < -margin and (powered or gain.upper < 0):
        return "fail", f"{name}: gain {gain.mean:+.5f}, its lower bound {gain.lower:+.5f} lies below -{margin}"
    if not powered:
        return (
            "underpowered",
            f"{name}: {rows} rows can show {detectable:.5f} (one-sided 5 %, power 80 %), not the margin of {margin}; "
            f"{rows_needed(rows, gain, margin, policy)} rows would do",
        )
    return None


def champion(evidence: GateEvidence, policy: GatePolicy) -> Verdict:
    """G4: evaluation fits compared on one unseen window; log loss decides, AUC guards.

    Non-inferior in both (lower 95 % bound of the gain >= -margin); to be promoted also a lower bound above 0 in log
    loss, or a champion older than ``champion_age``, or a drift that asked for the retrain. Underpowered when
    (1.645 + 0.842) * standard error > margin: one-sided 5 %, power 80 % (decisions.md 5).
    """
    evaluation = evidence.evaluation
    if evaluation.champion is None and evaluation.champion_key is None and evidence.champion_partition is None:
        return Verdict(gate=CHAMPION, status="skipped", reason="first model: there is no champion to compare with")
    log_loss, auc = evaluation.gain_log_loss, evaluation.gain_auc
    if evaluation.champion is None or log_loss is None or auc is None or evidence.champion_partition is None:
        return _verdict(CHAMPION, ["there is a champion, but it was not compared on this window"], "", {})
    figures = _figures(evidence, log_loss, auc)
    bounds = [value for gain in (log_loss, auc) for value in (gain.mean, gain.lower, gain.upper, gain.standard_error)]
    if not all(math.isfinite(value) for value in bounds):
        return _verdict(CHAMPION, ["a figure of the comparison is not finite"], "", figures)
    found = [
        against
        for name, gain, margin in (
            ("log loss", log_loss, policy.margin_log_loss),
            ("AUC", auc, policy.margin_auc),
        )
        if (against := _inferior(name, gain, margin, policy, evaluation.rows))
    ]
    failed = [reason for status, reason in found if status == "fail"]
    if failed or not found:
        reason = reason_to_promote(evidence, log_loss, policy)
        return _verdict(CHAMPION, failed or ([] if reason else [_too_little(log_loss)]), reason or "", figures)
    return Verdict(
        gate=CHAMPION, status="underpowered", reason="; ".join(reason for _, reason in found), figures=figures
    )


def _too_little(log_loss: Gain) -> str:
    return (
        f"not inferior, but no reason to change: gain {log_loss.mean:+.5f} with lower bound {log_loss.lower:+.5f}, "
        "the champion is young and no drift asked"
    )


def reason_to_promote(evidence: GateEvidence, log_loss: Gain, policy: GatePolicy) -> str | None:
    """Why a non-inferior candidate should replace the champion, or None."""
    if log_loss.lower > 0:
        return f"log loss is better by {log_loss.mean:.5f} (at least {log_loss.lower:.5f})"
    if evidence.drift_triggered:
        return f"not inferior (gain {log_loss.mean:+.5f}), and drift asked for it"
    if evidence.champion_partition is not None:
        age = evidence.dataset.partition - evidence.champion_partition
        if age > policy.champion_age:
            return f"not inferior (gain {log_loss.mean:+.5f}), and the champion is {age.days} days old"
    return None
