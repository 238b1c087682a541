"""The page of a judgement is whole in itself and shows what it is given."""

from __future__ import annotations

from xml.etree import ElementTree as ET

from serving.judgement_page import lines, page, scatter


def parsed(text: str) -> ET.Element:
    return ET.fromstring(text)  # noqa: S314  our own text


def test_charts_are_well_formed_and_hold_every_point() -> None:
    drawn = parsed(lines("p99", "ms", {"candidate": [1.0, 2.0, 4.0], "champion": [1.0]}))
    assert [len(line.attrib["points"].split()) for line in drawn.iter("polyline")] == [3, 1]
    assert len(list(parsed(scatter("score", [(0.1, 0.2), (0.5, 0.5)])).iter("circle"))) == 2
    parsed(lines("nothing", "ms", {"candidate": []}))


def test_the_page_escapes_what_it_is_given_and_names_what_was_not_measured() -> None:
    text = page("<v7>", "fail", ["a < b"], {"p99": None, "loss": 0.123456}, [])
    assert "&lt;v7&gt;" in text
    assert "a &lt; b" in text
    assert "not measured" in text
    assert "0.12346" in text
