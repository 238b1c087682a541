"""How long one drift check takes, from the start of its process to its published artifact with Evidently's report.

A quarter of a year of reference days and one partition of the log are written as artifacts; then the step runs as the
control plane runs it.
"""

from __future__ import annotations

import datetime as dt
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from artifacts.refs import Digest, Uri, file_uri, join, sha256
from artifacts.store import publish
from benchmarks.report import parser, report
from monitoring.baseline import LABEL, PREDICTION, Baseline
from monitoring.contract import CheckRef, CheckSpec, DriftPolicy, ReferenceRef
from monitoring.reference import monitor
from monitoring.windows import FEATURE
from serving.contract import FeedbackRef, PredictionsRef
from training.contract import EvaluationRef
from training.measures import Scores

MODEL, LIVE, SEED = "benchmark", sha256(b"live"), 7
LAST = dt.date(2013, 8, 31)
WORDS = np.array(["AA", "B6", "DL", "EV", "UA"], dtype=object)
CATEGORICAL = 4  # of the columns
TARGETS = {"seconds_50k": "< 20", "seconds_1m": "< 60"}
ONE = dt.timedelta(days=1)


def columns(rows: int, number: int, seed: int) -> dict[str, np.ndarray]:
    """``number`` columns of a world without drift, the last four of them words."""
    rng = np.random.default_rng(seed)
    names = [f"origin__x{place:02d}" for place in range(number)]
    return {
        name: rng.choice(WORDS, rows) if place >= number - CATEGORICAL else rng.normal(size=rows)
        for place, name in enumerate(names)
    }


def _publish(uri: Uri, kind: str, **files: bytes | pa.Table) -> Digest:
    with publish(uri, kind) as draft:
        for name, content in files.items():
            path = draft.path / name.replace("__", ".")
            path.write_bytes(content) if isinstance(content, bytes) else pq.write_table(content, path)
    if draft.manifest is None:
        raise AssertionError("a published draft has a manifest")
    return draft.manifest.digest


def reference(root: Uri, number: int, days: int, per_day: int) -> ReferenceRef:
    """The reference of a live version, calibrated on its own days."""
    day, policy = np.repeat(np.arange(days), per_day), DriftPolicy()
    rng = np.random.default_rng(SEED)
    found = columns(days * per_day, number, SEED)
    label = rng.choice(np.array(["0", "1"], dtype=object), len(day), p=[0.75, 0.25])
    baseline = Baseline(
        model=MODEL,
        package_digest=LIVE,
        dataset_digest=LIVE,
        first=LAST - (days - 1) * ONE,
        last=LAST,
        rows=len(day),
        blocks=days,
        features=tuple(
            monitor(name, "numeric" if values.dtype.kind == "f" else "categorical", 1 / number, values, day, policy)
            for name, values in found.items()
        ),
        prediction=monitor(PREDICTION, "numeric", 0.0, rng.beta(2, 6, len(day)), day, policy),
        label=monitor(LABEL, "categorical", 0.0, label, day, policy),
    )
    uri = join(root, "reference")
    digest = _publish(uri, "reference", baseline__json=baseline.model_dump_json().encode())
    return ReferenceRef(
        uri=uri,
        digest=digest,
        model=MODEL,
        package_digest=LIVE,
        rows=len(day),
        blocks=days,
        first=baseline.first,
        last=LAST,
    )


def logged(root: Uri, rows: int, number: int) -> tuple[PredictionsRef, FeedbackRef]:
    """One partition of the log and all its labels."""
    day, rng = LAST + ONE, np.random.default_rng(SEED + 1)
    at = dt.datetime.combine(day, dt.time(16), dt.UTC)
    ids = pa.array([f"request {row}" for row in range(rows)])
    scores = rng.beta(2, 6, rows)
    log = pa.table({
        "request_id": ids,
        "at": pa.array(np.full(rows, np.datetime64(at.replace(tzinfo=None), "us")), pa.timestamp("us", "UTC")),
        "package_digest": pa.DictionaryArray.from_arrays(np.zeros(rows, dtype=np.int32), [LIVE]).cast(pa.string()),
        "score": scores,
        **{FEATURE + name: pa.array(values) for name, values in columns(rows, number, SEED + 2).items()},
        "age__origin": np.full(rows, 60.0),
    })
    labels = pa.table({
        "request_id": ids,
        "label": pa.array((rng.random(rows) < scores).astype(np.int8)),
        "known_at": log.column("at"),
    })
    uris = join(root, "predictions"), join(root, "feedback")
    digests = (
        _publish(uris[0], "predictions", predictions__parquet=log),
        _publish(uris[1], "feedback", feedback__parquet=labels),
    )
    fields = {"model": MODEL, "partition": day, "rows": rows}
    return (
        PredictionsRef.model_validate({"uri": uris[0], "digest": digests[0], **fields}),
        FeedbackRef.model_validate({"uri": uris[1], "digest": digests[1], **fields}),
    )


def evaluation(root: Uri) -> EvaluationRef:
    """What the version was worth at promotion."""
    uri, scores = join(root, "evaluation"), Scores(log_loss=0.52, auc=0.7, pr_auc=0.5, brier=0.17, ece=0.01)
    return EvaluationRef(
        uri=uri,
        digest=_publish(uri, "evaluation", evaluation__json=b"{}"),
        model=MODEL,
        training_key=LIVE,
        test_first=LAST - 13 * ONE,
        test_last=LAST,
        rows=13_000,
        positives=3_250,
        candidate=scores,
        final=scores,
        base_rate=scores,
        boosting=scores,
    )


def seconds(rows: int, number: int, per_day: int = 950, days: int = 90) -> float:
    """How long the check of ``rows`` requests with ``number`` features takes, with its process and its report."""
    with tempfile.TemporaryDirectory(prefix="perennial-drift-check-") as folder:
        root = file_uri(Path(folder))
        predictions, feedback = logged(root, rows, number)
        spec = CheckSpec(
            model=MODEL,
            reference=reference(root, number, days, per_day),
            predictions=(predictions,),
            feedback=(feedback,),
            evaluation=evaluation(root),
            policy=DriftPolicy(),
            seed=SEED,
            output=join(root, "check"),
        )
        asked, answer = Path(folder) / "spec.json", Path(folder) / "result.json"
        asked.write_text(spec.model_dump_json())
        began = time.monotonic()
        command = [sys.executable, "-m", "monitoring.check", file_uri(asked), file_uri(answer)]
        subprocess.run(command, check=True)  # noqa: S603  our own step
        took = time.monotonic() - began
        found = CheckRef.model_validate_json(answer.read_text())
        if found.outcome != "checked" or found.rows != min(rows, DriftPolicy().sample_rows):
            raise AssertionError(f"the check of {rows} rows says '{found.outcome}' on {found.rows}")
    return took


def main() -> None:
    """The two sizes of the issue, and the reference model's width."""
    asked = parser("drift_check").parse_args()
    figures = {
        "seconds_50k": seconds(50_000, 30),
        "seconds_1m": seconds(1_000_000, 30),
        "seconds_day_101": seconds(950, 101),
        "seconds_50k_101": seconds(50_000, 101),
    }
    report("drift_check", figures, TARGETS, asked)


if __name__ == "__main__":
    main()
