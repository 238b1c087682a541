"""The gates that look inside the window: G5 slices and G6 calibration and bias, from their evidence alone. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from training.contract import EvaluationRef, GatePolicy, Verdict
from training.measures import DECIDING, Errors, Gain, Scores, Slice
from training.power import detectable, rows_needed
from training.significance import holm
from training.verdicts import Figures, verdict

SLICES, CALIBRATION = "G5 slices", "G6 calibration"
SHOWN = 3  # slices that a reason names; the figures and the evaluation's page have all of them


def judged_gain(found: Slice) -> Gain | None:
    """What a slice is judged by: the champion, or the constant answer where the champion does not know the slice."""
    return found.gain if found.known else found.gain_over_base


def slices(found: Sequence[Slice], evaluation: EvaluationRef, policy: GatePolicy) -> Verdict:
    """G5: no judged slice has lost more than ``slice_margins`` x margin beyond doubt (one-sided, Holm over all of them).

    Slices with fewer than ``slice_rows`` rows are reported only. It is UNDERPOWERED when in one of the dimensions most rows
    lie in slices that neither rule such a loss out nor could have shown it. Without a champion every slice is held against the base rate.
    """
    if not found:
        return verdict(
            SLICES, ["no slice was scored; declare the recipe's DIMENSIONS, or leave G5 out of the row"], "", {}
        )
    large = [each for each in found if each.rows >= policy.slice_rows]
    limit = -policy.slice_margins * policy.margin
    gains = {each.name: gain for each in large if (gain := judged_gain(each)) is not None and gain.finite}
    figures: Figures = {"slices": len(found), "judged": len(large), "limit": limit}
    uncompared = [each.name for each in large if each.name not in gains]
    if uncompared:
        return verdict(SLICES, [f"no finite comparison for {listed(uncompared)}"], "", figures)
    if not large:
        text = f"none of {len(found)} slices has {policy.slice_rows} rows, the largest has {max(each.rows for each in found)}"
        return verdict(SLICES, [text], "", figures, status="underpowered")
    worst = min(gains, key=lambda name: (gains[name].mean, name))
    figures |= {"worst": worst, "worst_gain": gains[worst].mean, "worst_p": gains[worst].p_below(limit)}
    lost = holm({name: gain.p_below(limit) for name, gain in gains.items()}, policy.slice_alpha)
    metric = DECIDING[evaluation.task].title
    problems = [
        f"{name}: {metric} gain {gains[name].mean:+.5f} lies below {limit} (p = {gains[name].p_below(limit):.2g})"
        for name in sorted(lost)
    ]
    weak = _weak_dimensions(found, gains, policy)
    if weak and not problems:
        return verdict(SLICES, weak, "", figures, status="underpowered")
    return verdict(SLICES, problems, _good(large, worst, gains[worst], evaluation), figures)


def _good(large: Sequence[Slice], worst: str, gain: Gain, evaluation: EvaluationRef) -> str:
    new = [each.name for each in large if each.known is False]
    text = f"{len(large)} slices, the worst is {worst} with {gain.mean:+.5f}"
    if evaluation.champion is None:
        return f"{text} against the base rate; the comparison with a champion is skipped, there is none"
    return f"{text}; new since the champion, held against the base rate: {listed(new)}" if new else text


def _weak_dimensions(found: Sequence[Slice], gains: Mapping[str, Gain], policy: GatePolicy) -> list[str]:
    """Dimensions most of whose rows lie in slices that neither rule out the loss nor could show it, with the rows that would."""
    wanted = policy.slice_margins * policy.margin
    problems = []
    for dimension in sorted({each.dimension for each in found}):
        members = [each for each in found if each.dimension == dimension]
        able = [each for each in members if each.name in gains and _can_say(gains[each.name], wanted, policy)]
        rows, shown = sum(each.rows for each in members), sum(each.rows for each in able)
        if shown < policy.slice_power_share * rows:
            weak = [each for each in members if each.name in gains and each not in able]
            needs = [rows_needed(each.rows, gains[each.name], wanted, policy) for each in weak]
            rest = f"; {max(needs)} rows a slice would do" if needs else f"; no slice has {policy.slice_rows} rows"
            problems.append(
                f"{dimension}: slices with {shown / rows:.0%} of the rows can show a loss of {wanted}{rest}"
            )
    return problems


def _can_say(gain: Gain, loss: float, policy: GatePolicy) -> bool:
    """Whether a slice's rows rule out the loss, or are enough to have shown it."""
    return gain.lower >= -loss or detectable(gain, policy) <= loss


