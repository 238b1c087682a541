"""A task's button leads to a page that is there, and to nothing where none is."""

import datetime as dt

import pytest

from artifacts.refs import join
from artifacts.store import publish
from feature_repo.contract import DatasetRef, ValidationRef
from monitoring.contract import CheckRef
from operators.links import links_for, page_of
from operators.settings import platform
from tests.make import control
from tests.make.gates import dataset_ref
from tests.make.monitoring import check_ref


@pytest.fixture(autouse=True)
def _deployment(tmp_path, monkeypatch):
    control.deployment(tmp_path, monkeypatch)


def checked(*pages):
    uri = join(platform().store, "checks", "flight_delay", "one")
    with publish(uri, "check") as draft:
        for page in pages:
            (draft.path / page).write_text("x")
    return check_ref(partition=dt.date(2013, 9, 1), uri=uri, digest=draft.manifest.digest)


def test_a_check_leads_to_evidently_and_without_it_to_our_own_page():
    assert page_of(checked("report.html", "summary.html")).endswith(
        "/perennial/artifacts/checks/flight_delay/one/report.html"
    )
    assert page_of(checked("summary.html")).endswith("/one/summary.html")
    assert page_of(checked("check.json")) == ""


def test_buttons_fit_the_kind_of_result():
    assert [link.name for link in links_for(CheckRef)] == ["Evidently report"]
    assert [link.name for link in links_for(ValidationRef)] == ["Data Docs"]
    assert links_for(DatasetRef) == ()
    assert page_of(dataset_ref()) == ""
