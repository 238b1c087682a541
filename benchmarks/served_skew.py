"""What the gateway served on the ten days after the first model, against the offline join at each request's own instant.

Reads the state that ``make demo`` has left (``PERENNIAL_STATE``), joins the same requests anew and compares them by
``monitoring.skew``, for each package that answered: values by value, and the AUC of the logged scores beside the AUC that
the same package has on the offline features.
"""

from __future__ import annotations

import pyarrow.compute as pc
import pyarrow.parquet as pq

from artifacts.refs import Digest
from artifacts.store import read_ref
from benchmarks.report import report
from benchmarks.ten_days import DAY, done, later_rows
from feature_repo.contract import DatasetRef
from monitoring.skew_contract import SkewRef, SkewSpec
from operators.calls import watch as calls
from operators.demo.facts import FIRST_PARTITION, MODEL
from operators.demo.loop import DAYS
from operators.ledger import ledger
from operators.pipelines import pipeline
from operators.plans.watch import logged
from operators.settings import platform
from operators.steps import PENDING
from operators.versions import by_package
from serving.contract import PackageRef, PredictionsRef

TARGETS = {"mismatch": "<= 0.001", "served_auc_gap": "<= 0.005"}


def answered_by(log: tuple[PredictionsRef, ...]) -> dict[Digest, tuple[PredictionsRef, ...]]:
    """Package -> the partitions in which it answered."""
    found: dict[Digest, tuple[PredictionsRef, ...]] = {}
    for ref in log:
        column = pq.read_table(read_ref(ref).file("predictions.parquet"), columns=["package_digest"])["package_digest"]
        for digest in sorted(pc.unique(column).to_pylist()):
            found[digest] = (*found.get(digest, ()), ref)
    return found


def skew(package: PackageRef, log: tuple[PredictionsRef, ...], dataset: DatasetRef) -> SkewRef:
    """The skew of one package."""
    spec = SkewSpec(model=MODEL, package=package, predictions=log, dataset=dataset, output=PENDING)
    return SkewRef.model_validate(done(calls.skew(pipeline(MODEL), spec)))


def figures(found: list[SkewRef]) -> dict[str, float]:
    """Shares over all packages, weighted by rows; the largest gap in AUC of any package with both labels. Pure."""
    rows = sum(one.rows for one in found)
    gaps = [
        abs(one.auc_served - one.auc_offline)
        for one in found
        if one.auc_served is not None and one.auc_offline is not None
    ]
    views = sorted({view for one in found for view in one.views})
    return {
        "rows": float(rows),
        "unmatched": float(sum(one.unmatched for one in found)),
        "mismatch": sum(one.mismatch_share * one.rows for one in found) / rows,
        "served_auc_gap": max(gaps, default=float("nan")),
        **{f"mismatch_{view}": sum(one.views.get(view, 0.0) * one.rows for one in found) / rows for view in views},
    }


def main() -> None:
    """Compares every logged answer of the ten days."""
    last = FIRST_PARTITION + DAYS * DAY
    log = tuple(ref for ref in logged(pipeline(MODEL), platform().store) if FIRST_PARTITION < ref.partition <= last)
    dataset = later_rows(last)
    found = [
        skew(by_package(ledger(), MODEL, digest).package_ref(), partitions, dataset)
        for digest, partitions in answered_by(log).items()
    ]
    report("served_skew", figures(found), TARGETS)


if __name__ == "__main__":
    main()