def calibration(found: Sequence[Slice], evaluation: EvaluationRef, policy: GatePolicy) -> Verdict:
    """G6: answers mean what they say, over the window and in every declared group.

    Probabilities: ECE at most ``ece_limit``, or at most ``ece_over_champion`` above the champion's. A regression: absolute
    bias at most ``bias_limit``, if the row has one. Groups: none lies further than ``group_gap`` from the whole window's
    bias beyond doubt (one-sided, Holm); ``group_gap`` None leaves them to the page.
    """
    candidate, champion = evaluation.candidate, evaluation.champion
    problems, good = _overall(candidate, champion, policy)
    figures: Figures = {"bias": _bias(evaluation, found)}
    figures |= {"ece": candidate.ece} if isinstance(candidate, Scores) else {"mae": candidate.mae}
    groups = [each for each in found if each.group and each.rows >= policy.slice_rows]
    if policy.group_gap is not None:
        if not groups:
            problems.append(f"group_gap is {policy.group_gap}, but no declared group has {policy.slice_rows} rows")
        against, widest = _gaps(groups, figures["bias"], policy.group_gap, policy)
        problems += against
        figures |= widest
        good += f", none of {len(groups)} groups surely over {policy.group_gap} from the window's bias"
    return verdict(CALIBRATION, problems, good, figures)


def _overall(candidate: Scores | Errors, champion: Scores | Errors | None, policy: GatePolicy) -> tuple[list[str], str]:
    if isinstance(candidate, Errors):
        limit = policy.bias_limit
        if limit is None and math.isfinite(candidate.bias):
            return [], f"bias {candidate.bias:+.5f}, no limit declared"
        good = limit is not None and abs(candidate.bias) <= limit
        return ([] if good else [f"bias {candidate.bias:+.5f} exceeds {limit}"]), f"bias {candidate.bias:+.5f}"
    allowed = policy.ece_limit
    if isinstance(champion, Scores) and math.isfinite(champion.ece):
        allowed = max(allowed, champion.ece + policy.ece_over_champion)
    said = f"ECE {candidate.ece:.4f}"
    return (
        [] if 0 <= candidate.ece <= allowed else [f"{said} exceeds {allowed:.4f}"]
    ), f"{said}, at most {allowed:.4f}"


def _bias(evaluation: EvaluationRef, found: Sequence[Slice]) -> float | None:
    """Mean answer less mean label of the whole window; the slices of any one dimension cover it."""
    if isinstance(evaluation.candidate, Errors):
        return evaluation.candidate.bias
    if not found:
        return None
    members = [each for each in found if each.dimension == min(one.dimension for one in found)]
    return math.fsum(each.bias * each.rows for each in members) / sum(each.rows for each in members)


def _gaps(
    groups: Sequence[Slice], bias: float | int | str | None, budget: float, policy: GatePolicy
) -> tuple[list[str], Figures]:
    """What stands against the candidate, and the widest gap."""
    problems, gaps = [], {}
    for each in groups:
        if (
            not isinstance(bias, float)
            or each.bias_error is None
            or not math.isfinite(each.bias - bias + each.bias_error)
        ):
            problems.append(f"{each.name}: its bias is no finite number")
            continue
        gap = abs(each.bias - bias)
        gaps[each.name] = Gain(mean=-gap, lower=-gap, upper=-gap, standard_error=each.bias_error)
    beyond = holm({name: gap.p_below(-budget) for name, gap in gaps.items()}, policy.slice_alpha)
    problems += [
        f"{name}: bias lies {-gaps[name].mean:.4f} from the window's, more than {budget}" for name in sorted(beyond)
    ]
    if not gaps:
        return problems, {}
    widest = min(gaps, key=lambda name: (gaps[name].mean, name))
    return problems, {"widest_group": widest, "widest_gap": -gaps[widest].mean}


def listed(names: Sequence[str]) -> str:
    """The first few names, and how many more there are."""
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(sorted(names)[:SHOWN]) + more
