"""Checks one artifact against its suite with Great Expectations on Spark; the report is published whatever it says.

A check that could not run is a failure: each expectation carries a key in its meta, the keys that come back are compared
with the suite's (Great Expectations can leave out what failed, fivetran/great_expectations#8548), and a raised exception
counts as a failure with the column named. Only this module touches Great Expectations.
"""

from __future__ import annotations

import functools
import os
import shutil
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

os.environ["GX_ANALYTICS_ENABLED"] = "false"  # before the import, which reads it

import great_expectations as gx
import great_expectations.expectations as gxe
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from great_expectations.data_context.types.base import ProgressBarsConfig
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from artifacts.step import DataFault, progress, step
from artifacts.store import Artifact, publish, read_ref
from feature_repo import outcomes as said
from feature_repo.contract import RAW_TABLES, ValidateSpec, ValidationRef
from feature_repo.expectations import raw_day, training_set
from feature_repo.expectations.rules import Rule, TableSuite
from feature_repo.expectations_page import page
from feature_repo.leaks import leaks
from feature_repo.outcomes import Outcome
from feature_repo.spark import frame as in_spark
from feature_repo.spark import session

SITE = "docs"
UNREAD_FOLDERS = ("fonts", "images")  # 4 MB a report; the pages read well without
SMALL_ROWS = 20_000
OPTIONS = {
    "spark.sql.adaptive.enabled": "false",  # halves the jobs
    "spark.sql.timestampType": "TIMESTAMP_NTZ",  # else a timestamp without a zone is quietly given one
}
FILES = {"raw_day": RAW_TABLES, "training_set": ("rows",)}


def validate(spec: ValidateSpec) -> ValidationRef:
    """Checks the target; returns only when every critical expectation held, else raises DataFault, a line per failure.

    Either way the report (``summary.html``, Data Docs at ``index.html``, ``results.json``) lies at ``spec.output``.
    """
    if spec.suite not in FILES:
        raise DataFault([f"suite: there is no suite '{spec.suite}'; there are {sorted(FILES)}"])
    artifact = read_ref(spec.target)
    outcomes, tables = open_tables(artifact, FILES[spec.suite])
    suites, notes = _suites(spec, tables)
    with publish(spec.output, "validation") as draft:
        outcomes += _run(suites, artifact, tables, draft.path)
        if spec.suite == "training_set" and tables:
            progress(0.9, "looking for leaks")
            outcomes += _leaks(tables["rows"], spec)
        failures = said.lines(outcomes, "critical")
        warnings = (*notes, *said.lines(outcomes, "warning"))
        (draft.path / "results.json").write_text(said.report(spec, outcomes, failures, warnings))
        (draft.path / "summary.html").write_text(page(spec, outcomes, failures, warnings))
        draft.facts.update(suite=spec.suite, target=spec.target.digest, failures=len(failures), warnings=len(warnings))
    if failures or draft.manifest is None:
        raise DataFault([*failures, f"the whole report: {spec.output}"])
    return ValidationRef(
        uri=spec.output,
        digest=draft.manifest.digest,
        suite=spec.suite,
        target=spec.target.digest,
        expectations=len(outcomes),
        warnings=warnings,
    )


def open_tables(artifact: Artifact, names: Iterable[str]) -> tuple[list[Outcome], dict[str, pa.Table]]:
    """The tables that can be read, and a failure for each that cannot."""
    faults, tables = [], {}
    held = {entry.path for entry in artifact.manifest.files}
    for name in names:
        file = f"{name}.parquet"
        if file not in held:
            faults.append(
                said.failed(name, "expect_file_to_exist", None, f"{artifact.uri} has no {file}; it has {sorted(held)}")
            )
            continue
        try:
            tables[name] = pq.read_table(artifact.path / file)
        except pa.ArrowException as error:
            first = str(error).splitlines()[0]
            faults.append(
                said.failed(name, "expect_file_to_be_parquet", None, f"{artifact.uri}: {file} cannot be read: {first}")
            )
    return faults, tables


def _suites(spec: ValidateSpec, tables: Mapping[str, pa.Table]) -> tuple[tuple[TableSuite, ...], tuple[str, ...]]:
    """The suites of the tables that are there, and a line per check that is left out."""
    if spec.suite == "raw_day":
        suites, notes = raw_day.suites(_counts(tables), spec.volume_history, spec.policy)
    else:
        suites, notes = training_set.suites(spec.volume_history, spec.policy)
    return tuple(suite for suite in suites if suite.table in tables), notes


def _counts(tables: Mapping[str, pa.Table]) -> dict[str, int]:
    """How many flights were scheduled and how many departed; left out when the columns are not there to say so."""
    counts = {}
    schedule, departure = tables.get("schedule"), tables.get("departure")
    if schedule is not None and "flight_id" in schedule.column_names:
        counts["schedule"] = pc.count_distinct(schedule["flight_id"]).as_py()
    if departure is not None and {"flight_id", "cancelled"} <= _booleans_and_texts(departure):
        flown = departure.filter(pc.invert(departure["cancelled"]))  # null counts as neither
        counts["departed"] = pc.count_distinct(flown["flight_id"]).as_py()
    return counts


def _booleans_and_texts(table: pa.Table) -> set[str]:
    return {entry.name for entry in table.schema if pa.types.is_boolean(entry.type) or pa.types.is_string(entry.type)}


