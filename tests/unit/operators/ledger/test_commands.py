from __future__ import annotations

import datetime as dt
import html
from pathlib import Path
from xml.etree import ElementTree

import pytest

from artifacts.records import connect
from artifacts.refs import sha256
from operators.jobs import accounts, hardware, metering
from operators.jobs.history import History
from operators.jobs.keeper import UTILISATION
from operators.ledger import Ledger, __main__
from operators.ledger.tables import head_table
from operators.settings import Platform
from tests.make.jobs import gpu_job

NOON = dt.datetime(2013, 9, 1, 12, tzinfo=dt.UTC)


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
    assert __main__.main(["steps"]) == 0
    assert "running" in capsys.readouterr().out
    assert __main__.main(["verify"]) == 0
    with connect(url).begin() as connection:
        connection.execute(head_table.update().values(id=9))
    assert __main__.main(["verify"]) == 1


def test_the_table_of_jobs_says_what_people_ask_for(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert __main__.main(["migrate"]) == 0
    book = Ledger(connect(url))
    history = History(book)
    job = history.declare(
        "fit-1-a1", sha256(b"k"), 1, gpu_job(nodes=1, hardware="ethernet"), {"dataset": sha256(b"data")}
    )
    begun = metering.meter(job.declared, job.name, "pod-1", NOON, "scheduled")
    accounts.begin(book, begun)
    accounts.end(book, begun, NOON + dt.timedelta(hours=1, minutes=30))
    book.append(UTILISATION, job.name, {"busy": 0.83, "act": "summary", "key": job.key})
    history.move(job, "COMPLETED", made=sha256(b"model"))
    capsys.readouterr()
    assert __main__.main(["status"]) == 0
    head, line = capsys.readouterr().out.splitlines()
    assert head.split("  ")[0] == "job"
    assert all(
        word in head for word in ("state", "GPUs", "utilisation", "duration", "data version", "model SHA-256", "cost")
    )
    assert line.split() == [
        *("fit-1-a1", "COMPLETED", "8", "83%", "1:30:00", sha256(b"data")[7:19]),
        *(sha256(b"model")[7:], "12.0000", "gpu-h"),
    ]
    assert __main__.main(["bill", "2013-09"]) == 0
    assert (
        "flights,flight_delay,scheduled,completed,gpu,1,12.0000,12.0000" not in capsys.readouterr().out
    )  # the wall's month
    month = dt.datetime.now(dt.UTC).strftime("%Y-%m")
    assert __main__.main(["bill", month, "--folder", str(tmp_path)]) == 0
    assert "flights,flight_delay,scheduled,completed,gpu,1,12.0000,12.0000" in capsys.readouterr().out
    assert "12.0000" in (tmp_path / f"bill-{month}.csv").read_text()
    drawing = ElementTree.fromstring((tmp_path / f"bill-{month}.svg").read_text())  # noqa: S314  our own file
    assert "12.00 h billed, 0.00 h not" in [node.text for node in drawing.iter()]
    assert __main__.main(["bill", "September"]) == 1


def test_a_jobs_page_has_every_variable_with_its_reason(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert __main__.main(["migrate"]) == 0
    History(Ledger(connect(url))).declare("fit-1-a1", sha256(b"k"), 1, gpu_job(options={"strategy": "fsdp"}))
    assert __main__.main(["job", "fit-1-a1", "--folder", str(tmp_path)]) == 0
    told = capsys.readouterr().out
    page = (tmp_path / "job.html").read_text()
    for variable in hardware.profile(gpu_job(), "pod"):
        assert f"{variable.value}  ({variable.reason})" in told
        assert html.escape(variable.reason) in page
    assert "strategy" in told
    assert "a rank that hangs costs at most" in told
    assert __main__.main(["job", "nobody"]) == 1
