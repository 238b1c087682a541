"""Whether a trained version may go on: gates G0 to G6 from their evidence alone, and what they come to with G10. Pure.

A check that could not run is a failure, and a figure that is not finite never passes. Only a first model skips G4.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TypeAlias

from artifacts.refs import Digest, key_digest
from training import gate_slices
from training.approval import APPROVAL
from training.contract import EvaluationRef, FitRef, GateEvidence, GatePolicy, Verdict
from training.gate_slices import CALIBRATION, SLICES
from training.measures import DECIDING, GUARD, YARDSTICK, Gain, Look, Metric
from training.power import detectable, rows_needed
from training.verdicts import Figures, verdict

LINEAGE, DATA, SANITY, FLOOR, CHAMPION = "G0 lineage", "G1 data", "G2 training sanity", "G3 floor", "G4 champion"
SKIPPABLE = frozenset({CHAMPION})

Gate: TypeAlias = Callable[[GateEvidence, GatePolicy], Verdict]


def verdicts(evidence: GateEvidence, policy: GatePolicy) -> tuple[Verdict, ...]:
    """The verdict of every gate that applies to the model, in the order of the gates."""
    return tuple(GATES[name](evidence, policy) for name in applying(policy))


def applying(policy: GatePolicy) -> tuple[str, ...]:
    """The full names of the gates that a policy names, cheap first."""
    return tuple(name for name in GATES if name.split()[0] in policy.gates)


def passed(found: Sequence[Verdict], policy: GatePolicy) -> bool:
    """Whether a version may go on: every gate that applies has passed, and so has G10.

    A missing gate is no pass, nor is a skipped one (but G4). What is underpowered goes on only if a person has agreed.
    """
    by_gate = {each.gate: each for each in found}
    approval = by_gate.get(APPROVAL)
    if approval is None or approval.status != "pass" or len(by_gate) != len(found):
        return False
    allowed = {"pass", "underpowered"} if approval.figures.get("answer") == "approved" else {"pass"}
    return set(applying(policy)) <= set(by_gate) and all(
        each.status in allowed or (each.status == "skipped" and gate in SKIPPABLE) for gate, each in by_gate.items()
    )


def reason_for_approval(found: Sequence[Verdict], policy: GatePolicy) -> str | None:
    """Why a person has to agree before traffic, or None; not asked when a gate has failed, since nobody may overrule that."""
    by_gate = {each.gate: each for each in found}
    if not set(applying(policy)) <= set(by_gate) or any(each.status == "fail" for each in found):
        return None
    unclear = [each for each in found if each.status == "underpowered"]
    if unclear:
        return "; ".join(f"{each.gate}: {each.reason}" for each in unclear)
    if policy.tier == "high":
        return "the model is of the high tier, and a person agrees to each of its releases"
    if by_gate[CHAMPION].status == "skipped" and policy.first_release == "approval":
        return "first release of this model, and policy.first_release is 'approval'"
    return None


def recipe_of(fit: FitRef) -> Digest:
    """What a fit was told, but for its seed and its data."""
    return key_digest({"model": fit.model, "task": fit.task, "columns": fit.columns, "network": fit.network})


def lineage(evidence: GateEvidence, policy: GatePolicy) -> Verdict:
    """G0: one dataset, one training key, one recipe, known code; no choice of the evaluation fit has seen the window, and
    it is no third seed in a row for the same recipe on the same data.
    """
    candidate, final, evaluation = evidence.candidate, evidence.final, evidence.evaluation
    facts = {
        "the candidate is no evaluation fit": candidate.fit != "evaluation",
        "the final fit is none": final.fit != "final",
        "the evaluation fit used another dataset": candidate.dataset.digest != evidence.dataset.digest,
        "the final fit used another dataset": final.dataset.digest != evidence.dataset.digest,
        "training keys differ": len({candidate.training_key, final.training_key, evaluation.training_key}) != 1,
        "the two fits differ in recipe or seed": (candidate.columns, candidate.network, candidate.seed, candidate.task)
        != (final.columns, final.network, final.seed, final.task),
        "the two fits differ in epochs": candidate.epochs != final.epochs,
        f"the evaluation fit has seen {candidate.seen_last}, the window begins {evaluation.test_first}": (
            candidate.seen_last >= evaluation.test_first or candidate.train_last > candidate.seen_last
        ),
        "the window reaches beyond the dataset": evaluation.test_last > evidence.dataset.last,
        "models differ": len({candidate.model, final.model, evaluation.model, evidence.dataset.model}) != 1,
        "the code that trained it has no digest": evidence.code is None,
    }
    problems = [text for text, wrong in facts.items() if wrong]
    refused, looks = refusals(evidence), len({look.training_key for look in seen_before(evidence)})
    if refused >= policy.same_data_rejections:
        problems.append(
            f"{refused} versions of this recipe were refused on dataset {evidence.dataset.digest} before; another seed is "
            f"no new evidence (at most {policy.same_data_rejections}): change the recipe, or wait for a newer partition"
        )
    figures: Figures = {
        "seen_last": str(candidate.seen_last),
        "test_first": str(evaluation.test_first),
        "code": evidence.code,
        "commit": evidence.commit,
        "earlier_looks": looks,
        "earlier_refusals": refused,
    }
    return verdict(LINEAGE, problems, f"one dataset, one key, unseen window; {looks} other versions met it", figures)


def seen_before(evidence: GateEvidence) -> list[Look]:
    """Judgements of other versions on the same dataset: each is a look at its test window."""
    own = evidence.candidate.training_key
    return [look for look in evidence.looks if look.dataset == evidence.dataset.digest and look.training_key != own]


def refusals(evidence: GateEvidence) -> int:
    """How many other versions of this very recipe were refused on this dataset, each counted once."""
    recipe = recipe_of(evidence.candidate)
    return len({look.training_key for look in seen_before(evidence) if look.recipe == recipe and not look.passed})


def data(evidence: GateEvidence, policy: GatePolicy) -> Verdict:
    """G1: every suite that the row names has held, that of the training set on exactly this dataset.

    A validation exists only if each of its expectations came back, none raised and all critical ones held: ids, volume and
    nulls are theirs to judge.
    """
    matching = [found for found in evidence.validations if found.target == evidence.dataset.digest]
    held = {found.suite for found in evidence.validations}
    problems = [] if matching else [f"no validation is there for dataset {evidence.dataset.digest}"]
    problems += [f"the suite '{suite}' did not run" for suite in policy.suites if suite not in held]
    figures: Figures = {
        "suites": ", ".join(sorted(held)),
        "expectations": sum(found.expectations for found in evidence.validations),
        "warnings": sum(len(found.warnings) for found in evidence.validations),
    }
    return verdict(DATA, problems, f"{figures['expectations']} expectations held", figures)


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
    figures: Figures = {"seed": evidence.candidate.seed}
    for name, fit in fits.items():
        figures |= {f"{name}_loss_first": fit.loss_first, f"{name}_loss_last": fit.loss_last}
        figures[f"{name}_grad_norm_max"] = fit.grad_norm_max
    return verdict(SANITY, problems, "both fits learnt and stayed finite", figures)


def floor(evidence: GateEvidence, policy: GatePolicy) -> Verdict:
    """G3: better than the base rate, within the row's absolute limits, close to boosting; and the final fit is no worse
    where it has seen the rows.
    """
    evaluation = evidence.evaluation
    candidate, deciding, guard, yard = evaluation.candidate, *_metrics(evaluation)
    gain = deciding.gain(candidate.deciding, evaluation.base_rate.deciding)
    behind = -yard.gain(getattr(candidate, yard.field), getattr(evaluation.boosting, yard.field))
    excess = evaluation.final.deciding - candidate.deciding
    naive = "persistence" if evaluation.persistence else "the base rate"
    problems = []  # each comparison is written so that NaN counts against the candidate
    if not gain >= policy.floor:
        problems.append(
            f"{deciding.title} {candidate.deciding:.5f} beats {naive}'s {evaluation.base_rate.deciding:.5f} by "
            f"{gain:.5f}, less than {policy.floor}"
        )
    for metric, value, limit in (
        (deciding, candidate.deciding, policy.deciding_limit),
        (guard, candidate.guard, policy.guard_limit),
    ):
        if limit is not None and not metric.gain(value, limit) >= 0:
            problems.append(f"{metric.title} {value:.5f} misses the row's limit of {limit}")
    if not behind <= policy.boosting_margin:
        problems.append(
            f"{yard.title} {getattr(candidate, yard.field):.4f} is {behind:.4f} behind boosting's "
            f"{getattr(evaluation.boosting, yard.field):.4f}, more than {policy.boosting_margin}"
        )
    if not excess <= policy.final_margin:
        problems.append(
            f"final fit's {deciding.title} exceeds the evaluation fit's by {excess:.5f}, more than {policy.final_margin}"
        )
    looked_at = (evaluation.base_rate.deciding, candidate.deciding, candidate.guard, behind, excess)
    if not all(math.isfinite(value) for value in looked_at):
        problems.append("a figure is not finite")
    figures: Figures = {
        deciding.field: candidate.deciding,
        f"base_{deciding.field}": evaluation.base_rate.deciding,
        "gain_over_base": gain,
        guard.field: candidate.guard,
        f"boosting_{yard.field}": getattr(evaluation.boosting, yard.field),
        f"final_{deciding.field}": evaluation.final.deciding,
        "rows": evaluation.rows,
    }
    good = f"{deciding.title} {gain:.5f} better than {naive}, {yard.title} {-behind:+.4f} against boosting"
    return verdict(FLOOR, problems, good, figures)


def _metrics(evaluation: EvaluationRef) -> tuple[Metric, Metric, Metric]:
    task = evaluation.task
    return DECIDING[task], GUARD[task], YARDSTICK[task]


def _inferior(name: str, gain: Gain, margin: float, policy: GatePolicy, rows: int) -> tuple[str, str] | None:
    """(status, reason) against the candidate in one figure, or None when it is shown to be non-inferior."""
    shown = detectable(gain, policy)
    powered = shown <= margin
    if gain.lower < -margin and (powered or gain.upper < 0):
        return "fail", f"{name}: gain {gain.mean:+.5f}, its lower bound {gain.lower:+.5f} lies below -{margin}"
    if not powered:
        return (
            "underpowered",
            f"{name}: {rows} rows can show {shown:.5f} (one-sided 5 %, power 80 %), not the margin of {margin}; "
            f"{rows_needed(rows, gain, margin, policy)} rows would do",
        )
    return None


def champion(evidence: GateEvidence, policy: GatePolicy) -> Verdict:
    """G4: evaluation fits compared on one unseen window; the deciding figure decides, the guard guards.

    Non-inferior in both (lower 95 % bound of the gain >= -margin); to be promoted also a lower bound above 0 in the
    deciding figure, or a champion older than ``champion_age``, or a drift that asked for the retrain. Underpowered when
    (1.645 + 0.842) * standard error > margin: one-sided 5 %, power 80 % (decisions.md 5).
    """
    evaluation = evidence.evaluation
    if evidence.backfill:
        return Verdict(
            gate=CHAMPION, status="skipped", reason="a backfill replaces nobody: there is nobody to compare with"
        )
    if evaluation.champion is None and evaluation.champion_key is None and evidence.champion_partition is None:
        return Verdict(gate=CHAMPION, status="skipped", reason="first model: there is no champion to compare with")
    decides, guards = evaluation.gain, evaluation.guard_gain
    if evaluation.champion is None or decides is None or guards is None or evidence.champion_partition is None:
        return verdict(CHAMPION, ["there is a champion, but it was not compared on this window"], "", {})
    deciding, guard, _ = _metrics(evaluation)
    figures: Figures = {"rows": evaluation.rows, "champion_partition": str(evidence.champion_partition)}
    for metric, gain in ((deciding, decides), (guard, guards)):
        name = f"gain_{metric.field}"
        figures |= {name: gain.mean, f"{name}_lower": gain.lower, f"{name}_upper": gain.upper}
    if not (decides.finite and guards.finite):
        return verdict(CHAMPION, ["a figure of the comparison is not finite"], "", figures)
    compared = [(deciding.title, decides, policy.margin)]
    if policy.guard_margin is not None:
        compared.append((guard.title, guards, policy.guard_margin))
    found = [against for each in compared if (against := _inferior(*each, policy, evaluation.rows))]
    failed = [reason for status, reason in found if status == "fail"]
    if failed or not found:
        reason = reason_to_promote(evidence, decides, policy)
        return verdict(CHAMPION, failed or ([] if reason else [_too_little(decides)]), reason or "", figures)
    return verdict(CHAMPION, [reason for _, reason in found], "", figures, status="underpowered")


def _too_little(gain: Gain) -> str:
    return (
        f"not inferior, but no reason to change: gain {gain.mean:+.5f} with lower bound {gain.lower:+.5f}, "
        "the champion is young and no drift asked"
    )


def reason_to_promote(evidence: GateEvidence, gain: Gain, policy: GatePolicy) -> str | None:
    """Why a non-inferior candidate should replace the champion, or None."""
    if gain.lower > 0:
        return f"{DECIDING[evidence.evaluation.task].title} is better by {gain.mean:.5f} (at least {gain.lower:.5f})"
    if evidence.drift_triggered:
        return f"not inferior (gain {gain.mean:+.5f}), and drift asked for it"
    if evidence.champion_partition is not None:
        age = evidence.dataset.partition - evidence.champion_partition
        if age > policy.champion_age:
            return f"not inferior (gain {gain.mean:+.5f}), and the champion is {age.days} days old"
    return None


def slices(evidence: GateEvidence, policy: GatePolicy) -> Verdict:
    """G5: see ``gate_slices.slices``."""
    return gate_slices.slices(evidence.slices, evidence.evaluation, policy)


def calibration(evidence: GateEvidence, policy: GatePolicy) -> Verdict:
    """G6: see ``gate_slices.calibration``."""
    return gate_slices.calibration(evidence.slices, evidence.evaluation, policy)


GATES: Mapping[str, Gate] = MappingProxyType({
    LINEAGE: lineage,
    DATA: data,
    SANITY: sanity,
    FLOOR: floor,
    CHAMPION: champion,
    SLICES: slices,
    CALIBRATION: calibration,
})
"""Every gate that looks at a trained version, cheap first; a row's policy says which apply."""
