"""The page server shows what manifests list, to people who are logged in, and nothing else."""

import pytest
from airflow.api_fastapi.core_api.security import get_user

from artifacts.refs import join, local_path
from artifacts.store import publish
from operators.settings import platform
from plugins.board.published import app
from tests.make import control, pages


@pytest.fixture(autouse=True)
def _deployment(tmp_path, monkeypatch):
    control.deployment(tmp_path / "state", monkeypatch)
    (tmp_path / "state" / "secret.html").write_text("secret")
    monkeypatch.setitem(app.dependency_overrides, get_user, lambda: None)


def get(path):
    return pages.get(app, path)


def made():
    uri = join(platform().store, "checks", "m", "one")
    with publish(uri, "check") as draft:
        (draft.path / "report.html").write_text("<p>report</p>")
        (draft.path / "weights.pt").write_text("weights")
    return local_path(uri) / draft.manifest.attempt


def test_a_listed_page_is_shown_in_a_sandbox():
    made()
    answer = get("/checks/m/one/report.html")
    assert (answer.status_code, answer.text) == (200, "<p>report</p>")
    assert "sandbox" in answer.headers["content-security-policy"]


@pytest.mark.parametrize(
    "path",
    [
        "/checks/m/one/weights.pt",
        "/checks/m/one/manifest.json",
        "/checks/m/two/report.html",
        "/%2e%2e/secret.html",
        "/%252e%252e/secret.html",
        "/checks/m/one/..%2f..%2fsecret.html",
        "/",
    ],
)
def test_nothing_else_is(path):
    made()
    assert get(path).status_code == 404


def test_a_page_that_was_altered_is_not_shown():
    (made() / "report.html").write_text("something else")
    assert get("/checks/m/one/report.html").status_code == 409


def test_every_route_asks_who_it_is():
    assert all(any(one.call is get_user for one in route.dependant.dependencies) for route in app.routes)
