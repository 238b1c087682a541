"""The catalogue's page: it says everything of every feature, and refuses what was not measured."""

import pytest

from artifacts.settings import ROOT
from feature_repo import catalogue_page as page
from feature_repo.catalogue import REQUEST_FEATURES, VIEWS
from feature_repo.views import flight, station
from operators import pages

MEASURED = page.Measured.model_validate({
    "first": "2013-01-01",
    "last": "2013-12-31",
    "digest": "sha256:" + "0" * 64,
    "views": {
        name: {"rows": 1000, "entities": 3, "median_hours": 1, "nulls": {f.name: 125 for f in view.features}}
        for name, view in VIEWS.items()
    },
})


def test_every_feature_has_a_line_with_type_unit_window_nulls_and_readers() -> None:
    text = page.page(MEASURED, {"carrier__late_share_1d": ["flight_delay", "other"]})
    assert (
        "| `late_share_1d` | float64 | share | last day | 12.5% | Late, cancelled or diverted, of those whose outcome became "
        "known in the last day. | flight_delay, other |" in text
    )
    lines = [line for line in text.splitlines() if line.startswith("| `")]
    assert len(lines) == sum(len(view.features) for view in VIEWS.values()) + len(REQUEST_FEATURES)
    assert (
        "| [flight_number](#flight_number) | carrier (string), flight (int64) | 1,000 | 3 | 1 | 168 h | 0 h |" in text
    )


def test_each_part_of_a_feature_is_said() -> None:
    for feature in (*REQUEST_FEATURES, *(feature for view in VIEWS.values() for feature in view.features)):
        assert feature.unit, feature.name
        assert feature.meaning.endswith("."), feature.name
    assert all(feature.window for view in VIEWS.values() for feature in view.features)
    assert all(view.owner and view.meaning for view in VIEWS.values())


def test_a_feature_that_was_not_measured_is_named() -> None:
    views = dict(MEASURED.views)
    views["origin"] = views["origin"].model_copy(update={"nulls": {**views["origin"].nulls, "gone": 0}})
    del views["weather"]
    with pytest.raises(ValueError, match=r"features\.json: origin\.gone: is not in the catalogue") as error:
        page.page(MEASURED.model_copy(update={"views": views}), {})
    assert "weather.temp: was not measured; run python -m benchmarks.feature_build" in str(error.value)
    assert len(str(error.value).splitlines()) == 1 + len(VIEWS["weather"].features)


def test_the_committed_measurement_fits_the_catalogue_and_is_of_the_whole_year() -> None:
    measured = page.Measured.model_validate_json((ROOT / page.SOURCE).read_bytes())
    assert page.problems(measured) == []
    assert (measured.first.isoformat(), measured.last.isoformat()) == ("2013-01-01", "2013-12-31")
    for name, view in measured.views.items():
        assert all(0 <= nulls <= view.rows for nulls in view.nulls.values()), name
        assert view.entities <= view.rows, name


def test_what_comes_from_the_request_is_what_the_view_derives() -> None:
    kinds = {
        "float64": (*flight.NUMERIC, *station.NUMERIC),
        "string": (*flight.CATEGORICAL, *station.CATEGORICAL),
    }
    for kind, names in kinds.items():
        assert {feature.name for feature in REQUEST_FEATURES if feature.kind == kind} == set(names)


def test_every_column_that_a_recipe_reads_is_in_the_catalogue() -> None:
    known = {feature.name for feature in REQUEST_FEATURES}
    known |= {f"{name}__{feature.name}" for name, view in VIEWS.items() for feature in view.features}
    assert set(pages.readers()) <= known
