import datetime as dt

from artifacts.refs import sha256
from feature_repo.contract import Target, ValidateSpec
from feature_repo.expectations_page import SHOWN_ROWS, page
from feature_repo.outcomes import BadRow, failed
from tests.make.expectations import CALENDAR


def spec_of(*days: str) -> ValidateSpec:
    targets = [
        Target(uri=f"file:///lake/{day}", digest=sha256(day.encode()), partition=dt.date.fromisoformat(day))
        for day in days
    ]
    return ValidateSpec(suite="raw_day", calendar=CALENDAR, targets=tuple(targets), output="file:///out")


def test_a_range_is_named_and_rows_that_broke_are_shown_up_to_a_bound() -> None:
    bad = [BadRow("schedule", "known:carrier", "critical", "2013-01-08", f"f{number}", "") for number in range(60)]
    html = page(spec_of("2013-01-08", "2013-01-09"), [], [], [], bad)
    assert "2013-01-08 to 2013-01-09" in html
    assert f"the first {SHOWN_ROWS} of the 60 in bad_rows.csv" in html
    assert "f49" in html
    assert "f50" not in html


def test_failures_stand_first_and_values_are_escaped() -> None:
    spec = spec_of("2013-01-08")
    bad = failed("schedule", "expect_column_values_to_not_be_null", "carrier", "31 % null, <b>UA</b>")
    html = page(spec, [bad], ["schedule.carrier: 31 % null"], [])
    assert html.index("refused") < html.index("Everything asked")
    assert "<b>UA" not in html
    assert "http" not in html.replace("https", "http").replace("charset", "")
