"""Step: compares a closed window of the prediction log with the live version's reference.

Outcomes: "checked" with figures; "insufficient" when the window is too small even when merged; "incident" when the
feed is broken, which must never start a retrain. A figure that cannot be computed is DataFault, never a pass.
"""

from __future__ import annotations

import sys
from pathlib import Path

from artifacts.step import DataFault, progress, step
from artifacts.store import publish, read_ref
from monitoring.baseline import Baseline
from monitoring.contract import DRIFTED, CheckRef, CheckSpec, DriftPolicy, Finding
from monitoring.drift import distance, report
from monitoring.findings import CheckReport, Figures, binned
from monitoring.measure import Compared, measure_window
from monitoring.page import summary
from monitoring.quality import promoted
from monitoring.windows import labelled, log_window, merged


def check(spec: CheckSpec) -> CheckRef:
    """Publishes one check; raises DataFault when a score is NaN or the artifacts do not belong together."""
    _belong_together(spec)
    baseline = Baseline.model_validate_json(read_ref(spec.reference).file("baseline.json").read_bytes())
    at_promotion = promoted(spec.evaluation)
    progress(0.1, "reading the window of the prediction log")
    every = log_window(spec.predictions, baseline.package_digest, spec.policy.sample_rows, spec.seed)
    window = merged(every, spec.policy)
    progress(0.2, "measuring the distance of every feature")
    found = measure_window(
        Compared(
            baseline=baseline,
            reference=spec.reference.digest,
            window=window,
            labels=labelled(every, spec.feedback, spec.evaluation.task, spec.evaluation.persistence),
            promoted=at_promotion,
            policy=spec.policy,
            seed=spec.seed,
            distance=distance,
        )
    )
    with publish(spec.output, "check") as draft:
        if found.outcome != "insufficient":
            progress(0.4, "writing Evidently's report")
            _evidently(found, baseline, spec.policy, draft.path)
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
        estimate=found.estimate,
        label=found.label.finding if found.label else None,
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


def _loud(found: CheckReport) -> tuple[Finding, ...]:
    """The findings that are not quiet, heaviest first."""
    findings = [figures.finding for figures in found.features if figures.finding.kind != "ok"]
    return tuple(sorted(findings, key=lambda finding: (finding.kind == "warn", -finding.weight, finding.feature)))


def _evidently(found: CheckReport, baseline: Baseline, policy: DriftPolicy, folder: Path) -> None:
    """Evidently's report on the features that are furthest beyond their thresholds; its figures are those of the check."""
    worst = sorted((figures for figures in found.features if figures.bins), key=_badness, reverse=True)
    by_name = {feature.name: feature for feature in baseline.features}
    columns = {
        figures.finding.feature: binned(by_name[figures.finding.feature], figures, policy)
        for figures in worst[: policy.report_columns]
    }
    if columns:
        report(columns, folder)


def _badness(figures: Figures) -> tuple[bool, float]:
    return figures.finding.kind in DRIFTED, (figures.psi or 0.0) / (figures.psi_threshold or 1.0)


if __name__ == "__main__":
    sys.exit(step(check, CheckSpec))
