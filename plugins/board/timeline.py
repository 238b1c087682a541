"""The timeline pages, one per model, drawn from the ledger for people who are logged in to Airflow; read-only."""

from __future__ import annotations

from html import escape

from airflow.api_fastapi.core_api.security import get_user
from fastapi import Depends, FastAPI, HTTPException, Response
from fastapi.responses import RedirectResponse

from operators.ledger import ledger
from operators.pipelines import PIPELINES, Pipeline
from operators.settings import platform
from operators.timeline import timeline
from operators.timeline_page import STYLE, page
from operators.versions import versions
from plugins.board.published import POLICY

KINDS = ("drift", "retrain", "release", "alert", "effect")

app = FastAPI(title="Perennial timelines", docs_url=None, redoc_url=None, openapi_url=None)


@app.get("/", dependencies=[Depends(get_user)])
def index() -> Response:
    """The models that there are."""
    links = "".join(f'<li><a href="{escape(row.model)}">{escape(row.model)}</a>' for row in PIPELINES)
    return _html(
        f"<!doctype html><meta charset=utf-8><title>Drift</title><style>{STYLE}</style><h1>Drift over time</h1><ul>{links}</ul>"
    )


@app.get("/of/{dag_id}", dependencies=[Depends(get_user)])
def of_dag(dag_id: str) -> Response:
    """From a DAG to its model; a DAG that belongs to no model leads to the list."""
    model = dag_id.rpartition("__")[2]
    there = model if any(row.model == model for row in PIPELINES) else ""
    return RedirectResponse(f"../{there}")


@app.get("/{model}", dependencies=[Depends(get_user)])
def of_model(model: str) -> Response:
    """One model's timeline as of now."""
    row = next((row for row in PIPELINES if row.model == model), None)
    if row is None:
        raise HTTPException(404, f"there is no model '{model}'")
    return _html(drawn(row))


def drawn(row: Pipeline) -> str:
    """The page, from this deployment's ledger."""
    book = ledger()
    numbers = {each.registered.package.digest: each.registered.version for each in versions(book, row.model)}
    entries = {kind: book.entries(kind, row.model) for kind in KINDS}
    return page(timeline(row.model, entries, numbers, platform().store, row.drift.trigger_share))


def _html(text: str) -> Response:
    headers = {"Content-Security-Policy": POLICY, "X-Content-Type-Options": "nosniff"}
    return Response(text, media_type="text/html; charset=utf-8", headers=headers)
