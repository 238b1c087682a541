"""From a payload task to the page that a person wants to see: Data Docs, evaluation, judgement, drift report, MLflow run."""

from __future__ import annotations

from typing import Any

from airflow.sdk import BaseOperatorLink
from pydantic import BaseModel

from artifacts.refs import Ref, Uri, join
from artifacts.store import manifest
from feature_repo.contract import ValidationRef
from monitoring.contract import CheckRef
from operators.settings import platform
from serving.contract import JudgementRef
from training.contract import EvaluationRef, VersionRef


class PageLink(BaseOperatorLink):
    """A link whose target the operator works out when its step is done."""

    page = ""

    @property
    def name(self) -> str:
        """The button's text."""
        return self.page

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        """The target, or an empty text while there is none."""
        return str(getattr(operator, "page", ""))


class DataDocsLink(PageLink):
    """The expectations of a data set and how they did."""

    page = "Data Docs"


class EvaluationLink(PageLink):
    """Candidate, champion and yardsticks on the test window."""

    page = "Evaluation"


class JudgementLink(PageLink):
    """The evidence of a release."""

    page = "Judgement"


class DriftReportLink(PageLink):
    """What changed, by Evidently."""

    page = "Evidently report"


class MlflowLink(PageLink):
    """The run in MLflow; the pages are there while ``make mlflow`` runs, or where ``PERENNIAL_MLFLOW_UI`` points."""

    page = "MLflow run"


JUDGEMENT_PAGE = "judgement.html"
LINKS: dict[type[BaseModel], tuple[PageLink, tuple[str, ...]]] = {
    ValidationRef: (DataDocsLink(), ("summary.html",)),
    EvaluationRef: (EvaluationLink(), ("evaluation.html",)),
    JudgementRef: (JudgementLink(), (JUDGEMENT_PAGE,)),
    CheckRef: (DriftReportLink(), ("report.html", "summary.html")),  # too few rows make no Evidently report
}
"""Kind of result -> its link, and the pages that it may lead to, the best first."""


def links_for(result: type[BaseModel]) -> tuple[PageLink, ...]:
    """The links that a step with this kind of result has."""
    if result is VersionRef:
        return (MlflowLink(),)
    return (LINKS[result][0],) if result in LINKS else ()


def page_of(result: BaseModel) -> str:
    """The page of one result, as an absolute URL; empty when it has none."""
    if isinstance(result, VersionRef):
        return f"{platform().mlflow_ui}/#/runs/{result.run_id}" if platform().mlflow_ui else ""
    if type(result) not in LINKS or not isinstance(result, Ref):
        return ""
    found = manifest(result.uri)
    there = {entry.path for entry in found.files} if found else set()
    page = next((name for name in LINKS[type(result)][1] if name in there), None)
    return page_at(result.uri, page) if page else ""


def page_at(uri: Uri, page: str) -> str:
    """The URL at which the board shows one file of an artifact in the store."""
    inside = uri.removeprefix(platform().store).strip("/")
    return join(f"{platform().airflow}/perennial/artifacts", inside, page)
