"""The asset event is posted as its own user, and no error holds the password."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import pytest

from serving.announce import AnnouncementRefused, announce

PASSWORD = "never-shown"  # noqa: S105  not a secret
EXTRA = {"partition": "2013-09-01", "rows": 3}


def airflow(posted: list[object], status: int = 200) -> httpx.MockTransport:
    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/auth/token":
            known = json.loads(request.content) == {"username": "compactor", "password": PASSWORD}
            return httpx.Response(201, json={"access_token": "t"}) if known else httpx.Response(401)
        assert request.headers["Authorization"] == "Bearer t"
        if request.method == "GET":
            assets = [{"id": 4, "name": "predictions/flight_delay_2"}, {"id": 5, "name": "predictions/flight_delay"}]
            return httpx.Response(200, json={"assets": assets})
        posted.append(json.loads(request.content))
        return httpx.Response(status, json={"id": 77})

    return httpx.MockTransport(answer)


def passwords(folder: Path, password: str = PASSWORD) -> Path:
    path = folder / "passwords.json"
    path.write_text(json.dumps({"compactor": password}))
    return path


def post(folder: Path, transport: httpx.BaseTransport, asset: str = "predictions/flight_delay") -> int:
    return announce("http://airflow", "compactor", folder / "passwords.json", asset, EXTRA, transport=transport)


def test_the_event_is_posted_for_the_asset_of_exactly_that_name(tmp_path: Path) -> None:
    passwords(tmp_path)
    posted: list[object] = []
    assert post(tmp_path, airflow(posted)) == 77
    assert posted == [{"asset_id": 5, "extra": EXTRA}]


@pytest.mark.parametrize(
    ("password", "asset", "status", "said"),
    [
        ("wrong", "predictions/flight_delay", 200, "refused to log in as 'compactor': HTTP 401"),
        (PASSWORD, "predictions/other", 200, "knows no asset 'predictions/other'"),
        (PASSWORD, "predictions/flight_delay", 403, "needs the role op"),
    ],
)
def test_refusals_say_what_to_change(tmp_path: Path, password: str, asset: str, status: int, said: str) -> None:
    passwords(tmp_path, password)
    with pytest.raises(AnnouncementRefused, match=said) as refusal:
        post(tmp_path, airflow([], status), asset)
    assert password not in str(refusal.value)


def test_no_password_and_no_answer(tmp_path: Path) -> None:
    with pytest.raises(AnnouncementRefused, match="holds no password of 'compactor'"):
        post(tmp_path, airflow([]))

    def away(_request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused")

    passwords(tmp_path)
    with pytest.raises(ConnectionError, match="http://airflow does not answer"):
        post(tmp_path, httpx.MockTransport(away))
