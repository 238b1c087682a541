"""Reference, check and skew on real artifacts, with a real ONNX graph and real Evidently reports."""

from __future__ import annotations

import datetime as dt
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from artifacts.refs import file_uri, join, sha256
from artifacts.step import EXIT_BAD_DATA, DataFault, failure_of, step
from artifacts.store import ArtifactCorrupt, ArtifactMissing, read_ref, write_bytes
from monitoring.baseline import Baseline
from monitoring.check import check
from monitoring.contract import CheckRef, CheckSpec, DriftPolicy, ReferenceRef, ReferenceSpec
from monitoring.drift import report
from monitoring.findings import binned, measure
from monitoring.measure import Compared, measure_window
from monitoring.policy import is_hit
from monitoring.quality import promoted
from monitoring.reference import freeze, monitor
from monitoring.skew import compare
from monitoring.skew_contract import SkewSpec
from monitoring.windows import labelled, log_window
from tests.make import monitoring as make

POLICY = DriftPolicy(report_columns=2)
TODAY = make.LAST + make.DAY
STREAM = make.stream(130, 600)


@pytest.fixture(scope="module")
def frozen(tmp_path_factory: pytest.TempPathFactory) -> tuple[ReferenceSpec, ReferenceRef]:
    return make.reference(tmp_path_factory.mktemp("reference"), policy=POLICY)


def day(number: int = 90, rows: int | None = None, **changes: Any) -> dict[str, Any]:
    """The stream's columns of a day after the reference, some of them replaced."""
    columns = {name: values[:rows] for name, values in STREAM[number].items()}
    return {**columns, **changes}


def checked(
    frozen: tuple[ReferenceSpec, ReferenceRef], root: Path, columns: Mapping[str, Any], **extra: Any
) -> CheckRef:
    uri = file_uri(root)
    logged = make.predictions(uri, TODAY, columns, frozen[1].package_digest, **extra)
    return check(make.check_spec(frozen, [logged], uri))


def kinds(found: CheckRef) -> dict[str, str]:
    return {finding.feature: finding.kind for finding in found.findings}


def test_a_reference_knows_weights_bins_and_limits_of_its_own_days(frozen: tuple[ReferenceSpec, ReferenceRef]) -> None:
    artifact = read_ref(frozen[1])
    baseline = Baseline.model_validate_json(artifact.file("baseline.json").read_bytes())
    assert {feature.name: feature.weight for feature in baseline.features} == pytest.approx(make.IMPORTANCE)
    limits = {feature.name: feature.limit(1).psi for feature in baseline.features}
    assert limits["weather__temp"] > 2
    assert limits["flight__distance"] < 0.1
    assert all(len(feature.limits) == POLICY.merge_partitions for feature in baseline.features)
    sample = pq.read_table(artifact.file("reference.parquet"))
    assert sample.num_rows == frozen[1].rows == POLICY.reference_rows
    expected = make.score({name: sample[name].to_numpy() for name in make.NUMERIC})
    assert np.allclose(sample["score"].to_numpy(), expected, atol=1e-6)
    assert freeze(frozen[0]).digest == frozen[1].digest


def test_a_reference_without_importance_is_refused(frozen: tuple[ReferenceSpec, ReferenceRef], tmp_path: Path) -> None:
    evaluation = make.evaluation(file_uri(tmp_path), importance={"something else": 1.0})
    with pytest.raises(DataFault, match="importance has no positive share"):
        freeze(frozen[0].model_copy(update={"evaluation": evaluation}))


@pytest.mark.covers("field-reports 120")
def test_an_ordinary_day_is_quiet_and_leaves_its_evidence(
    frozen: tuple[ReferenceSpec, ReferenceRef], tmp_path: Path
) -> None:
    found = checked(frozen, tmp_path, day())
    assert (found.outcome, found.score, kinds(found)) == ("checked", 0.0, {})
    artifact = read_ref(found)
    report = json.loads(artifact.file("report.json").read_text())
    assert len([metric for metric in report["metrics"] if "ValueDrift" in metric["config"]["type"]]) == 2
    assert "<html" in artifact.file("report.html").read_text()[:1000].lower()
    evidence = json.loads(artifact.file("check.json").read_text())
    assert len(evidence["features"]) == 5
    page = artifact.file("summary.html").read_text()
    assert page.count("<rect") == 10
    assert "http" not in page.replace("http://www.w3.org/2000/svg", "")


