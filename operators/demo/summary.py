"""What came of the demo: a table for people, ``summary.json`` for programs, and the judgement by the ledger."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from artifacts.store import read_ref
from operators.demo.display import Display
from operators.demo.facts import MODEL, SCRAMBLED
from operators.demo.loop import Loop
from operators.ledger import RETRAIN, Entry
from operators.ledger.lineage import engines
from operators.links import JUDGEMENT_PAGE, page_at
from operators.tasks.release import RELEASE
from operators.tasks.watch import DRIFT
from operators.verdicts import GATE
from operators.versions import Version, versions
from serving.engine_contract import EngineTable

SHOWN_REASONS = 6


def _model(version: Version) -> dict[str, Any]:
    evaluation, final, package = version.evaluation_ref(), version.final_fit_ref(), version.package_ref()
    return {
        "version": version.registered.version,
        "partition": version.registered.partition.isoformat(),
        "rows": final.dataset.rows,
        "logloss": evaluation.candidate.deciding,
        "logloss_base": evaluation.base_rate.deciding,
        "logloss_boosting": evaluation.boosting.deciding,
        "auc": evaluation.candidate.guard,
        "auc_boosting": evaluation.boosting.guard,
        "dataset_digest": package.dataset_digest,
        "model_digest": package.onnx_digest,
        "trigger": version.trigger,
    }


def _decision(kind: str, entry: Entry, verdict: Any, reasons: Any, evidence: Any) -> dict[str, Any]:
    return {
        "at": f"{entry.at:%Y-%m-%dT%H:%M:%SZ}",
        "kind": kind,
        "model": entry.subject,
        "partition": entry.body.get("partition"),
        "verdict": verdict,
        "reasons": reasons,
        "evidence": evidence,
    }


def _gates(body: Mapping[str, Any]) -> str:
    if body.get("needs_approval"):
        return "asks a person"
    return "pass" if body["passed"] else "refused"


def decisions(loop: Loop) -> list[dict[str, Any]]:
    """Every decision of the ledger, in the order in which it was written."""
    rows: list[tuple[int, dict[str, Any]]] = []
    for entry in loop.book.entries(subject=MODEL):
        body = entry.body
        if entry.kind == GATE:
            row = _decision("gates", entry, _gates(body), _against(entry), body["evaluation"])
        elif entry.kind == RELEASE:
            row = {
                **_decision("release", entry, body["outcome"], body["reasons"], body["evidence"]),
                "version": body["version"],
            }
        elif entry.kind == DRIFT:
            answer: Any = body["decision"]
            row = _decision("drift", entry, answer["state"], answer["reasons"], body["evidence"])
        elif entry.kind == RETRAIN:
            row = {
                **_decision("retrain", entry, body["outcome"], body.get("reasons") or [body.get("reason")], None),
                "trigger": body["trigger"],
            }
        else:
            continue
        rows.append((entry.id, row))
    return [row for _, row in sorted(rows, key=lambda pair: pair[0])]


def judge(loop: Loop) -> list[str]:
    """What the ledger does not prove; an empty list means that the demo has shown what it is for."""
    problems = [f"ledger: {problem}" for problem in loop.book.verify()]
    first = loop.facts.released(loop.facts.first())
    if first is None or first.body["outcome"] != "promoted":
        problems.append(f"the first release was not promoted: {first.body['reasons'] if first else 'it has not ended'}")
    decision = loop.facts.drift_decision()
    if decision is None:
        problems.append("no drift was found worth a retrain within the replayed days")
    else:
        problems += _drift_problems(loop, decision)
    scrambled = loop.facts.scrambled_version()
    ending = loop.facts.released(scrambled) if scrambled else None
    if ending is None or ending.body["outcome"] != "refused":
        problems.append(
            f"the scrambled package was not refused: {ending.body if ending else 'its release has not ended'}"
        )
    return problems


def _drift_problems(loop: Loop, decision: Entry) -> list[str]:
    end = loop.facts.retrain_end()
    woken = [run for run in loop.airflow.runs(f"retrain__{MODEL}") if run["run_type"] == "asset_triggered"]
    problems = []
    if end is None or end.body["outcome"] not in ("trained", "refused"):
        problems.append(
            f"decision {decision.id} to retrain did not end with a verdict: {end.body if end else 'it is open'}"
        )
    if not woken:
        problems.append("the second training was not started by the drift event")
    version = loop.facts.drift_version()
    if version is not None and loop.facts.released(version) is None:
        problems.append("the drift retrain's version was not judged")
    return problems


def _models_table(rows: list[dict[str, Any]]) -> Table:
    table = Table(
        title="Model versions, on the test window of their own partition (evaluation fit)", title_justify="left"
    )
    for column in (
        "version",
        "partition",
        "trigger",
        "rows",
        "log loss",
        "base rate",
        "boosting",
        "AUC",
        "AUC boosting",
        "dataset",
        "model SHA-256",
    ):
        table.add_column(column)
    for row in rows:
        table.add_row(
            str(row["version"]), row["partition"], row["trigger"], f"{row['rows']:,}",
            f"{row['logloss']:.4f}", f"{row['logloss_base']:.4f}", f"{row['logloss_boosting']:.4f}", f"{row['auc']:.4f}", f"{row['auc_boosting']:.4f}",
            row["dataset_digest"][7:19], row["model_digest"][7:19],
        )  # fmt: skip
    return table


def _decisions_table(rows: list[dict[str, Any]]) -> Table:
    table = Table(title="Decisions, as the ledger has them", title_justify="left")
    for column in ("data clock", "kind", "partition", "verdict", "reasons"):
        table.add_column(column)
    for row in rows:
        reasons = [str(reason) for reason in row["reasons"] if reason]
        table.add_row(
            row["at"], row["kind"], str(row["partition"]), str(row["verdict"]), "\n".join(reasons[:SHOWN_REASONS])
        )
    return table


def verdicts(loop: Loop) -> list[dict[str, Any]]:
    """Every verdict of every judgement, in the order in which they were written."""
    return [
        {"partition": entry.body["partition"], "training_key": entry.body["training_key"], **verdict}
        for entry in loop.book.entries(GATE, MODEL)
        for verdict in _verdicts(entry)
    ]


def _verdicts(entry: Entry) -> list[dict[str, Any]]:
    found: Any = entry.body["verdicts"]
    return [dict(verdict) for verdict in found]


def _against(entry: Entry) -> list[str]:
    """What the gates had to say besides a pass; each verdict is in a table of its own."""
    found = _verdicts(entry)
    return [f"{each['gate']}: {each['status']}" for each in found if each["status"] != "pass"] or ["every gate holds"]


def _verdicts_table(rows: list[dict[str, Any]]) -> Table:
    table = Table(title="What each gate said, and why", title_justify="left")
    for column in ("partition", "gate", "verdict", "reason"):
        table.add_column(column)
    for row in rows:
        table.add_row(row["partition"], row["gate"], row["status"], Text(row["reason"]))
    return table


def engine_rows(table: EngineTable, version: int) -> list[dict[str, Any]]:
    """Every engine that was tried for a version: whether it proved to be the same model, and its time per call."""
    return [
        {
            "version": version,
            "engine": row.engine,
            "precision": row.precision,
            "status": "chosen" if row.engine == table.chosen else row.status,
            "milliseconds": row.milliseconds,
            "reason": row.reason,
        }
        for row in table.rows
    ]


def _engines_table(rows: list[dict[str, Any]]) -> Table:
    batches = sorted({batch for row in rows for batch in row["milliseconds"]})
    table = Table(title="Engines that were built, proved and timed (one thread)", title_justify="left")
    for column in ("version", "engine", "verdict", *(f"ms at {batch}" for batch in batches), "reason"):
        table.add_column(column)
    for row in rows:
        times = [f"{row['milliseconds'][batch]:.3f}" if batch in row["milliseconds"] else "-" for batch in batches]
        table.add_row(str(row["version"]), row["engine"], row["status"], *times, Text(row["reason"].partition(";")[0]))
    return table


def pages(loop: Loop) -> dict[str, str]:
    """The page of each version's release: its scores, its latency, and the curve of latency over throughput."""
    found = {}
    for entry in loop.book.entries(RELEASE, MODEL):
        uri = entry.body.get("evidence_uri")
        if isinstance(uri, str):
            found[f"release of version {entry.body['version']}, {entry.body['outcome']}"] = page_at(uri, JUDGEMENT_PAGE)
    return found


