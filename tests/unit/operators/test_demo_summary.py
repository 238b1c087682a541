"""The demo's summary shows what every gate said, from the ledger."""

from __future__ import annotations

from types import SimpleNamespace

from rich.console import Console

from operators.demo import summary
from operators.demo.facts import MODEL
from operators.verdicts import GATE
from serving.engine_contract import EngineRow, EngineTable
from tests.make import gates
from tests.make import operators as make
from training.contract import GatePolicy
from training.gate import GATES, verdicts

POLICY = GatePolicy()


def test_every_verdict_has_a_row_with_its_reason(tmp_path):
    book = make.ledger(tmp_path)
    first = gates.gate_evidence(evaluation=gates.first_evaluation(), champion_partition=None)
    for evidence, passed in ((first, True), (gates.gate_evidence(champion_partition=None), False)):
        found = [verdict.model_dump(mode="json") for verdict in verdicts(evidence, POLICY)]
        body = {"partition": "2013-08-31", "training_key": gates.KEY, "passed": passed, "verdicts": found}
        book.append(GATE, MODEL, {**body, "evaluation": gates.evaluation_ref().digest, "reasons": []})
    loop = SimpleNamespace(book=book)
    rows = summary.verdicts(loop)
    assert [row["gate"] for row in rows] == [*GATES, *GATES]
    console = Console(record=True, width=200)
    console.print(summary._verdicts_table(rows))
    text = console.export_text()
    assert "there is a champion, but it was not compared on this window" in text
    assert "first model: there is no champion to compare with" in text
    kept, refused = summary.decisions(loop)
    assert kept["reasons"] == ["G4 champion: skipped"]
    assert (refused["verdict"], refused["reasons"]) == ("refused", ["G4 champion: fail"])


def test_the_table_of_engines_says_which_was_chosen_and_why_others_were_not():
    rows = (
        EngineRow(
            engine="onnxruntime", precision="fp32", status="passed", reason="same", milliseconds={1: 0.02, 256: 0.3}
        ),
        EngineRow(
            engine="openvino", precision="fp32", status="passed", reason="same", milliseconds={1: 0.06, 256: 0.4}
        ),
        EngineRow(engine="tensorrt", precision="fp32", status="not built", reason="there is no GPU; more words"),
    )
    found = summary.engine_rows(EngineTable(chosen="onnxruntime", reason="the fastest", rows=rows), 3)
    assert [row["status"] for row in found] == ["chosen", "passed", "not built"]
    console = Console(record=True, width=160)
    console.print(summary._engines_table(found))
    text = console.export_text()
    assert "ms at 256" in text
    assert "0.020" in text
    assert "there is no GPU" in text
    assert "more words" not in text, "the whole reason is in summary.json"
