"""No spec that the control plane makes holds the password of the registry."""

from __future__ import annotations

from artifacts.secret import passwords_in
from operators.plans import release
from serving.contract import Routing
from tests.make.control import deployed

URL = "postgresql://mlflow:pa55@db/mlflow"


def test_aliases_are_projected_by_a_url_without_its_password() -> None:
    spec = release.aliases(Routing(model="flight_delay", champion=deployed(1)), URL)
    assert spec.tracking_uri == "postgresql://mlflow@db/mlflow"
    assert passwords_in(spec.model_dump(mode="json")) == []
