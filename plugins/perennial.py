"""Registers what Perennial adds to Airflow's UI; the work is in ``board/`` and in ``operators/links.py``."""

from __future__ import annotations

from airflow.plugins_manager import AirflowPlugin

from operators.links import DataDocsLink, DriftReportLink, EvaluationLink, JudgementLink, MlflowLink
from plugins.board import alerts, published, timeline


class PerennialPlugin(AirflowPlugin):
    """Perennial in Airflow."""

    name = "perennial"
    fastapi_apps = [  # noqa: RUF012  the base class declares plain attributes
        {"app": published.app, "url_prefix": "/perennial/artifacts", "name": "perennial artifacts"},
        {"app": alerts.app, "url_prefix": "/perennial/alerts", "name": "perennial alerts"},
        {"app": timeline.app, "url_prefix": "/perennial/timeline", "name": "perennial timelines"},
    ]
    external_views = [  # noqa: RUF012
        {"name": "Drift", "href": "/perennial/timeline/", "destination": "nav", "category": "browse"},
        {
            "name": "Drift",
            "href": "/perennial/timeline/of/{DAG_ID}",
            "destination": "dag",
            "url_route": "perennial-drift",
        },
    ]
    operator_extra_links = [  # noqa: RUF012
        DataDocsLink(),
        EvaluationLink(),
        JudgementLink(),
        DriftReportLink(),
        MlflowLink(),
    ]
