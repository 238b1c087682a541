"""The pictures and the page: well-formed, self-contained, and with names escaped."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import pytest

from tests.make import gates as make
from training.measures import Gain, Scores
from training.report import curve_svg, page, pr_svg, reliability_svg, roc_svg, ticks
from training.tables import (
    BETTER,
    QUIET,
    WORSE,
    bars_table,
    gains_table,
    increases_table,
    interval_bar,
    scores_table,
    slices_table,
    thresholds_table,
)


@pytest.mark.parametrize(
    "picture",
    [
        curve_svg([(0, 0.6, 0.61), (1, 0.5, 0.55)]),
        curve_svg([(0, 0.6, None)]),
        reliability_svg({"a<b": [(0.1, 0.2), (0.9, 0.8)], "champion": [(0.0, 0.0)]}, "classification"),
        reliability_svg({"candidate": [(-12.0, -11.0), (90.0, 88.0)]}, "regression"),
        reliability_svg({"candidate": [(7.0, 7.0)]}, "regression"),
        pr_svg({"candidate": [(0.1, 1.0), (1.0, 0.3)]}, 0.3),
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
    scores = Scores(log_loss=0.5, auc=0.7, pr_auc=0.4, brier=0.2, ece=0.01)
    gain = Gain(mean=0.01, lower=-0.02, upper=0.03, standard_error=0.01)
    tables = scores_table({"<b>": scores}) + gains_table({"auc": gain}) + bars_table({"x": 0.7, "y": 0.3})
    text = page("A <model>", "facts & figures", {"Scores": tables})
    assert "<b>" not in text
    assert "A &lt;model&gt;" in text
    assert "src=" not in text
    assert "+0.0100" in text


@pytest.mark.parametrize(("mean", "colour"), [(0.01, BETTER), (0.0, QUIET), (-0.01, WORSE)])
def test_a_bar_says_which_side_of_zero_the_interval_is_clear_of(mean: float, colour: str) -> None:
    bar = interval_bar(make.gain(mean, 0.001), 0.02)
    ET.fromstring(bar)  # noqa: S314  our own text
    assert bar.count(colour) == 2


def test_every_slice_has_a_row_with_what_it_is_compared_with() -> None:
    new = make.one_slice("<NEW>", rows=12, known=False, guard=None, gain=None, gain_over_base=None, bias_error=None)
    text = slices_table((*make.slices(), new), "log loss", "AUC")
    assert text.count("<tr>") == 5
    assert "origin=&lt;NEW&gt; (new)" in text
    assert "gain over champion" in text
    assert "gain over base rate" in slices_table(make.slices(gain=None, known=None), "log loss", "AUC")


def test_a_regressions_scores_have_their_own_columns() -> None:
    text = scores_table({"candidate": make.errors()})
    assert "MAE" in text
    assert "log loss" not in text


def test_the_most_costly_features_come_first_and_nothing_flagged_is_said_in_words() -> None:
    text = increases_table({"a": (0.01, 0.001), "b": (0.03, 0.002)}, {"a": 0.25, "b": 0.75})
    assert text.index(">b<") < text.index(">a<")
    at = {"why": "declared", "threshold": 0.9, "flagged": 0, "precision": None, "recall": 0.0, "f1": 0.0}
    assert "none" in thresholds_table({"candidate": [at]})


@pytest.mark.parametrize(
    ("low", "high", "wanted"),
    [
        (0, 1, [0, 0.2, 0.4, 0.6, 0.8, 1]),
        (-0.15, 3.15, [0, 1, 2, 3]),
        (0.467, 0.629, [0.5, 0.55, 0.6]),
        (-40, 95, [0, 50]),
    ],
)
def test_axes_are_marked_at_round_values(low: float, high: float, wanted: list[float]) -> None:
    assert ticks(low, high) == pytest.approx(wanted)
