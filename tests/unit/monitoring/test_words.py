from __future__ import annotations

import pytest

from monitoring import words


@pytest.mark.parametrize(
    ("feature", "before", "after", "said"),
    [
        (
            "origin__departure_delay_mean_3h",
            9.12,
            31.0,
            "origin departure delay last 3 h: mean 9.1 -> 31.0 minutes",
        ),
        ("carrier__late_share_1d", 0.26, 0.131, "carrier late share last 1 d: mean 26.0 % -> 13.1 %"),
        ("flight__distance", 1040.0, 980.0, "flight distance: mean 1,040.0 -> 980.0"),
        ("weather__precip", 0.0, 0.0123, "weather precip: mean 0 -> 0.012 inches"),
        (
            "congestion__known_late_last_3h",
            4.0,
            9.5,
            "congestion known late last 3 h: mean 4.0 -> 9.5 flights",
        ),
        ("flight__duration_minutes", 140.0, 133.0, "flight duration minutes: mean 140.0 -> 133.0 minutes"),
        ("weather__temp", None, 1.0, "weather temp: no mean can be given, one side has no values"),
    ],
)
def test_a_moved_mean_in_words(feature: str, before: float | None, after: float | None, said: str) -> None:
    assert words.moved_mean(feature, (before, after)) == said


def test_the_median_shows_what_a_few_extreme_rows_hide() -> None:
    said = words.moved_mean("route__arrival_delay_mean_7d", (14.3, 10.3), (6.0, -2.0))
    assert said == "route arrival delay last 7 d: mean 14.3 -> 10.3, median 6.0 -> -2.0 minutes"


def test_the_category_that_moved_most_is_named() -> None:
    said = words.moved_category("flight__carrier", {"AA": 0.2, "UA": 0.5}, {"AA": 0.6, "UA": 0.4})
    assert said == "flight carrier: 'AA' 20.0 % -> 60.0 %"


def test_new_categories_are_named_three_at_most() -> None:
    said = words.new_categories("flight__dest", ("A", "B", "C", "D"), 0.25)
    assert said == (
        "flight dest: 25.0 % of requests have a category that the reference lacks ('A', 'B', 'C' and others)"
    )