def _leaks(table: pa.Table, spec: ValidateSpec) -> list[Outcome]:
    """The leak outcomes of every feature; a failure when there is no label to judge by."""
    if "label" not in table.column_names or table["label"].null_count or not pa.types.is_integer(table["label"].type):
        return [said.failed("rows", "expect_no_leaks", "label", "could not run: no whole column of integer labels")]
    features = {name: _array(table[name]) for name in table.column_names if name not in training_set.NOT_FEATURES}
    return leaks(features, table["label"].to_numpy(), spec.policy)


def _array(column: pa.ChunkedArray) -> np.ndarray:
    """Numbers as float with NaN for null; everything else as objects with None for null."""
    if pa.types.is_floating(column.type) or pa.types.is_integer(column.type):
        return column.cast(pa.float64()).to_numpy()
    return column.cast(pa.string()).to_numpy(zero_copy_only=False)


# --- Great Expectations ----------------------------------------------------------------------------------------------


def _run(
    suites: tuple[TableSuite, ...], artifact: Artifact, tables: Mapping[str, pa.Table], site: Path
) -> list[Outcome]:
    """Runs the suites in one Spark session and writes Data Docs into ``site``."""
    context = _context(site)
    outcomes: list[Outcome] = []
    with session("perennial-validate") as spark:
        for option, value in OPTIONS.items():
            spark.conf.set(option, value)
        source = context.data_sources.add_spark("artifact", force_reuse_spark_context=True, persist=False)
        for number, suite in enumerate(suites):
            progress(0.1 + 0.8 * number / len(suites), f"checking {suite.table}")
            try:
                frame = _frame(spark, artifact, suite.table, tables[suite.table])
            except (PySparkException, pa.ArrowException) as error:
                outcomes.append(said.failed(suite.table, "expect_spark_to_read_it", None, str(error).splitlines()[0]))
                continue
            found = _validate_table(context, source, suite, frame)
            outcomes += said.judge(suite, found, frame.columns, functools.partial(_first_keys, frame, suite))
    progress(0.9, "writing the report")
    context.build_data_docs(site_names=[SITE])
    for folder in UNREAD_FOLDERS:
        shutil.rmtree(site / "static" / folder, ignore_errors=True)
    return outcomes


def _frame(spark: SparkSession, artifact: Artifact, name: str, table: pa.Table) -> DataFrame:
    """A table in Spark: by path where the executors see this disk, else by value.

    It is not kept in memory: nearly every check reads one or two of sixty columns, and Parquet gives it just those. For
    218 thousand rows that took 26 s of processor time, keeping them first 41 s. For a day's few rows compiling code
    costs more than it saves (19 s against 10 s).
    """
    compiled = table.num_rows > SMALL_ROWS
    spark.conf.set("spark.sql.codegen.wholeStage", str(compiled).lower())
    spark.conf.set("spark.sql.codegen.factoryMode", "FALLBACK" if compiled else "NO_CODEGEN")
    if spark.sparkContext.master.startswith("local"):
        return spark.read.parquet(str(artifact.path / f"{name}.parquet"))
    return in_spark(spark, table)


def _context(site: Path) -> Any:
    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = ProgressBarsConfig(globally=False)
    for name, config in dict(context.list_data_docs_sites()).items():
        shutil.rmtree(config["store_backend"]["base_directory"], ignore_errors=True)  # a temporary folder of its own
        context.delete_data_docs_site(name)
    backend = {"class_name": "TupleFilesystemStoreBackend", "base_directory": str(site)}
    builder = {"class_name": "DefaultSiteIndexBuilder"}
    context.add_data_docs_site(
        SITE, {"class_name": "SiteBuilder", "store_backend": backend, "site_index_builder": builder}
    )
    return context


def _validate_table(context: Any, source: Any, suite: TableSuite, frame: DataFrame) -> dict[str, dict[str, Any]]:
    """Rule key -> what came back for it; a key that did not come back is absent.

    The first pass asks for booleans only, which costs one scan for most rules together; what did not hold is asked
    again for its counts and examples, which costs a scan or two per rule.
    """
    batch = source.add_dataframe_asset(suite.table).add_batch_definition_whole_dataframe("whole")

    def ask(name: str, rules: Iterable[Rule], result_format: str) -> dict[str, dict[str, Any]]:
        expectations = gx.ExpectationSuite(name=name, expectations=[_expectation(rule) for rule in rules])
        definition = gx.ValidationDefinition(name=name, data=batch, suite=context.suites.add(expectations))
        result = context.validation_definitions.add(definition).run(
            batch_parameters={"dataframe": frame}, result_format=result_format
        )
        return {
            one.expectation_config.meta["key"]: {
                "success": one.success,
                "result": one.result,
                "exception_info": one.exception_info,
            }
            for one in result.results
        }

    found = ask(suite.table, suite.rules, "BOOLEAN_ONLY")
    broken = [rule for rule in suite.rules if rule.key in found and not found[rule.key]["success"]]
    if broken:
        found |= ask(f"{suite.table} failures", broken, "SUMMARY")
    return found


def _expectation(rule: Rule) -> Any:
    return getattr(gxe, rule.kind)(**rule.kwargs, severity=rule.severity, meta={"key": rule.key})


def _first_keys(frame: DataFrame, suite: TableSuite, condition: str) -> list[str]:
    """The keys of the first rows that meet a condition."""
    names = [name for name in suite.row_key if name in frame.columns]
    rows = frame.where(condition).select(*names).orderBy(*names).limit(said.EXAMPLES).collect()
    return ["/".join(str(value) for value in row) for row in rows]


if __name__ == "__main__":
    sys.exit(step(validate, ValidateSpec))
