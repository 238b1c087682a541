"""Step: compares a closed window of the prediction log with the live version's reference.

Outcomes: "checked" with figures; "insufficient" when the window is too small even when merged; "incident" when the
feed is broken, which must never start a retrain. A figure that cannot be computed is DataFault, never a pass.
"""

from __future__ import annotations

import datetime as dt
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from artifacts.step import DataFault, progress, step
from artifacts.store import Artifact, publish, read_ref
from monitoring import quality
from monitoring.baseline import Baseline, Monitored
from monitoring.contract import CheckRef, CheckSpec, DriftPolicy, Finding
from monitoring.drift import Sample, report
from monitoring.findings import BROKEN, DRIFTED, CheckReport, Figures, Outcome, drifted_share, measure, missing
from monitoring.page import summary
from monitoring.windows import AGE, FEATURE, Window, column, generator, labelled, log_window, merged, sample

HOUR = dt.timedelta(hours=1)


def check(spec: CheckSpec) -> CheckRef:
    """Publishes one check; raises DataFault when a score is NaN or the artifacts do not belong together."""
    _belong_together(spec)
    frozen = read_ref(spec.reference)
    baseline = Baseline.model_validate_json(frozen.file("baseline.json").read_bytes())
    progress(0.1, "reading the window of the prediction log")
    every = log_window(spec.predictions, baseline.package_digest, spec.policy.sample_rows, spec.seed)
    window = merged(every, spec.policy)
    progress(0.2, "measuring the distance of every feature")
    found = measure_window(spec, baseline, every, window)
    with publish(spec.output, "check") as draft:
        if found.outcome != "insufficient":
            progress(0.4, "writing Evidently's report")
            found = found.model_copy(
                update={"evidently_psi": _evidently(spec, found, baseline, frozen, window, draft.path)}
            )
        (draft.path / "check.json").write_text(found.model_dump_json(indent=1))
        (draft.path / "summary.html").write_text(summary(found, baseline))
        draft.facts.update(model=spec.model, partition=window.partitions[-1].isoformat(), outcome=found.outcome)
    if draft.manifest is None:
        raise AssertionError("a published draft has a manifest")
    return CheckRef(
        uri=spec.output,
        digest=draft.manifest.digest,
        model=spec.model,
        partition=window.partitions[-1],
        first=window.partitions[0],
        outcome=found.outcome,
        rows=found.rows,
        score=found.score,
        prediction_psi=found.prediction.psi if found.prediction else None,
        prediction_threshold=found.prediction_threshold,
        findings=_loud(found),
        quality=found.quality,
        package_digest=baseline.package_digest,
        reference_digest=spec.reference.digest,
        notes=found.notes,
    )


def _belong_together(spec: CheckSpec) -> None:
    models = {ref.uri: ref.model for ref in spec.predictions} | {ref.uri: ref.model for ref in spec.feedback}
    models |= {spec.reference.uri: spec.reference.model, spec.evaluation.uri: spec.evaluation.model}
    others = {uri: model for uri, model in models.items() if model != spec.model}
    if others:
        raise DataFault(f"{uri}: belongs to model '{model}', not '{spec.model}'" for uri, model in others.items())


def measure_window(spec: CheckSpec, baseline: Baseline, every: Window, window: Window) -> CheckReport:
    """All figures of a window; ``every`` holds all given partitions, whose labels serve the quality figure."""
    notes = [*window.notes]
    if len(window.partitions) > 1:
        notes.append(f"{len(window.partitions)} partitions merged to reach {window.rows} rows")
    enough = window.rows >= spec.policy.minimum_rows
    if not enough:
        notes.append(f"{window.rows} rows, a check needs {spec.policy.minimum_rows}; nothing is said of drift")
    features = tuple(_feature(feature, window, spec) for feature in baseline.features) if window.rows else ()
    stale = _stale_views(window, spec.policy)
    broken = any(figures.finding.kind in BROKEN for figures in features)
    outcome: Outcome = "insufficient" if not enough else "incident" if broken or stale else "checked"
    prediction = _prediction(baseline.prediction, window, spec) if enough else None
    labels = labelled(every, spec.feedback)
    if labels.unknown:
        notes.append(f"{labels.unknown} labels belong to no request of these partitions")
    return CheckReport(
        model=spec.model,
        package_digest=baseline.package_digest,
        reference_digest=spec.reference.digest,
        partitions=tuple(day.isoformat() for day in window.partitions),
        outcome=outcome,
        rows=window.rows,
        score=drifted_share([figures.finding for figures in features]) if outcome == "checked" else None,
        features=features if enough else (),
        prediction=prediction,
        prediction_threshold=_prediction_threshold(baseline, window, spec) if enough else None,
        quality=quality.measure(labels, spec.evaluation, spec.policy, generator(spec.seed, spec.model, "quality")),
        notes=(*notes, *stale),
    )


