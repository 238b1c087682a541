"""Runs suites with Great Expectations on one Spark session, within a time budget; only this module touches Great Expectations.

Each expectation carries a key in its meta, and what comes back is matched by key, since Great Expectations can leave out
what failed (fivetran/great_expectations#8548). The context lives in memory and frames are passed at run time, so nothing
has to be saved or pickled.
"""

from __future__ import annotations

import os
import queue
import shutil
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ["GX_ANALYTICS_ENABLED"] = "false"  # before the import, which reads it

import great_expectations as gx
import great_expectations.expectations as gxe
import pyarrow as pa
import pyarrow.parquet as pq
from great_expectations.data_context.types.base import ProgressBarsConfig
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from artifacts.step import progress
from feature_repo import outcomes as said
from feature_repo.contract import CheckPolicy
from feature_repo.expectations.rules import SAMPLED, Check, Rule, TableSuite
from feature_repo.outcomes import BadRow, Outcome
from feature_repo.spark import frame as in_spark
from feature_repo.spark import pieces

SITE = "docs"
UNREAD_FOLDERS = ("fonts", "images")  # 4 MB a report; the pages read well without
ROW_GROUP = 50_000  # Spark reads the groups of a file at once; of a file with a single one it uses a single core
PIECE_ROWS = 250_000  # per piece of the shuffle that finds repeated keys
SMALL_ROWS = 20_000
DESKS = 2  # checks at once: the engine plans each query on one core, and 7 views one after another took 1.2 of two
OPTIONS = {
    "spark.sql.adaptive.enabled": "false",  # halves the jobs
    "spark.sql.timestampType": "TIMESTAMP_NTZ",  # else a timestamp without a zone is quietly given one
}
Found = dict[str, dict[str, Any]]
"""Rule key -> the engine's success, result and exception_info."""


