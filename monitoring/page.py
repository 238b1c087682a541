"""The page of one check: what moved, in words, and every score against its threshold. Pure: values in, HTML out."""

from __future__ import annotations

from html import escape

from monitoring.baseline import Baseline
from monitoring.contract import BROKEN, DRIFTED
from monitoring.findings import CheckReport, Figures
from monitoring.words import title

BARS, ROW, LABEL, SPAN, FAR = 30, 22, 300, 460, 2.0
INK, GRID = "#1f2933", "#cbd2d9"
COLOURS = {"drifted": "#d9480f", "broken": "#862e9c", "warn": "#e8a317", "ok": "#0b6e99"}
STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;color:#1f2933;max-width:960px;margin:2rem auto;padding:0 1rem}"
    "h1{font-size:1.5rem;margin-bottom:.2rem}h2{font-size:1.1rem;margin-top:2rem}p.note{color:#52606d}"
    ".verdict{padding:.7rem 1rem;border-left:5px solid;background:#f5f7fa}"
    "table{border-collapse:collapse;width:100%}td,th{padding:.3rem .6rem;border-bottom:1px solid #e4e7eb;text-align:left}"
    "td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}svg{max-width:100%;height:auto}"
)


def summary(found: CheckReport, baseline: Baseline) -> str:
    """The whole page, self-contained."""
    window = found.partitions[0] if len(found.partitions) == 1 else f"{found.partitions[0]} to {found.partitions[-1]}"
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8>"
        f"<title>{escape(found.model)} {window}: {found.outcome}</title><style>{STYLE}</style>",
        f"<h1>{escape(found.model)}: {window}</h1>",
        f"<p class=note>{found.rows:,} requests against the reference {baseline.first} to {baseline.last} "
        f"({baseline.rows:,} rows, {baseline.blocks} days), package {baseline.package_digest[7:19]}</p>",
        _verdict(found),
        _prediction(found),
        _quality(found),
        _table(found),
        *([f"<h2>Scores against thresholds</h2>{chart(found.features)}"] if found.features else []),
        _notes(found),
    ]
    return "\n".join(part for part in parts if part) + "\n"


def _verdict(found: CheckReport) -> str:
    colour = {"checked": COLOURS["ok"], "incident": COLOURS["broken"], "insufficient": COLOURS["warn"]}[found.outcome]
    words = {
        "checked": f"{found.score or 0:.2f} of the model's importance has drifted, warnings counted in part.",
        "incident": "The feed is broken: a data incident, which never starts a retrain.",
        "insufficient": "Too few rows to say anything of drift.",
    }[found.outcome]
    return f'<p class=verdict style="border-color:{colour}"><b>{found.outcome}</b>: {words}</p>'


def _prediction(found: CheckReport) -> str:
    if found.prediction is None or found.prediction_threshold is None:
        return ""
    psi, beyond = found.prediction.psi or 0.0, (found.prediction.psi or 0.0) >= found.prediction_threshold
    return (
        f"<p>{escape(found.prediction.finding.words)}; PSI {psi:.3f}, threshold {found.prediction_threshold:.3f}"
        f"{' (beyond)' if beyond else ''}.</p>"
    )


def _quality(found: CheckReport) -> str:
    return "".join(f"<p>{escape(line)}</p>" for line in (*_measured_quality(found), *_estimated_quality(found)))


def _measured_quality(found: CheckReport) -> list[str]:
    label = [f"{found.label.finding.words} ({found.label.finding.kind})."] if found.label else []
    if found.quality is None:
        return ["Quality: too few labels are known for a figure.", *label]
    quality = found.quality
    dropped = "a confirmed drop" if quality.difference_upper < 0 else "no confirmed drop"
    area = "" if quality.auc is None else f" AUC {quality.auc:.3f}{_interval(quality.auc_lower, quality.auc_upper)}."
    return [
        f"Quality: skill {quality.skill:.3f}{_interval(quality.skill_lower, quality.skill_upper)} on {quality.labelled:,} "
        f"labelled requests of {quality.days} days ({quality.coverage:.0%} of the requests have a label), "
        f"{quality.skill_at_promotion:.3f} at promotion; upper bound of the difference {quality.difference_upper:+.3f}: "
        f"{dropped}.{area}",
        *label,
    ]