def _feature(feature: Monitored, window: Window, spec: CheckSpec) -> Figures:
    name = FEATURE + feature.name
    if name not in window.table.column_names:
        return missing(feature)
    return measure(feature, column(window.table, name, feature.kind), len(window.partitions), spec.policy)


def _prediction_threshold(baseline: Baseline, window: Window, spec: CheckSpec) -> float:
    return max(spec.policy.psi_prediction, baseline.prediction.limit(len(window.partitions)).psi)


def _prediction(feature: Monitored, window: Window, spec: CheckSpec) -> Figures:
    return measure(feature, column(window.table, "score", "numeric"), len(window.partitions), spec.policy)


def _stale_views(window: Window, policy: DriftPolicy) -> tuple[str, ...]:
    """The views whose feed was behind for too many requests: the online store stood still, the world has not moved.

    A feed is judged by the youngest row that any request of an hour was served. A single entity without a row says
    nothing: a flight number may be new.
    """
    lines, limit = [], policy.stale_after.total_seconds()
    hour = window.table.column("at").to_numpy().astype("datetime64[h]").astype(np.int64)
    for name in window.table.column_names:
        if name.startswith(AGE) and window.rows:
            share = behind(hour, column(window.table, name, "numeric"), limit)
            if share > policy.stale_share:
                view, hours = name.removeprefix(AGE), policy.stale_after / HOUR
                lines.append(
                    f"view '{view}' had no row younger than {hours:g} h in the hours of {share:.1%} of requests; materialise it again"
                )
    return tuple(lines)


def behind(hour: npt.NDArray[np.int64], age: npt.NDArray[np.float64], limit: float) -> float:
    """The share of rows [B] in hours without any age of at most ``limit`` seconds; NaN is no row at all."""
    hours, place = np.unique(hour, return_inverse=True)
    youngest = np.full(len(hours), np.inf)
    np.minimum.at(youngest, place, np.where(np.isnan(age), np.inf, age))
    return float((youngest > limit)[place].mean())


def _loud(found: CheckReport) -> tuple[Finding, ...]:
    """The findings that are not quiet, heaviest first."""
    findings = [figures.finding for figures in found.features if figures.finding.kind != "ok"]
    return tuple(sorted(findings, key=lambda finding: (finding.kind == "warn", -finding.weight, finding.feature)))


def _evidently(
    spec: CheckSpec, found: CheckReport, baseline: Baseline, frozen: Artifact, window: Window, folder: Path
) -> dict[str, float]:
    """Evidently's report on the worst features, from seeded samples of both sides; returns its PSI per column."""
    policy = spec.policy
    rng = generator(spec.seed, spec.model, window.partitions[-1], "report")
    current = sample(window.table, policy.report_rows, rng)
    reference = sample(pq.read_table(frozen.file("reference.parquet")), policy.report_rows, rng)
    kinds = {feature.name: feature.kind for feature in baseline.features}
    worst = [
        figures
        for figures in sorted(found.features, key=_badness, reverse=True)
        if figures.finding.kind not in {"missing", "empty"}
        and _has_values(current, FEATURE + figures.finding.feature)
        and _has_values(reference, figures.finding.feature)
    ][: policy.report_columns]
    if not worst:
        return {}
    thresholds = {figures.finding.feature: figures.psi_threshold or policy.psi_drift for figures in worst}
    sides = [_side(current, FEATURE, thresholds, kinds), _side(reference, "", thresholds, kinds)]
    return report(sides[0], sides[1], thresholds, folder)


def _badness(figures: Figures) -> tuple[bool, float]:
    return figures.finding.kind in DRIFTED, (figures.psi or 0.0) / (figures.psi_threshold or 1.0)


def _has_values(table: pa.Table, name: str) -> bool:
    return bool(table.column(name).null_count < table.num_rows)


def _side(table: pa.Table, prefix: str, names: Sequence[str] | dict[str, float], kinds: dict[str, Any]) -> Sample:
    columns = {name: column(table, prefix + name, kinds[name]) for name in names}
    return Sample(
        numeric={name: values for name, values in columns.items() if kinds[name] == "numeric"},
        categorical={name: values for name, values in columns.items() if kinds[name] == "categorical"},
    )


if __name__ == "__main__":
    sys.exit(step(check, CheckSpec))
