"""The timeline pages are for people who are logged in, one per model, drawn from the ledger as it is."""

import pytest
from airflow.api_fastapi.core_api.security import get_user

from operators.ledger import ledger
from operators.pipelines import PIPELINES
from plugins.board.timeline import app
from plugins.perennial import PerennialPlugin
from tests.make import control, pages


@pytest.fixture(autouse=True)
def _deployment(tmp_path, monkeypatch):
    control.deployment(tmp_path / "state", monkeypatch)
    monkeypatch.setitem(app.dependency_overrides, get_user, lambda: None)


def get(path):
    return pages.get(app, path)


def test_a_model_has_a_page_and_another_has_none():
    decision = {"state": "WATCH", "retrain": False, "reasons": ["because of the calm"]}
    ledger().append("drift", "flight_delay", {"partition": "2013-09-01", "package_digest": "p", "decision": decision})
    answer = get("/flight_delay")
    assert (answer.status_code, "because of the calm" in answer.text) == (200, True)
    assert "sandbox" in answer.headers["content-security-policy"]
    assert get("/diamonds").status_code == 404


def test_the_list_names_every_model_and_a_dag_leads_to_its_own():
    assert all(f'href="{row.model}"' in get("/").text for row in PIPELINES)
    assert get("/of/watch__flight_delay").headers["location"] == "../flight_delay"
    assert get("/of/sweep").headers["location"] == "../"
    assert get("/of/https:evil__example.org").headers["location"] == "../"


def test_every_page_asks_who_it_is():
    assert all(any(one.call is get_user for one in route.dependant.dependencies) for route in app.routes)


def test_airflow_is_told_of_every_door_and_view():
    doors = {door["url_prefix"] for door in PerennialPlugin.fastapi_apps}
    assert doors == {"/perennial/artifacts", "/perennial/alerts", "/perennial/timeline"}
    assert {view["destination"] for view in PerennialPlugin.external_views} == {"nav", "dag"}
