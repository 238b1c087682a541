"""docs/metrics.md names every metric of the gateway with its labels, and no other."""

from __future__ import annotations

import re
from pathlib import Path

from serving.metrics import Metrics

PAGE = Path(__file__).resolve().parents[2] / "docs" / "metrics.md"


def test_the_page_and_the_registry_name_the_same_metrics() -> None:
    written = dict(re.findall(r"^\| `(\w+)` \| ([\w, ]*?) ?\|", PAGE.read_text(), flags=re.MULTILINE))
    counted = {}
    for metric in vars(Metrics()).values():
        if hasattr(metric, "_labelnames"):
            suffix = "_total" if type(metric).__name__ == "Counter" else ""
            counted[metric._name + suffix] = ", ".join(metric._labelnames)
    assert written == counted
