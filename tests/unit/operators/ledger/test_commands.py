from __future__ import annotations

from pathlib import Path

import pytest

from artifacts.records import connect
from artifacts.refs import sha256
from operators.ledger import Ledger, __main__
from operators.ledger.tables import head_table
from operators.settings import Platform


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A database that does not exist yet, in a folder that does not either."""
    value = f"sqlite:///{tmp_path / 'new' / 'perennial.db'}"
    monkeypatch.setattr(__main__, "platform", lambda: Platform(database=value))
    return value


def test_the_commands_migrate_show_and_verify(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert __main__.main(["migrate"]) == 0
    assert __main__.main(["verify"]) == 0
    assert "whole: 0 entries" in capsys.readouterr().out
    book = Ledger(connect(url))
    book.append("gate", "flight_delay", {"verdict": "pass"}, actor="jane")
    book.append("drift", "flight_delay", {"psi": 0.4})
    book.begin_attempt(sha256(b"k"), {"module": "training.train", "task": "fit"})
    assert __main__.main(["show", "--kind", "gate"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert "gate" in line
    assert '{"verdict": "pass"}' in line
    assert __main__.main(["status"]) == 0
    assert "running" in capsys.readouterr().out
    assert __main__.main(["verify"]) == 0
    with connect(url).begin() as connection:
        connection.execute(head_table.update().values(id=9))
    assert __main__.main(["verify"]) == 1
