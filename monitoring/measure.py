"""Everything that is measured of one window of the prediction log: features, prediction, labels, quality. No files.

The check step and the simulations of ``benchmarks/drift_policy.py`` measure by the same code.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from artifacts.refs import Digest
from artifacts.step import DataFault
from monitoring import quality
from monitoring.baseline import Baseline, Monitored
from monitoring.contract import BROKEN, DriftPolicy
from monitoring.drift import Distance, psi
from monitoring.findings import CheckReport, Figures, Outcome, changed_type, measure, missing
from monitoring.share import drifted_share
from monitoring.windows import AGE, FEATURE, Labelled, Window, column, generator

HOUR = dt.timedelta(hours=1)


@dataclass(frozen=True)
class Compared:
    """A window, its labels (of all given partitions), and what it is held against.

    ``distance`` is Evidently's in a check; the default gives the same figures without its import.
    """

    baseline: Baseline
    reference: Digest
    window: Window
    labels: Labelled
    promoted: quality.Promoted
    policy: DriftPolicy
    seed: int = 0
    distance: Distance = psi


def measure_window(given: Compared) -> CheckReport:
    """All figures of a window, with the outcome that follows; DataFault when a score is no number."""
    baseline, window, policy = given.baseline, given.window, given.policy
    notes = [*window.notes]
    if len(window.partitions) > 1:
        notes.append(f"{len(window.partitions)} partitions merged to reach {window.rows} rows")
    enough = window.rows >= policy.minimum_rows
    if not enough:
        notes.append(f"{window.rows} rows, a check needs {policy.minimum_rows}; nothing is said of drift")
    features = tuple(_feature(feature, given) for feature in baseline.features) if enough else ()
    notes += _new_columns(given) if enough else []
    troubles = (*_stale_views(window, policy), *_clock_went_back(window, policy.stale_share))
    broken = any(figures.finding.kind in BROKEN for figures in features)
    outcome: Outcome = "insufficient" if not enough else "incident" if broken or troubles else "checked"
    scores = column(window.table, "score", "numeric")
    labels, partial = quality.enough(given.labels, policy)
    notes += _label_notes(given, partial)
    rng = generator(given.seed, baseline.model, "quality")
    return CheckReport(
        model=baseline.model,
        package_digest=baseline.package_digest,
        reference_digest=given.reference,
        partitions=tuple(day.isoformat() for day in window.partitions),
        outcome=outcome,
        rows=window.rows,
        score=drifted_share([figures.finding for figures in features]) if outcome == "checked" else None,
        features=features,
        prediction=_measured(baseline.prediction, scores, given) if enough else None,
        prediction_threshold=_prediction_threshold(given) if enough else None,
        label=_label(labels, given),
        quality=quality.measure(labels, given.promoted, policy, rng),
        estimate=quality.estimate(scores) if enough and labels.task == "classification" else None,
        notes=(*notes, *troubles),
    )


def _feature(feature: Monitored, given: Compared) -> Figures:
    name = FEATURE + feature.name
    if name not in given.window.table.column_names:
        return missing(feature)
    try:
        values = column(given.window.table, name, feature.kind)
    except DataFault:
        return changed_type(feature, str(given.window.table.schema.field(name).type))
    return _measured(feature, values, given)


def _measured(feature: Monitored, values: np.ndarray, given: Compared) -> Figures:
    return measure(feature, values, given.window.partitions, given.policy, given.distance)


def _prediction_threshold(given: Compared) -> float:
    return max(given.policy.psi_prediction, given.baseline.prediction.limit(len(given.window.partitions)).psi)


def _label(labels: Labelled, given: Compared) -> Figures | None:
    """Label drift of the labelled days; None while they are too few. A finding only: skill is held against the base rate."""
    if len(labels.label) < given.policy.minimum_labels:
        return None
    known = labels.label
    if given.baseline.label.kind == "categorical":
        known = np.where(known > 0, "1", "0").astype(object)
    days = [labels.partitions[number] for number in np.unique(labels.day)]
    return measure(given.baseline.label, known, days, given.policy, given.distance)


def _label_notes(given: Compared, partial: int) -> list[str]:
    notes = []
    if given.labels.unknown:
        notes.append(f"{given.labels.unknown} labels belong to no request of these partitions")
    if partial:
        share = given.policy.minimum_coverage
        notes.append(
            f"{partial} days have labels for less than {share:.0%} of their requests and are left out of quality"
        )
    return notes


def _new_columns(given: Compared) -> list[str]:
    known = {FEATURE + feature.name for feature in given.baseline.features}
    new = sorted(name for name in given.window.table.column_names if name.startswith(FEATURE) and name not in known)
    return [f"the log has features that the reference lacks, which are not judged: {', '.join(new)}"] if new else []


def _ages(window: Window) -> list[tuple[str, pa.ChunkedArray]]:
    names = [name for name in window.table.column_names if name.startswith(AGE)]
    return [(name.removeprefix(AGE), window.table.column(name)) for name in names] if window.rows else []


def _stale_views(window: Window, policy: DriftPolicy) -> tuple[str, ...]:
    """The views whose feed was behind for too many requests: the online store stood still, the world has not moved.

    A feed is judged by the youngest row that any request of an hour was served. A single entity without a row says
    nothing: a flight number may be new.
    """
    views = _ages(window)
    if not views:
        return ()
    hour = window.table.column("at").to_numpy().astype("datetime64[h]").astype(np.int64)
    limit = policy.stale_after.total_seconds()
    found = ((view, behind(hour, column(window.table, AGE + view, "numeric"), limit)) for view, _ in views)
    return tuple(
        f"view '{view}' had no row younger than {policy.stale_after / HOUR:g} h in the hours of {share:.1%} of requests; "
        "materialise it again"
        for view, share in found
        if share > policy.stale_share
    )


def behind(hour: npt.NDArray[np.int64], age: npt.NDArray[np.float64], limit: float) -> float:
    """The share of rows [B] in hours without any age of at most ``limit`` seconds; NaN is no row at all."""
    hours, place = np.unique(hour, return_inverse=True)
    youngest = np.full(len(hours), np.inf)
    np.minimum.at(youngest, place, np.where(np.isnan(age), np.inf, age))
    return float((youngest > limit)[place].mean())


def _clock_went_back(window: Window, limit: float) -> tuple[str, ...]:
    """The views whose rows are from after the request for too many requests: features would come from the future."""
    found = ((view, (pc.sum(pc.less(ages, 0)).as_py() or 0) / window.rows) for view, ages in _ages(window))
    return tuple(
        f"view '{view}' is younger than the request in {share:.1%} of requests; a clock has gone back, mend it"
        for view, share in found
        if share > limit
    )