def test_a_storm_is_caught_and_said_in_words(frozen: tuple[ReferenceSpec, ReferenceRef], tmp_path: Path) -> None:
    storm = day()["origin__departure_delay_mean_3h"] + 40
    found = checked(frozen, tmp_path, day(origin__departure_delay_mean_3h=storm))
    assert kinds(found) == {"origin__departure_delay_mean_3h": "drift"}
    assert found.findings[0].words.startswith("origin departure delay last 3 h: mean ")
    assert found.score == pytest.approx(0.4)
    assert found.prediction_psi is not None
    assert found.prediction_threshold is not None
    assert found.prediction_psi > found.prediction_threshold
    assert is_hit(found, POLICY)[0]
    assert "drift" in read_ref(found).file("summary.html").read_text()


@pytest.mark.parametrize(
    ("changes", "extra", "kind"),
    [
        ({}, {"drop": ("feature__origin__late_share_1d",)}, "missing"),
        ({"origin__late_share_1d": np.array(["much"] * 600, dtype=object)}, {}, "type"),
        ({"origin__late_share_1d": np.full(600, np.nan)}, {}, "empty"),
        ({"origin__late_share_1d": np.full(600, 0.2)}, {}, "constant"),
    ],
)
@pytest.mark.covers("drift input 2", "drift input 3")
def test_a_broken_column_is_an_incident(
    frozen: tuple[ReferenceSpec, ReferenceRef], tmp_path: Path, changes: Any, extra: Any, kind: str
) -> None:
    found = checked(frozen, tmp_path, day(**changes), **extra)
    assert (found.outcome, found.score, kinds(found)) == ("incident", None, {"origin__late_share_1d": kind})
    assert not is_hit(found, POLICY)[0]


@pytest.mark.covers("drift input 2")
def test_a_changed_schema_is_said_in_one_line_each(frozen: tuple[ReferenceSpec, ReferenceRef], tmp_path: Path) -> None:
    words = np.array(["much"] * 600, dtype=object)
    found = checked(
        frozen,
        tmp_path,
        day(origin__late_share_1d=words),
        drop=("feature__flight__distance",),
        feature__origin__hail=pa.array([1.0] * 600),
    )
    assert [finding.words for finding in found.findings] == [
        "origin late share last 1 d: the log holds string, the reference has numbers; mend the column's producer",
        "flight distance: the column is missing from the prediction log",
    ]
    assert "the log has features that the reference lacks, which are not judged: feature__origin__hail" in found.notes


@pytest.mark.covers("drift input 6")
def test_features_from_the_future_are_an_incident(frozen: tuple[ReferenceSpec, ReferenceRef], tmp_path: Path) -> None:
    few, many = (pa.array([-60.0] * number + [60.0] * (600 - number)) for number in (20, 60))
    assert checked(frozen, tmp_path / "few", day(), age__origin=few).outcome == "checked"
    found = checked(frozen, tmp_path / "many", day(), age__origin=many)
    assert found.outcome == "incident"
    assert found.notes[-1] == (
        "view 'origin' is younger than the request in 10.0% of requests; a clock has gone back, mend it"
    )


@pytest.mark.covers("drift input 5")
def test_requests_that_were_logged_twice_count_once(frozen: tuple[ReferenceSpec, ReferenceRef], tmp_path: Path) -> None:
    ids = [f"request {number % 590}" for number in range(600)]
    found = checked(frozen, tmp_path, day(), request_id=ids)
    assert (found.outcome, found.rows) == ("checked", 590)
    assert found.notes == ("10 repeated request ids left out, the first answer counts",)


@pytest.mark.covers("drift input 4")
def test_new_categories_only_are_drift_of_that_column_alone(
    frozen: tuple[ReferenceSpec, ReferenceRef], tmp_path: Path
) -> None:
    new = np.array(["N1", "N2"] * 300, dtype=object)
    found = checked(frozen, tmp_path, day(flight__carrier=new))
    assert (found.outcome, kinds(found)) == ("checked", {"flight__carrier": "unseen"})
    assert found.score == pytest.approx(0.1)


def test_all_null_rows_are_an_incident(frozen: tuple[ReferenceSpec, ReferenceRef], tmp_path: Path) -> None:
    empty = dict.fromkeys(make.NUMERIC, np.full(600, np.nan)) | {
        "flight__carrier": np.full(600, None, dtype=object),
    }
    found = checked(frozen, tmp_path, day(**empty))
    assert found.outcome == "incident"
    assert set(kinds(found).values()) == {"empty"}
    assert "(null)" in read_ref(found).file("report.html").read_text()


