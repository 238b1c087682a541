"""Messages reach real servers, once; one that cannot be sent fails nothing and shows no secret."""

from __future__ import annotations

import email
import json
import logging
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from operators import notices, notifiers
from operators.ledger import DECISION, ledger
from operators.pipelines import pipeline
from operators.plans.watch import DRIFT
from operators.settings import Platform, platform
from tests.make import control
from tests.make.post_servers import http_server, smtp_server

ROW = pipeline("flight_delay")
MESSAGE = notices.Message(
    "notice:flight_delay:1", ROW.model, "flight_delay: STABLE -> WATCH", ("{{ 7 * 7 }} <b>",), {"to": "WATCH"}
)
HIDDEN = "s3cr3t"


@pytest.fixture
def notify(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Sets up a deployment whose messages go these ways."""

    def to(*names: str, url: str = "") -> None:
        (tmp_path / "url").write_text(url)
        for name, value in {
            "PERENNIAL_NOTIFY": json.dumps(names),
            "PERENNIAL_NOTIFY_WEBHOOK_FILE": str(tmp_path / "url"),
            "PERENNIAL_NOTIFY_EMAILS": '["on-call@example.org"]',
        }.items():
            monkeypatch.setenv(name, value)
        control.deployment(tmp_path / "state", monkeypatch)

    return to


def mail_goes_to(monkeypatch: pytest.MonkeyPatch, port: int, **changes: Any) -> None:
    connection = {
        "conn_type": "smtp", "host": "127.0.0.1", "port": port,
        "extra": {"disable_ssl": True, "disable_tls": True, "from_email": "perennial@example.org", "retry_limit": 1}, **changes,
    }  # fmt: skip
    monkeypatch.setenv("AIRFLOW_CONN_SMTP_DEFAULT", json.dumps(connection))


def failures() -> list[Any]:
    return [entry.body for entry in ledger().entries(notices.NOTICE_FAILED)]


def test_a_message_goes_every_chosen_way_once(notify: Any, monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    with http_server() as (port, bodies), smtp_server() as (mail_port, mails):
        notify("log", "webhook", "smtp", url=f"http://127.0.0.1:{port}/200/{HIDDEN}\n")
        mail_goes_to(monkeypatch, mail_port)
        assert [notifiers.tell([MESSAGE], {}), notifiers.tell([MESSAGE], {})] == [1, 0]
    assert [body["subject"] for body in bodies] == [MESSAGE.subject]
    assert bodies[0]["to"] == "WATCH"
    assert len(mails) == 1
    mail = email.message_from_string(mails[0])
    assert (mail["To"], mail["Subject"]) == ("on-call@example.org", MESSAGE.subject)
    assert b"{{ 7 * 7 }} &lt;b&gt;" in next(
        part.get_payload(decode=True) for part in mail.walk() if not part.is_multipart()
    )
    assert failures() == []
    assert ledger().entries(notices.NOTICE)[0].body["by"] == ["log", "webhook", "smtp"]


@pytest.mark.parametrize("status", [404, 500, None])
def test_a_webhook_that_fails_fails_nothing_and_its_url_stays_secret(
    notify: Any, monkeypatch: pytest.MonkeyPatch, capfd: Any, caplog: Any, status: int | None
) -> None:
    caplog.set_level(logging.DEBUG)
    with http_server() as (port, _), smtp_server() as (mail_port, mails):
        notify("webhook", "smtp", url=f"http://127.0.0.1:{port if status else 1}/{status}/{HIDDEN}")
        mail_goes_to(monkeypatch, mail_port)
        assert notifiers.tell([MESSAGE], {}) == 1
    assert len(mails) == 1  # the others go on
    assert [body["by"] for body in failures()] == ["webhook"]
    assert (f"HTTP {status}" if status else "does not answer (ConnectError)") in failures()[0]["why"]
    assert HIDDEN not in json.dumps(failures()) + "".join(capfd.readouterr())
    assert not [
        record for record in caplog.records if record.name.startswith("airflow") and HIDDEN in record.getMessage()
    ]


def test_mail_that_is_refused_fails_nothing_and_its_password_stays_secret(
    notify: Any, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    with smtp_server() as (port, mails):
        notify("smtp")
        mail_goes_to(monkeypatch, port, login="me", password=HIDDEN)
        assert notifiers.tell([MESSAGE], {}) == 1
    assert mails == []
    assert failures()[0]["why"] == "connection 'smtp_default' took no mail (SMTPAuthenticationError)"
    assert HIDDEN not in "".join(capfd.readouterr())


def test_a_url_that_is_gone_is_a_failure_by_name_of_its_file(notify: Any, tmp_path: Path) -> None:
    notify("webhook")
    (tmp_path / "url").unlink()
    notifiers.tell([MESSAGE], {})
    assert failures()[0]["why"] == "CredentialsRefused"


def test_the_log_is_the_default_and_a_way_without_an_address_is_refused() -> None:
    assert Platform().notify == ("log",)
    with pytest.raises(ValidationError, match=r"notify: has webhook, and notify_webhook_file is None; name a file"):
        Platform(notify=("webhook",))
    with pytest.raises(ValidationError, match=r"notify: has smtp, and notify_emails is empty"):
        Platform(notify=("smtp",))


def test_the_state_changes_of_the_ledger_are_told_once_each(notify: Any) -> None:
    notify("log")
    for day, state in ((1, "WATCH"), (2, "WATCH"), (3, "TRIGGERED")):
        decision = {"state": state, "reasons": ["r"]}
        ledger().append(DRIFT, ROW.model, {"partition": f"2013-09-0{day}", "decision": decision})
    for _ in range(2):
        notifiers.StateChanges(ROW.model)({})
    found = [entry.body["facts"] for entry in ledger().entries(notices.NOTICE, ROW.model)]
    assert [(fact["from"], fact["to"]) for fact in found] == [("STABLE", "WATCH"), ("WATCH", "TRIGGERED")]  # type: ignore[index,call-overload]
    assert found[0]["page"] == f"{platform().airflow}/perennial/timeline/flight_delay"  # type: ignore[index,call-overload]


@pytest.mark.covers("field-reports 30")
def test_what_is_overdue_is_told_once_and_under_a_replay_nothing_is(
    notify: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    notify("log")
    ledger().append(DECISION, ROW.model, {"trigger": "scheduled", "partition": "2013-08-31"})
    notifiers.Overdue()({})
    assert ledger().entries(notices.NOTICE) == ()  # a replay has no cron
    monkeypatch.setattr(notifiers, "next_tick", lambda _, at: at - notices.OVERDUE * 2)
    for _ in range(2):
        notifiers.Overdue()({})
    assert len(ledger().entries(notices.NOTICE)) == 1
