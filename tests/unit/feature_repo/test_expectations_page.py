import datetime as dt

from artifacts.refs import Ref, sha256
from feature_repo.contract import ValidateSpec
from feature_repo.expectations_page import page
from feature_repo.outcomes import failed


def test_failures_stand_first_and_values_are_escaped() -> None:
    spec = ValidateSpec(
        suite="raw_day",
        target=Ref(uri="file:///lake/2013-01-08", digest=sha256(b"day")),
        partition=dt.date(2013, 1, 8),
        output="file:///out",
    )
    bad = failed("schedule", "expect_column_values_to_not_be_null", "carrier", "31 % null, <b>UA</b>")
    html = page(spec, [bad], ["schedule.carrier: 31 % null"], [])
    assert html.index("refused") < html.index("Everything asked")
    assert "<b>UA" not in html
    assert "http" not in html.replace("https", "http").replace("charset", "")
