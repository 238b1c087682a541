"""The demo's summary shows what every gate said, from the ledger."""

from __future__ import annotations

from types import SimpleNamespace

from rich.console import Console

from operators.demo import summary
from operators.demo.facts import MODEL
from operators.verdicts import GATE
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
