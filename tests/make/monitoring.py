"""Builders for monitoring: a synthetic stream with seasons and storms, and the artifacts that a check reads."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pyarrow as pa
import pyarrow.parquet as pq
from onnx import TensorProto, helper

from artifacts.refs import Digest, Uri, file_digest, file_uri, join, sha256
from artifacts.store import publish
from feature_repo.contract import DatasetRef
from monitoring.contract import CheckRef, CheckRow, CheckSpec, DriftPolicy, ReferenceRef, ReferenceSpec, RetrainRow
from monitoring.reference import freeze
from serving.contract import FeedbackRef, PackageRef, PredictionsRef, RequestInput, Serving
from training.contract import (
    CategoricalInput,
    Columns,
    EvaluationRef,
    FitRef,
    Network,
    Signature,
    Verdict,
)
from training.measures import Scores

MODEL = "flight_delay"
LIVE = sha256(b"live")
FIRST = dt.date(2013, 6, 3)
LAST = dt.date(2013, 8, 31)
DAY = dt.timedelta(days=1)
NUMERIC = ("weather__temp", "origin__departure_delay_mean_3h", "origin__late_share_1d", "flight__distance")
CATEGORICAL = ("flight__carrier",)
CARRIERS = ("AA", "B6", "DL", "EV", "UA", "ZZ")
MIX = (0.1, 0.2, 0.2, 0.2, 0.297, 0.003)
IMPORTANCE = {
    "weather__temp": 0.2,
    "origin__departure_delay_mean_3h": 0.4,
    "origin__late_share_1d": 0.2,
    "flight__distance": 0.1,
    "flight__carrier": 0.1,
}


def noon(day: dt.date) -> dt.datetime:
    return dt.datetime.combine(day, dt.time(16), dt.UTC)


# --- the stream ---------------------------------------------------------------------------------------------------


def stream(days: int, rows: int, seed: int = 1) -> list[dict[str, Any]]:
    """Columns per day: a season in the temperature, days of their own level (storms that last), rows around it."""
    rng = np.random.default_rng(seed)
    level, made = 0.0, []
    for number in range(days):
        level = 0.6 * level + rng.normal()
        late = np.clip(0.25 + 0.05 * level + rng.normal(0, 0.02, rows), 0, 1)
        delay = 10 + 4 * level + rng.normal(0, 3, rows)
        made.append({
            "weather__temp": 70 + 12 * np.sin(number / 58) + 3 * level + rng.normal(0, 2, rows),
            "origin__departure_delay_mean_3h": delay,
            "origin__late_share_1d": late,
            "flight__distance": rng.gamma(3, 300, rows),
            "flight__carrier": rng.choice(CARRIERS, rows, p=MIX).astype(object),
            "label": (rng.random(rows) < 1 / (1 + np.exp(-model_logit(delay)))).astype(int),
        })
    return made


def model_logit(delay: Any) -> Any:
    """What the built package's graph computes: the reference model's truth."""
    return 0.15 * np.nan_to_num(np.asarray(delay, dtype=float)) - 2.5


def score(columns: Mapping[str, Any]) -> np.ndarray:
    return 1 / (1 + np.exp(-model_logit(columns["origin__departure_delay_mean_3h"])))


# --- artifacts ----------------------------------------------------------------------------------------------------


def _published(uri: Uri, kind: str, name: str, table: pa.Table) -> Digest:
    with publish(uri, kind) as draft:
        pq.write_table(table, draft.path / name, compression="zstd", store_schema=False)
    assert draft.manifest is not None
    return draft.manifest.digest


def dataset(root: Uri, days: Sequence[Mapping[str, Any]], first: dt.date = FIRST) -> DatasetRef:
    rows = [len(day["label"]) for day in days]
    date = [first + number * DAY for number, size in enumerate(rows) for _ in range(size)]
    names = (*NUMERIC, *CATEGORICAL, "label")
    table = pa.table({
        "row_id": pa.array([
            f"{day}-{number}" for day, size in zip(_days(first, len(rows)), rows, strict=True) for number in range(size)
        ]),
        "day": pa.array(date, pa.date32()),
        "at": pa.array([noon(day) for day in date], pa.timestamp("us", "UTC")),
        **{name: _array(np.concatenate([day[name] for day in days])) for name in names},
    })
    uri = join(root, "dataset")
    return DatasetRef(
        uri=uri,
        digest=_published(uri, "dataset", "rows.parquet", table),
        key=sha256(b"dataset"),
        model=MODEL,
        partition=first + len(days) * DAY,
        as_of=noon(first + (len(days) + 1) * DAY),
        rows=table.num_rows,
        positives=int(sum(day["label"].sum() for day in days)),
        first=first,
        last=first + (len(days) - 1) * DAY,
        columns=tuple(table.column_names),
    )


def _days(first: dt.date, number: int) -> list[dt.date]:
    return [first + place * DAY for place in range(number)]


def _array(values: Any) -> pa.Array:
    return pa.array(list(values)) if values.dtype.kind == "O" else pa.array(values, from_pandas=True)


def signature() -> Signature:
    words = tuple(sorted(CARRIERS))
    return Signature(numeric=NUMERIC, categorical=(CategoricalInput(name=CATEGORICAL[0], vocabulary=words),))


def package(root: Uri) -> PackageRef:
    """A real ONNX graph whose score is ``model_logit`` of the delay."""
    uri = join(root, "package")
    with publish(uri, "package") as draft:
        _write_graph(draft.path / "model.onnx")
        onnx_digest = file_digest(draft.path / "model.onnx")
    assert draft.manifest is not None
    return PackageRef(
        uri=uri,
        digest=draft.manifest.digest,
        model=MODEL,
        training_key=sha256(b"training"),
        partition=LAST,
        onnx_digest=onnx_digest,
        dataset_digest=sha256(b"dataset"),
        signature=signature(),
        serving=Serving(
            request=(RequestInput(name="carrier", datatype="BYTES"),),
            request_view="flight",
            routing_key="carrier",
        ),
        parity=Verdict(gate="G7 parity", status="pass", reason="equal"),
    )


def _write_graph(path: Path) -> None:
    weights = np.zeros((len(NUMERIC), 1), np.float32)
    weights[NUMERIC.index("origin__departure_delay_mean_3h")] = 0.15
    tensor = partial(helper.make_tensor, data_type=TensorProto.FLOAT)
    nodes = [
        helper.make_node("IsNaN", ["numeric"], ["null"]),
        helper.make_node("Where", ["null", "zero", "numeric"], ["known"]),
        helper.make_node("MatMul", ["known", "weights"], ["product"]),
        helper.make_node("Add", ["product", "bias"], ["logit"]),
        helper.make_node("Sigmoid", ["logit"], ["score"]),
    ]
    graph = helper.make_graph(
        nodes,
        "delay",
        [
            helper.make_tensor_value_info("numeric", TensorProto.FLOAT, ["batch", len(NUMERIC)]),
            helper.make_tensor_value_info("categorical", TensorProto.INT64, ["batch", len(CATEGORICAL)]),
        ],
        [helper.make_tensor_value_info("score", TensorProto.FLOAT, ["batch", 1])],
        [
            tensor(name="zero", dims=[1], vals=[0.0]),
            tensor(name="weights", dims=weights.shape, vals=weights.ravel().tolist()),
            tensor(name="bias", dims=[1], vals=[-2.5]),
        ],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), path)


def evaluation(
    root: Uri, importance: Mapping[str, float] | None = None, days: Sequence[Mapping[str, Any]] = (), **changes: Any
) -> EvaluationRef:
    uri = join(root, "evaluation")
    with publish(uri, "evaluation") as draft:
        (draft.path / "evaluation.json").write_text(
            json.dumps({"importance": importance or IMPORTANCE, "days": list(days)})
        )
    assert draft.manifest is not None
    good = Scores(log_loss=0.45, auc=0.75, pr_auc=0.5, brier=0.15, ece=0.02)
    fields: dict[str, Any] = {
        "uri": uri,
        "digest": draft.manifest.digest,
        "model": MODEL,
        "training_key": sha256(b"training"),
        "test_first": LAST - 13 * DAY,
        "test_last": LAST,
        "rows": 13_000,
        "positives": 3_600,
        "candidate": good,
        "final": good,
        "base_rate": good,
        "boosting": good,
    }
    return EvaluationRef.model_validate({**fields, **changes})


def final_fit(data: DatasetRef, **changes: Any) -> FitRef:
    fields: dict[str, Any] = {
        "uri": "file:///store/final",
        "digest": sha256(b"final"),
        "training_key": sha256(b"training"),
        "model": MODEL,
        "fit": "final",
        "dataset": data,
        "columns": Columns(numeric=NUMERIC, categorical=CATEGORICAL),
        "network": Network(),
        "seed": 1,
        "epochs": 3,
        "rows": data.rows,
        "train_last": data.last,
        "seen_last": data.last,
        "loss_first": 0.6,
        "loss_last": 0.45,
        "grad_norm_max": 3.0,
        "base_rate": 0.25,
        "seconds": 10.0,
    }
    return FitRef.model_validate({**fields, **changes})


def reference_spec(root: Path, days: int = 90, rows: int = 600, **changes: Any) -> ReferenceSpec:
    uri = file_uri(root)
    data = dataset(uri, stream(days, rows))
    fields: dict[str, Any] = {
        "model": MODEL,
        "package": package(uri),
        "final": final_fit(data),
        "evaluation": evaluation(uri),
        "policy": DriftPolicy(),
        "seed": 1,
        "output": join(uri, "reference"),
    }
    return ReferenceSpec.model_validate({**fields, **changes})


def reference(root: Path, **changes: Any) -> tuple[ReferenceSpec, ReferenceRef]:
    spec = reference_spec(root, **changes)
    return spec, freeze(spec)


def predictions(
    root: Uri, day: dt.date, columns: Mapping[str, Any], live: Digest, drop: Sequence[str] = (), **extra: Any
) -> PredictionsRef:
    """One partition of the log; ``extra`` replaces or adds columns."""
    features = {f"feature__{name}": _array(columns[name]) for name in (*NUMERIC, *CATEGORICAL)}
    rows = len(columns[NUMERIC[0]])
    fields: dict[str, Any] = {
        "request_id": [f"{day}-{number}" for number in range(rows)],
        "at": pa.array([noon(day)] * rows, pa.timestamp("us", "UTC")),
        "partition": pa.array([day] * rows, pa.date32()),
        "version": [1] * rows,
        "name": [f"{MODEL}_v1"] * rows,
        "package_digest": pa.array([live] * rows, pa.string()),
        "score": score(columns),
        **features,
        "age__origin": [60.0] * rows,
        **extra,
    }
    table = pa.table({name: values for name, values in fields.items() if name not in drop})
    uri = join(root, "predictions", day.isoformat())
    return PredictionsRef(
        uri=uri,
        digest=_published(uri, "predictions", "predictions.parquet", table),
        model=MODEL,
        partition=day,
        rows=table.num_rows,
    )


def feedback(root: Uri, day: dt.date, labels: Mapping[str, int]) -> FeedbackRef:
    table = pa.table({
        "request_id": pa.array(list(labels), pa.string()),
        "label": pa.array(list(labels.values()), pa.int8()),
        "known_at": pa.array([noon(day + DAY)] * len(labels), pa.timestamp("us", "UTC")),
    })
    uri = join(root, "feedback", day.isoformat())
    digest = _published(uri, "feedback", "feedback.parquet", table)
    return FeedbackRef(uri=uri, digest=digest, model=MODEL, partition=day, rows=len(labels))


def check_spec(
    frozen: tuple[ReferenceSpec, ReferenceRef], logged: Sequence[PredictionsRef], root: Uri, **changes: Any
) -> CheckSpec:
    spec, ref = frozen
    fields: dict[str, Any] = {
        "model": MODEL,
        "reference": ref,
        "predictions": tuple(logged),
        "evaluation": spec.evaluation,
        "policy": spec.policy,
        "seed": 1,
        "output": join(root, "checks", logged[-1].partition.isoformat()),
    }
    return CheckSpec.model_validate({**fields, **changes})


# --- what the policy looks at -------------------------------------------------------------------------------------


def check_ref(score: float | None = 0.1, **changes: Any) -> CheckRef:
    fields: dict[str, Any] = {
        "uri": "file:///store/check",
        "digest": sha256(b"check"),
        "model": MODEL,
        "partition": LAST,
        "outcome": "checked",
        "rows": 900,
        "score": score,
        "prediction_psi": 0.05,
        "prediction_threshold": 0.2,
        "findings": (),
        "quality": None,
        "package_digest": LIVE,
        "reference_digest": sha256(b"reference"),
    }
    return CheckRef.model_validate({**fields, **changes})


def check_row(number: int, score: float | None = 0.1, **changes: Any) -> CheckRow:
    """The check of day ``number``; a hit when its score reaches 0.30."""
    fields: dict[str, Any] = {
        "partition": LAST + number * DAY,
        "package_digest": LIVE,
        "outcome": "checked",
        "hit": score is not None and score >= 0.30,
        "score": score,
        "reasons": (f"score {score}",),
    }
    return CheckRow.model_validate({**fields, **changes})


def retrain_row(decided: dt.datetime, **changes: Any) -> RetrainRow:
    fields: dict[str, Any] = {"decided_at": decided, "ended_at": decided + dt.timedelta(hours=1), "promoted": True}
    return RetrainRow.model_validate({**fields, **changes})
