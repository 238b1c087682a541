"""The door for alerts: its own token, a limit on bodies and on rate, clear refusals; and it wakes watch, nothing else."""

import asyncio
import json

import httpx
import pytest

from artifacts.records import connect
from operators import ledger as ledgers
from operators import live
from operators.alerts import Rate
from operators.ledger import DECISION, ledger
from operators.plans.watch import ALERT
from operators.settings import platform
from plugins.board import alerts
from tests.make import control

BODY = {"id": "ticket 7", "at": "2013-09-01T11:00:00Z", "model": "flight_delay", "words": "a runway is closed"}
TOKEN = {"Authorization": "Bearer open sesame"}


@pytest.fixture(autouse=True)
def woken(tmp_path, monkeypatch):
    """A deployment with a token; the models that the door wakes. The event itself has a test on a real Airflow database."""
    (tmp_path / "token").write_text("open sesame\n")
    monkeypatch.setenv("PERENNIAL_ALERT_TOKEN_FILE", str(tmp_path / "token"))
    control.deployment(tmp_path / "state", monkeypatch)
    monkeypatch.setattr(alerts, "RATE", Rate(60, lambda: 0.0))
    found = []
    monkeypatch.setattr(alerts, "wake", found.append)
    return found


def post(body=BODY, form="generic", headers=TOKEN, content=None):
    async def ask():
        transport = httpx.ASGITransport(alerts.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            return await client.post(f"/{form}", headers=headers, content=content or json.dumps(body))

    return asyncio.run(ask())


def test_an_alert_is_written_down_wakes_watch_and_decides_nothing(woken):
    answer = post()
    assert (answer.status_code, answer.json()["accepted"]) == (202, 1)
    assert woken == ["flight_delay"]
    assert [entry.actor for entry in ledger().entries(ALERT)] == ["generic"]
    assert ledger().entries(DECISION) == ()


def test_the_same_alert_again_wakes_nobody(woken):
    post()
    assert post().json()["repeated"] == 1
    assert woken == ["flight_delay"]


@pytest.mark.parametrize(
    "headers",
    [{}, {"Authorization": "Bearer open"}, {"Authorization": "open sesame"}, {"Authorization": "Bearer öffne"}],
)
def test_without_the_token_nothing_is_taken_and_no_rate_is_used_up(woken, monkeypatch, headers):
    monkeypatch.setattr(alerts, "RATE", Rate(1, lambda: 0.0))
    sent = {name: value.encode() for name, value in headers.items()}
    for _ in range(3):
        answer = post(headers=sent)
        assert (answer.status_code, answer.text) == (401, "send the header 'Authorization: Bearer <token>'\n")
    assert (woken, ledger().entries(ALERT)) == ([], ())
    assert post().status_code == 202


def test_without_a_token_file_the_door_is_shut(monkeypatch):
    monkeypatch.delenv("PERENNIAL_ALERT_TOKEN_FILE")
    platform.cache_clear()
    assert post().text == "alerts from outside are off; set PERENNIAL_ALERT_TOKEN_FILE\n"


@pytest.mark.parametrize("content", ["", None])
def test_an_empty_or_lost_token_opens_nothing(tmp_path, content):
    if content is None:
        (tmp_path / "token").unlink()
    else:
        (tmp_path / "token").write_text(content)
    answer = post(headers={"Authorization": "Bearer "})
    assert answer.status_code == 403
    assert str(tmp_path) not in answer.text


def test_too_many_requests_are_told_when_to_come_back(monkeypatch):
    monkeypatch.setattr(alerts, "RATE", Rate(2, lambda: 0.0))
    assert [post({**BODY, "id": str(number)}).status_code for number in range(3)] == [202, 202, 429]
    assert post().headers["Retry-After"] == "30"


def test_a_long_body_is_refused_by_its_length_alone():
    answer = post(content=b" " * (alerts.POLICY.body_bytes + 1))
    assert (answer.status_code, answer.text) == (413, "the body has more than 262144 bytes\n")


def test_problems_are_told_one_per_line():
    answer = post({"id": "x"})
    assert answer.status_code == 422
    assert [line.split(": ")[1] for line in answer.text.splitlines()] == ["at", "model", "words"]


def test_before_a_replay_has_begun_there_is_no_time_to_judge_by(tmp_path, monkeypatch):
    monkeypatch.setenv("PERENNIAL_DATABASE", f"sqlite:///{tmp_path}/fresh.db")
    for cached in (platform, live.records, ledgers.ledger):
        cached.cache_clear()
    ledgers.migrate(connect(platform().database))
    answer = post()
    assert answer.status_code == 409
    assert "no replay has set the clock" in answer.text