def test_an_online_store_that_is_behind_is_an_incident(
    frozen: tuple[ReferenceSpec, ReferenceRef], tmp_path: Path
) -> None:
    ages = pa.array([None] * 20 + [26 * 3600.0] * 20 + [60.0] * 560, pa.float64())
    hours = [make.noon(TODAY) + (number // 20) * dt.timedelta(hours=1) for number in range(600)]
    found = checked(frozen, tmp_path, day(), at=pa.array(hours, pa.timestamp("us", "UTC")), age__origin=ages)
    assert found.outcome == "incident"
    assert any("no row younger than 25 h in the hours of 6.7% of requests" in note for note in found.notes)


def test_entities_that_are_new_to_the_world_are_no_incident(
    frozen: tuple[ReferenceSpec, ReferenceRef], tmp_path: Path
) -> None:
    """A fifth of the requests name flight numbers that nobody has seen: a new timetable, and not a feed that is behind."""
    ages = pa.array([None if number % 5 == 0 else 60.0 for number in range(600)], pa.float64())
    assert checked(frozen, tmp_path, day(), age__origin=ages).outcome == "checked"


@pytest.mark.covers("field-reports 111")
def test_eight_rows_say_nothing_even_when_they_are_far_off(
    frozen: tuple[ReferenceSpec, ReferenceRef], tmp_path: Path
) -> None:
    found = checked(frozen, tmp_path, day(rows=8, origin__departure_delay_mean_3h=np.full(8, 500.0)))
    assert (found.outcome, found.rows, found.score, found.findings) == ("insufficient", 8, None, ())
    assert found.prediction_psi is None
    assert {entry.path for entry in read_ref(found).manifest.files} == {"check.json", "summary.html"}


def test_no_rows_of_the_live_version_say_nothing(frozen: tuple[ReferenceSpec, ReferenceRef], tmp_path: Path) -> None:
    logged = make.predictions(file_uri(tmp_path), TODAY, day(), sha256(b"another"))
    found = check(make.check_spec(frozen, [logged], file_uri(tmp_path)))
    assert (found.outcome, found.rows) == ("insufficient", 0)


def test_small_partitions_are_merged_and_judged_by_blocks_of_that_length(
    frozen: tuple[ReferenceSpec, ReferenceRef], tmp_path: Path
) -> None:
    uri = file_uri(tmp_path)
    logged = [
        make.predictions(uri, make.LAST + number * make.DAY, day(89 + number, 200), frozen[1].package_digest)
        for number in range(1, 8)
    ]
    found = check(make.check_spec(frozen, logged, uri))
    assert (found.outcome, found.rows, found.first, found.partition) == (
        "checked",
        600,
        logged[-3].partition,
        logged[-1].partition,
    )
    baseline = Baseline.model_validate_json(read_ref(frozen[1]).file("baseline.json").read_bytes())
    assert found.prediction_threshold == max(0.2, baseline.prediction.limit(3).psi)


def test_quality_reads_labels_of_all_given_partitions(
    frozen: tuple[ReferenceSpec, ReferenceRef], tmp_path: Path
) -> None:
    uri, logged, labels = file_uri(tmp_path), [], []
    for number in range(1, 5):
        partition, columns = make.LAST + number * make.DAY, day(89 + number)
        logged.append(make.predictions(uri, partition, columns, frozen[1].package_digest))
        wrong = {f"{partition}-{row}": int(label) for row, label in enumerate(1 - columns["label"])}
        labels.append(make.feedback(uri, partition, {**wrong, f"stranger {number}": 1}))
    found = check(make.check_spec(frozen, logged, uri, feedback=tuple(labels)))
    assert found.quality is not None
    assert found.quality.labelled == 2400
    assert found.quality.difference_upper < 0
    assert found.quality.coverage == 1
    assert (found.quality.days, found.quality.first) == (4, make.LAST + make.DAY)
    assert found.label is not None
    assert found.label.kind == "drift"
    assert found.label.words.startswith("label: '")
    assert found.estimate is not None
    assert found.estimate.log_loss < found.quality.log_loss
    page = read_ref(found).file("summary.html").read_text()
    assert "Estimate without labels: log loss" in page
    assert "(100% of the requests have a label)" in page
    assert any("4 labels belong to no request" in note for note in found.notes)
    assert "skill fell" in is_hit(found, POLICY)[1][-1]


def test_labels_of_half_a_day_say_nothing_of_quality(
    frozen: tuple[ReferenceSpec, ReferenceRef], tmp_path: Path
) -> None:
    uri, columns = file_uri(tmp_path), day()
    logged = make.predictions(uri, TODAY, columns, frozen[1].package_digest)
    early = {f"{TODAY}-{row}": int(label) for row, label in enumerate(columns["label"][:530])}
    found = check(make.check_spec(frozen, [logged], uri, feedback=(make.feedback(uri, TODAY, early),)))
    assert (found.quality, found.label) == (None, None)
    assert found.notes == ("1 days have labels for less than 90% of their requests and are left out of quality",)


def test_days_at_promotion_are_read_where_the_evaluation_has_them(tmp_path: Path) -> None:
    days = [{"day": "2013-08-30", "rows": 900, "positives": 250, "loss": 480.0} for _ in range(2)]
    with_days = make.evaluation(file_uri(tmp_path / "days"), rows=1800, positives=500, days=days)
    assert promoted(with_days).days.tolist() == [[480, 480], [250, 250], [900, 900]]  # type: ignore[union-attr]
    assert promoted(make.evaluation(file_uri(tmp_path / "none"))).days is None
    wrong = make.evaluation(file_uri(tmp_path / "wrong"), rows=1801, positives=500, days=days)
    with pytest.raises(DataFault, match="days hold 1800 rows, the reference says 1801"):
        promoted(wrong)


@pytest.mark.covers("field-reports 113")
def test_a_score_that_is_no_number_fails_the_step_for_good(
    frozen: tuple[ReferenceSpec, ReferenceRef], tmp_path: Path
) -> None:
    uri = file_uri(tmp_path)
    scores = pa.array([float("nan"), *[0.2] * 599])
    logged = make.predictions(uri, TODAY, day(), frozen[1].package_digest, score=scores)
    spec_uri, result = join(uri, "run", "spec.json"), join(uri, "run", "result.json")
    write_bytes(spec_uri, make.check_spec(frozen, [logged], uri).model_dump_json().encode())
    assert step(check, CheckSpec, [spec_uri, result]) == EXIT_BAD_DATA
    failure = failure_of(result)
    assert failure is not None
    assert "score is no finite number in 1 rows" in failure.reason


@pytest.mark.covers("drift input 1")
def test_artifacts_that_do_not_belong_together_are_refused(
    frozen: tuple[ReferenceSpec, ReferenceRef], tmp_path: Path
) -> None:
    uri = file_uri(tmp_path)
    logged = make.predictions(uri, TODAY, day(), frozen[1].package_digest)
    gone = frozen[1].model_copy(update={"uri": join(uri, "gone")})
    with pytest.raises(ArtifactMissing, match="gone"):
        check(make.check_spec((frozen[0], gone), [logged], uri))
    other = frozen[1].model_copy(update={"digest": sha256(b"rebuilt")})
    with pytest.raises(ArtifactCorrupt, match="rebuilt or altered"):
        check(make.check_spec((frozen[0], other), [logged], uri))
    with pytest.raises(DataFault, match="belongs to model 'diamonds'"):
        check(make.check_spec(frozen, [logged.model_copy(update={"model": "diamonds"})], uri))


# --- calibration --------------------------------------------------------------------------------------------------


def test_a_season_with_weather_never_triggers_though_fixed_thresholds_would_daily(
    frozen: tuple[ReferenceSpec, ReferenceRef], tmp_path: Path
) -> None:
    """decisions.md 1.2b: a day is not a random sample of the reference."""
    baseline = Baseline.model_validate_json(read_ref(frozen[1]).file("baseline.json").read_bytes())
    hits, by_fixed = [], []
    for number in range(90, 111):
        partition = make.LAST + (number - 89) * make.DAY
        logged = make.predictions(file_uri(tmp_path), partition, day(number), frozen[1].package_digest)
        window = log_window([logged], frozen[1].package_digest, POLICY.sample_rows, 1)
        found = measure_window(
            Compared(baseline, frozen[1].digest, window, labelled(window, ()), promoted(frozen[0].evaluation), POLICY)
        )
        assert found.score is not None
        assert found.prediction is not None
        hits.append(
            found.score >= POLICY.trigger_share or (found.prediction.psi or 0) >= (found.prediction_threshold or 0)
        )
        fixed = [figures.finding.weight for figures in found.features if (figures.psi or 0) > POLICY.psi_drift]
        by_fixed.append(sum(fixed))
    assert max(sum(hits[n : n + POLICY.window]) for n in range(len(hits))) < POLICY.hits
    assert min(by_fixed) >= POLICY.trigger_share


def test_a_shift_planted_in_that_season_is_caught_every_day(
    frozen: tuple[ReferenceSpec, ReferenceRef], tmp_path: Path
) -> None:
    for number in (92, 99, 106):
        columns = day(number)
        columns["origin__departure_delay_mean_3h"] = columns["origin__departure_delay_mean_3h"] + 25
        found = checked(frozen, tmp_path, columns)
        assert is_hit(found, POLICY)[0], number


def test_ninety_days_of_fifty_features_are_calibrated_in_seconds() -> None:
    rng = np.random.default_rng(1)
    days, values = np.repeat(np.arange(90), 950), rng.normal(size=(5, 90 * 950))
    started = time.process_time()
    for column in values:
        monitor("x", "numeric", 0.1, column, days, DriftPolicy())
    assert (time.process_time() - started) * 10 < 15


# --- Evidently ----------------------------------------------------------------------------------------------------


@pytest.mark.covers("field-reports 118")
def test_the_report_shows_the_figures_that_decided(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    words = np.array(["a", "b", "c"], dtype=object)
    day = np.repeat(np.arange(30), 100)
    number = monitor("number", "numeric", 0.5, rng.normal(size=3000), day, POLICY)
    word = monitor("word", "categorical", 0.5, rng.choice(words, 3000, p=[0.5, 0.497, 0.003]), day, POLICY)
    weekly = monitor("weekly", "numeric", 0.5, rng.normal(size=3000) + 9 * (day % 7 == 0), day, POLICY)
    assert weekly.weekdays  # held against fewer rows than the other two
    current = {
        "number": rng.normal(0.7, 1, 900),
        "word": rng.choice(np.array(["a", "b", "new"], dtype=object), 900),
        "weekly": rng.normal(size=900),
    }
    every = (number, word, weekly)
    figures = {each.name: measure(each, current[each.name], (make.LAST,), POLICY) for each in every}
    columns = {each.name: binned(each, figures[each.name], POLICY) for each in every}
    theirs = report(columns, tmp_path)
    assert theirs.keys() == columns.keys()
    for name, shown in theirs.items():
        assert shown == pytest.approx(figures[name].psi, abs=1e-9)
    page = (tmp_path / "report.html").read_text()
    assert "(rare)" in page
    assert "09: above" in page


# --- skew ---------------------------------------------------------------------------------------------------------


def skew_spec(
    frozen: tuple[ReferenceSpec, ReferenceRef], root: Path, columns: Mapping[str, Any], **extra: Any
) -> SkewSpec:
    """The reference's last day as if it had been served."""
    spec, uri = frozen[0], file_uri(root)
    logged = make.predictions(uri, make.LAST, columns, spec.package.digest, **extra)
    return SkewSpec(
        model=make.MODEL,
        package=spec.package,
        predictions=(logged,),
        dataset=spec.final.dataset,
        output=join(uri, "skew"),
    )


@pytest.mark.covers("decisions 3.9")
def test_what_was_served_as_stored_has_no_skew(frozen: tuple[ReferenceSpec, ReferenceRef], tmp_path: Path) -> None:
    found = compare(skew_spec(frozen, tmp_path, day(89)))
    assert (found.rows, found.unmatched, found.mismatch_share, found.worst_feature) == (600, 0, 0.0, None)
    assert found.auc_served == pytest.approx(found.auc_offline, abs=1e-4)
    assert found.auc_served is not None
    assert found.auc_served > 0.55


def test_skew_is_found_feature_by_feature(frozen: tuple[ReferenceSpec, ReferenceRef], tmp_path: Path) -> None:
    columns = day(89)
    stale = np.where(np.arange(600) < 60, 999.0, columns["weather__temp"])
    tiny = columns["flight__distance"] * (1 + 1e-9)
    carrier = np.where(np.arange(600) < 6, None, columns["flight__carrier"])
    ids = [f"{make.LAST}-{row}" if row < 590 else f"new {row}" for row in range(600)]
    changed = {**columns, "weather__temp": stale, "flight__distance": tiny, "flight__carrier": carrier}
    found = compare(skew_spec(frozen, tmp_path, changed, request_id=ids))
    assert (found.rows, found.unmatched, found.worst_feature) == (590, 10, "weather__temp")
    assert found.worst_share == pytest.approx(60 / 590)
    shares = {
        feature["feature"]: feature["share"]
        for feature in json.loads(read_ref(found).file("skew.json").read_text())["features"]
    }
    assert shares["flight__distance"] == 0
    assert shares["flight__carrier"] == pytest.approx(6 / 590)
    assert found.views == pytest.approx({"weather": 60 / 590, "origin": 0.0, "flight": 6 / 590 / 2})


def test_skew_without_a_common_request_is_refused(frozen: tuple[ReferenceSpec, ReferenceRef], tmp_path: Path) -> None:
    spec = skew_spec(frozen, tmp_path, day(89), request_id=[f"new {row}" for row in range(600)])
    with pytest.raises(DataFault, match="not one of 600 requests"):
        compare(spec)