def summarise(loop: Loop, display: Display, state: Path, peak_mib: int, seconds: float) -> bool:
    """Prints the summary, writes ``demo/summary.json`` and returns whether the ledger proves all three endings."""
    trained = [version for version in versions(loop.book, MODEL) if version.trigger != SCRAMBLED]
    models = [_model(version) for version in trained]
    tried = [
        row
        for version in trained
        for row in engine_rows(engines(read_ref(version.package_ref())), version.registered.version)
    ]
    made, said, seen = decisions(loop), verdicts(loop), pages(loop)
    problems = judge(loop)
    skew = loop.skewed
    summary = {
        "models": models,
        "decisions": made,
        "verdicts": said,
        "engines": tried,
        "pages": seen,
        "durations": display.durations,
        "reused": display.reused,
        "served": skew.model_dump(mode="json") if skew else None,
        "problems": problems,
        "peak_pss_mib": peak_mib,
        "seconds": seconds,
    }
    path = state / "demo" / "summary.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(summary, indent=1))
    console = display.console
    console.print(_models_table(models))
    console.print(_verdicts_table(said))
    console.print(_engines_table(tried))
    console.print(_decisions_table(made))
    for what, page in seen.items():
        console.print(f"Page of the {what}: {page}", markup=False, highlight=False, soft_wrap=True)
    console.print("Seconds per stage: " + ", ".join(f"{name} {value:.0f}" for name, value in display.durations.items()))
    if skew and skew.auc_served is not None and skew.auc_offline is not None:
        console.print(
            f"Served against offline, {skew.rows} requests: AUC {skew.auc_served:.4f} and {skew.auc_offline:.4f}, "
            f"{skew.mismatch_share:.4%} of the values differ"
        )
    console.print(
        f"{seconds:.0f} s in all, peak memory {peak_mib / 1024:.1f} GiB (PSS); the same facts are in {path}",
        soft_wrap=True,
    )
    for problem in problems:
        console.print(f"NOT SHOWN: {problem}", style="bold red", markup=False)
    return not problems
