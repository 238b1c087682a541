"""The pictures and the page: well-formed, self-contained, and with names escaped."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import pytest

from training.contract import Gain, Scores
from training.report import bars_table, curve_svg, gains_table, page, reliability_svg, roc_svg, scores_table


@pytest.mark.parametrize(
    "picture",
    [
        curve_svg([(0, 0.6, 0.61), (1, 0.5, 0.55)]),
        curve_svg([(0, 0.6, None)]),
        reliability_svg({"a<b": [(0.1, 0.2), (0.9, 0.8)], "champion": [(0.0, 0.0)]}),
        roc_svg({"candidate": [(0.0, 0.0), (0.2, 0.8), (1.0, 1.0)]}),
    ],
)
def test_pictures_are_well_formed_and_stay_inside_their_frame(picture: str) -> None:
    root = ET.fromstring(picture)  # noqa: S314  our own text
    _, _, width, height = map(float, root.attrib["viewBox"].split())
    places = [point.split(",") for line in root.findall(".//{*}polyline") for point in line.attrib["points"].split()]
    assert places
    assert all(0 <= float(x) <= width and 0 <= float(y) <= height for x, y in places)


def test_the_page_needs_nothing_from_elsewhere_and_escapes_names() -> None:
    scores = Scores(log_loss=0.5, auc=0.7, brier=0.2, ece=0.01)
    gain = Gain(mean=0.01, lower=-0.02, upper=0.03, standard_error=0.01)
    tables = scores_table({"<b>": scores}) + gains_table({"auc": gain}) + bars_table({"x": 0.7, "y": 0.3})
    text = page("A <model>", "facts & figures", {"Scores": tables})
    assert "<b>" not in text
    assert "A &lt;model&gt;" in text
    assert "src=" not in text
    assert "+0.0100" in text
