"""Step: what was served against what the training set says of the same requests.

Both read the same view rows, so the expected share of differing values is zero; it is measured all the same.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pydantic import BaseModel, Field

from artifacts.step import DataFault, step
from artifacts.store import publish, read_ref
from monitoring.drift import nulls
from monitoring.quality import auc
from monitoring.reference import package_scores
from monitoring.skew_contract import SkewRef, SkewSpec
from monitoring.windows import FEATURE, column, log_window
from training.contract import Signature

EXAMPLES = 3


class FeatureSkew(BaseModel, frozen=True, extra="forbid"):
    """How one feature differs between the two sides."""

    feature: str
    share: float = Field(ge=0, le=1)
    examples: tuple[str, ...] = ()


class Skew(BaseModel, frozen=True, extra="forbid"):
    """What ``skew.json`` holds."""

    model: str
    rows: int
    unmatched: int
    mismatch_share: float
    worst_feature: str | None
    worst_share: float
    views: dict[str, float]
    auc_served: float | None
    auc_offline: float | None
    features: tuple[FeatureSkew, ...]


@dataclass(frozen=True)
class Sides:
    """The same requests on both sides, row by row."""

    served: pa.Table
    offline: pa.Table
    unmatched: int


def compare(spec: SkewSpec) -> SkewRef:
    """Publishes the skew of some partitions; raises DataFault when not one request is known to both sides."""
    served = log_window(spec.predictions, spec.package.digest, sys.maxsize, 0).table
    offline = pq.read_table(read_ref(spec.dataset).file("rows.parquet"))
    sides = matched(served, offline)
    if not sides.served.num_rows:
        raise DataFault([
            f"{spec.dataset.uri}: not one of {served.num_rows} requests of package {spec.package.digest} is a row of it; "
            "use a training set that covers the partitions"
        ])
    kinds = input_kinds(spec.package.signature)
    features = tuple(feature_skew(name, kind, sides, spec.relative) for name, kind in kinds.items())
    label = column(sides.offline, "label", "numeric")
    known = ~np.isnan(label) & (spec.dataset.task == "classification")  # a regression has no AUC
    again = package_scores(spec.package, {name: column(sides.offline, name, kind) for name, kind in kinds.items()})
    worst = max(features, key=lambda feature: feature.share)
    result = {
        "model": spec.model,
        "rows": sides.served.num_rows,
        "unmatched": sides.unmatched,
        "mismatch_share": float(np.mean([feature.share for feature in features])),
        "worst_feature": worst.feature if worst.share else None,
        "worst_share": worst.share,
        "views": view_shares(features),
        "auc_served": auc(column(sides.served, "score", "numeric")[known], label[known]),
        "auc_offline": auc(again[known], label[known]),
    }
    with publish(spec.output, "skew") as draft:
        (draft.path / "skew.json").write_text(Skew(**result, features=features).model_dump_json(indent=1))
        draft.facts.update(model=spec.model, mismatch_share=result["mismatch_share"])
    if draft.manifest is None:
        raise AssertionError("a published draft has a manifest")
    return SkewRef(uri=spec.output, digest=draft.manifest.digest, **result)


def input_kinds(signature: Signature) -> dict[str, Literal["numeric", "categorical"]]:
    """The model's inputs and their kinds."""
    return {
        **dict.fromkeys(signature.numeric, "numeric"),
        **dict.fromkeys((item.name for item in signature.categorical), "categorical"),
    }


def matched(served: pa.Table, offline: pa.Table) -> Sides:
    """The rows whose request id is a ``row_id`` of the training set, in the served order."""
    place = pc.index_in(served.column("request_id"), value_set=offline.column("row_id").combine_chunks())
    known = pc.is_valid(place)
    both = served.filter(known)
    return Sides(both, offline.take(place.drop_null()), served.num_rows - both.num_rows)


def feature_skew(name: str, kind: Literal["numeric", "categorical"], sides: Sides, relative: float) -> FeatureSkew:
    """The share of rows in which a feature differs; a column that one side lacks differs everywhere."""
    absent = [
        f"the {side} side has no column '{found}'"
        for side, table, found in (("served", sides.served, FEATURE + name), ("offline", sides.offline, name))
        if found not in table.column_names
    ]
    if absent:
        return FeatureSkew(feature=name, share=1.0, examples=tuple(absent))
    served, offline = column(sides.served, FEATURE + name, kind), column(sides.offline, name, kind)
    differs = ~equal(served, offline, relative)
    requests = sides.served.column("request_id")
    examples = tuple(
        f"{requests[int(row)].as_py()}: served {served[row]!s}, offline {offline[row]!s}"
        for row in np.flatnonzero(differs)[:EXAMPLES]
    )
    return FeatureSkew(feature=name, share=float(differs.mean()), examples=examples)


def view_shares(features: Sequence[FeatureSkew]) -> dict[str, float]:
    """View -> the share of its compared values that differ; what is computed from the request itself is a view too."""
    shares: dict[str, list[float]] = {}
    for feature in features:
        shares.setdefault(feature.feature.partition("__")[0], []).append(feature.share)
    return {view: float(np.mean(found)) for view, found in shares.items()}


def equal(served: npt.NDArray[Any], offline: npt.NDArray[Any], relative: float) -> npt.NDArray[np.bool_]:
    """Row by row: both null, the same text, or numbers that differ by at most ``relative`` of the larger."""
    both = nulls(served) & nulls(offline)
    if served.dtype.kind != "f":
        return np.asarray(both | (served == offline), dtype=bool)
    with np.errstate(invalid="ignore"):
        close = np.abs(served - offline) <= relative * np.maximum(np.abs(served), np.abs(offline))
    return np.asarray(both | close | (served == offline), dtype=bool)


if __name__ == "__main__":
    sys.exit(step(compare, SkewSpec))