class Budget:
    """The time that the checks of a step may take; when it is spent, the Spark jobs that still run are cancelled."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._until = time.monotonic() + seconds

    @property
    def spent(self) -> bool:
        """Whether the time is over."""
        return time.monotonic() >= self._until

    @contextmanager
    def cancels(self, spark: SparkSession) -> Iterator[None]:
        """Cancels what runs in the session at the moment when the time is over, while the block lasts."""
        timer = threading.Timer(max(0.0, self._until - time.monotonic()), spark.sparkContext.cancelAllJobs)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            timer.join()  # one that has begun must not find the session stopped


@dataclass(frozen=True)
class Desk:
    """Where one check at a time is done: a session with settings and temporary views of its own, and its data source."""

    spark: SparkSession
    source: Any

    @classmethod
    def new(cls, context: Any, spark: SparkSession, number: int) -> Desk:
        """A desk in the Spark application of ``spark``."""
        own = spark.newSession()
        for option, value in OPTIONS.items():
            own.conf.set(option, value)
        source = context.data_sources.add_spark(f"artifact {number}", force_reuse_spark_context=True, persist=False)
        source.get_execution_engine().spark = own  # it takes the first session, which does not see this one's views
        return cls(own, source)


def run(
    checks: Sequence[Check], policy: CheckPolicy, site: Path, spark: SparkSession
) -> tuple[list[Outcome], list[BadRow]]:
    """One outcome per rule of every check, and rows that broke one; writes Data Docs into ``site``."""
    context = _context(site)
    budget = Budget(policy.budget.total_seconds())
    desks: queue.SimpleQueue[Desk] = queue.SimpleQueue()
    for number in range(DESKS):
        desks.put(Desk.new(context, spark, number))
    with tempfile.TemporaryDirectory(prefix="perennial-checks-") as scratch, budget.cancels(spark):

        def one(number: int, check: Check) -> tuple[list[Outcome], list[BadRow]]:
            desk = desks.get()
            file = Path(scratch) / f"{number}.parquet"
            try:
                return _check(context, desk, check, policy, budget, file)
            finally:
                file.unlink(missing_ok=True)
                desks.put(desk)

        with ThreadPoolExecutor(DESKS) as pool:
            asked = [pool.submit(one, number, check) for number, check in enumerate(checks)]
            for number, (check, done) in enumerate(zip(checks, asked, strict=True)):
                progress(0.1 + 0.7 * number / len(checks), f"checking {check.label}")
                done.exception()  # waits; what it raised is raised below, when the others have ended
    found = [done.result() for done in asked]
    progress(0.85, "writing the report")
    context.build_data_docs(site_names=[SITE])
    for folder in UNREAD_FOLDERS:
        shutil.rmtree(site / "static" / folder, ignore_errors=True)
    outcomes = [outcome for of_check, _ in found for outcome in of_check]
    return outcomes, said.share_out([row for _, rows in found for row in rows], policy.bad_rows)


def _check(
    context: Any, desk: Desk, check: Check, policy: CheckPolicy, budget: Budget, file: Path
) -> tuple[list[Outcome], list[BadRow]]:
    if budget.spent:
        return said.not_run(check.label, check.suite, said.over_time(budget.seconds)), []
    try:
        table = check.read()
        frame = _frame(desk.spark, table, file)
    except (PySparkException, pa.ArrowException) as error:
        return [said.failed(check.label, "expect_spark_to_read_it", None, str(error).splitlines()[0])], []
    found = _ask_all(context, desk.source, check, frame, table.num_rows, policy)
    late = said.over_time(budget.seconds) if budget.spent else ""
    detailed = [rule.key for rule in check.suite.rules if found.get(rule.key, {}).get("detailed")]
    most = max(1, policy.bad_rows // max(1, len(detailed)))

    def sample(rule: Rule) -> list[BadRow]:
        return bad_rows(frame, check, rule, limit=most) if rule.key in detailed else []

    return said.judge(check.label, check.suite, found, frame.columns, sample, late)


def _frame(spark: SparkSession, table: pa.Table, file: Path) -> DataFrame:
    """A table in Spark: through a file where the executors see this disk, else by value.

    It is not kept in memory: nearly every check reads a few of a hundred columns, and Parquet gives it just those. For
    218 thousand rows that took 26 s of processor time, keeping them first 41 s. For a day's few rows compiling code
    costs more than it saves (19 s against 10 s).
    """
    compiled = table.num_rows > SMALL_ROWS
    pieces(spark, table.num_rows / PIECE_ROWS)
    spark.conf.set("spark.sql.codegen.wholeStage", str(compiled).lower())
    spark.conf.set("spark.sql.codegen.factoryMode", "FALLBACK" if compiled else "NO_CODEGEN")
    if not spark.sparkContext.master.startswith("local"):
        return in_spark(spark, table)
    pq.write_table(table, file, coerce_timestamps="us", store_schema=False, row_group_size=ROW_GROUP)
    return spark.read.parquet(str(file))


def sampled(frame: DataFrame, suite: TableSuite, rows: int, most: int) -> DataFrame:
    """About ``most`` of the rows, the same ones each time: chosen by the hash of their key."""
    share = -(-rows // most)
    keys = ", ".join(f"`{name}`" for name in suite.row_key if name in frame.columns)
    return frame.where(f"pmod(xxhash64({keys}), {share}) = 0") if share > 1 and keys else frame


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


def _ask_all(context: Any, source: Any, check: Check, frame: DataFrame, rows: int, policy: CheckPolicy) -> Found:
    """What came back for each rule; a key that did not come back is absent.

    Booleans are asked for first: nulls, ranges and sets of all columns then cost one scan together, a condition or a
    unique key one more each. Of what did not hold the first are asked again for their counts, a scan or two per rule.
    """
    batch = source.add_dataframe_asset(check.label).add_batch_definition_whole_dataframe("whole")
    tiers = {"": (frame, check.suite.rules)}
    if rows > policy.sampled_above:
        chosen = sampled(frame, check.suite, rows, policy.sampled_above)
        tiers = {
            "": (frame, tuple(rule for rule in check.suite.rules if rule.kind not in SAMPLED)),
            " (sample)": (chosen, tuple(rule for rule in check.suite.rules if rule.kind in SAMPLED)),
        }
    found: Found = {}
    for tier, (frame_of_tier, rules) in tiers.items():
        found |= _ask(context, batch, f"{check.label}{tier}", rules, frame_of_tier, "BOOLEAN_ONLY")
        broken = [rule for rule in rules if rule.key in found and not found[rule.key]["success"]][: policy.detailed]
        if broken:
            again = _ask(context, batch, f"{check.label}{tier} failures", broken, frame_of_tier, "SUMMARY")
            found |= {key: one | {"detailed": True} for key, one in again.items()}
    return found


def _ask(context: Any, batch: Any, name: str, rules: Iterable[Rule], frame: DataFrame, result_format: str) -> Found:
    expectations = gx.ExpectationSuite(name=name, expectations=[expectation(rule) for rule in rules])
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


def expectation(rule: Rule) -> Any:
    """A rule as Great Expectations has it."""
    return getattr(gxe, rule.kind)(**rule.kwargs, severity=rule.severity, meta={"key": rule.key})


def bad_rows(frame: DataFrame, check: Check, rule: Rule, *, limit: int) -> list[BadRow]:
    """The first rows that break a rule, by day and key; none for a rule that is not about single rows."""
    rows = _broken(frame, rule)
    if rows is None:
        return []
    keys = [name for name in check.suite.row_key if name in frame.columns]
    shown = [name for name in rule.reads if name in frame.columns and name not in keys]
    order = [f"`{name}`" for name in dict.fromkeys(["partition", *keys, *shown]) if name in frame.columns]
    try:
        found = rows.select(*order).orderBy(*order).limit(limit).toArrow().to_pylist()
    except PySparkException:
        return []  # a column of another type cannot be compared; the rule has failed without an example
    return [
        BadRow(
            table=check.label,
            expectation=rule.key,
            severity=rule.severity,
            partition=str(row["partition"]) if "partition" in frame.columns else "",
            key="/".join(said.text(row[name]) for name in keys),
            values=", ".join(f"{name}={said.text(row[name])}" for name in shown),
        )
        for row in found
    ]


def _broken(frame: DataFrame, rule: Rule) -> DataFrame | None:
    if rule.broken is not None:
        return frame.where(rule.broken)
    if not rule.key.startswith("unique:"):
        return None
    names = [f"`{name}`" for name in rule.reads]
    repeated = frame.groupBy(*names).count().where("count > 1").drop("count")
    return frame.join(repeated, list(rule.reads), "left_semi")