def _interval(lower: float | None, upper: float | None) -> str:
    return "" if lower is None or upper is None else f" (95 % interval {lower:.3f} to {upper:.3f})"


def _estimated_quality(found: CheckReport) -> list[str]:
    if found.estimate is None:
        return []
    guess = found.estimate
    skill = "" if guess.skill is None else f", skill {guess.skill:.3f}"
    area = "" if guess.auc is None else f", AUC {guess.auc:.3f}"
    return [
        f"Estimate without labels: log loss {guess.log_loss:.3f}{skill}{area}, {guess.positives:.1%} positive. It holds if "
        "the scores are calibrated; a changed relation of inputs and labels does not show in it."
    ]


def _table(found: CheckReport) -> str:
    loud = [figures for figures in found.features if figures.finding.kind != "ok"]
    if not loud:
        return "<p>No feature is beyond what its own days did in the reference.</p>" if found.features else ""
    rows = "".join(
        f"<tr><td>{figures.finding.kind}<td>{escape(figures.finding.words)}"
        f"<td class=n>{_figure(figures.finding.score)}<td class=n>{_figure(figures.finding.threshold)}"
        f"<td class=n>{figures.finding.weight:.1%}"
        for figures in sorted(loud, key=lambda each: -each.finding.weight)
    )
    head = "<tr><th>Kind<th>What<th class=n>Score<th class=n>Threshold<th class=n>Importance"
    return f"<h2>What moved</h2><table>{head}{rows}</table>"


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _notes(found: CheckReport) -> str:
    if not found.notes:
        return ""
    return "<h2>The window</h2><ul>" + "".join(f"<li>{escape(note)}" for note in found.notes) + "</ul>"


def _colour(figures: Figures) -> str:
    kind = figures.finding.kind
    if kind in DRIFTED:
        return COLOURS["drifted"]
    return COLOURS["broken"] if kind in BROKEN else COLOURS.get(kind, COLOURS["ok"])


def chart(features: tuple[Figures, ...]) -> str:
    """An SVG of PSI divided by threshold, one bar per feature, the largest first; bars end at twice the threshold."""
    measured = sorted(
        (figures for figures in features if figures.psi is not None and figures.psi_threshold),
        key=lambda figures: -(figures.psi or 0) / (figures.psi_threshold or 1),
    )[:BARS]
    width, height = LABEL + SPAN + 130, ROW * len(measured) + 46
    limit = LABEL + SPAN / FAR
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" font-family="system-ui,sans-serif" font-size="12" fill="{INK}">'
        "<title>PSI of each feature divided by its threshold</title>",
        f'<text x="{limit}" y="16" text-anchor="middle">threshold</text>',
    ]
    for place, figures in enumerate(measured):
        parts += _bar(figures, 28 + ROW * place)
    parts.append(
        f'<line x1="{limit}" x2="{limit}" y1="22" y2="{height - 14}" stroke="{INK}" stroke-dasharray="4 3"/></svg>'
    )
    return "".join(parts)


def _bar(figures: Figures, top: float) -> list[str]:
    psi, threshold = figures.psi or 0.0, figures.psi_threshold or 1.0
    ratio = psi / threshold
    length = max(SPAN * min(ratio, FAR) / FAR, 1)
    return [
        f'<text x="{LABEL - 8}" y="{top + 12}" text-anchor="end">{escape(title(figures.finding.feature))} '
        f"({figures.finding.weight:.1%})</text>",
        f'<rect x="{LABEL}" y="{top}" width="{SPAN}" height="{ROW - 6}" fill="#f5f7fa"/>',
        f'<rect x="{LABEL}" y="{top}" width="{length:.1f}" height="{ROW - 6}" fill="{_colour(figures)}">'
        f"<title>{escape(figures.finding.words)}</title></rect>",
        f'<text x="{LABEL + SPAN + 8}" y="{top + 12}">{psi:.2f} of {threshold:.2f}{" +" if ratio > FAR else ""}</text>',
    ]
