"""The one way to a Spark session: local by default, any master by settings, always UTC, always stopped."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict
from pyspark.sql import DataFrame, SparkSession

JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
ARCHIVE = Path(sys.prefix) / "spark.jsa"
"""Where set-up keeps the classes that Spark loads (feature_repo/class_archive.py); it belongs to the environment's jars."""


def java_options(archive: Path) -> str:
    """The driver's options, with the class archive where there is one; one that does not fit is left aside without a word."""
    return f"{JAVA_OPTIONS} -XX:SharedArchiveFile={archive} -Xlog:cds=off" if archive.exists() else JAVA_OPTIONS


class SparkSettings(BaseSettings):
    """How Spark runs, from ``PERENNIAL_SPARK_*``."""

    model_config = SettingsConfigDict(env_prefix="PERENNIAL_SPARK_", frozen=True)

    master: str = "local[2]"
    driver_memory: str = "2g"
    shuffle_partitions: int = Field(
        default=64,
        gt=0,
        description="Most pieces that a shuffle makes. Spark joins small ones again, to no fewer than it has cores; of a "
        "result each piece crosses the driver's heap whole, so the pieces of a large one must be many.",
    )
    java_options: str = Field(
        default_factory=lambda: java_options(ARCHIVE),
        description="For the driver; a session that lives a minute spends more on the optimising compiler than it gains. "
        f"When it is not set: `{JAVA_OPTIONS}`, and the archive of Spark's classes that set-up makes.",
    )


def running(name: str) -> SparkSession:
    """The session that is running in this process, or a new one; whoever owns the process stops it.

    Raises ValueError when the session's time zone is not UTC: text and zoneless times would be read in another zone.
    """
    spark = SparkSession.getActiveSession() or _start(name)
    if spark.conf.get("spark.sql.session.timeZone") not in {"UTC", "Etc/UTC", "Z", "+00:00"}:
        raise ValueError(
            f"spark.sql.session.timeZone: is {spark.conf.get('spark.sql.session.timeZone')}, it must be UTC; "
            "remove it from the site's configuration, or set it on the session"
        )
    return spark


@contextmanager
def session(name: str) -> Iterator[SparkSession]:
    """A session for one step; stopped when the block ends, also after an error, so no driver is left behind."""
    spark = _start(name)
    try:
        yield running(name)
    finally:
        spark.stop()


@contextmanager
def starting(name: str) -> Iterator[Callable[[], SparkSession]]:
    """A session that starts beside the block's first work, such as reading; call what is yielded to wait for it.

    The start is three seconds of another process, so a step that reads meanwhile has them for nothing.
    """
    with ThreadPoolExecutor(1) as pool:
        begun = pool.submit(_start, name)

        def started() -> SparkSession:
            begun.result()
            return running(name)

        try:
            yield started
        finally:
            if begun.exception() is None:  # waits: a session that is still starting would be left behind
                begun.result().stop()


def _start(name: str) -> SparkSession:
    options = SparkSettings()
    os.environ["PYSPARK_PYTHON"] = sys.executable  # else workers take the first python3 on PATH, which lacks pyarrow
    spark: SparkSession = (
        SparkSession.builder
        .master(options.master)
        .appName(name)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", options.driver_memory)
        .config("spark.driver.extraJavaOptions", options.java_options)
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", str(options.shuffle_partitions))
        .config("spark.driver.maxResultSize", "0")  # results pass through to Python piece by piece, they do not pile up
        .config(
            "spark.sql.adaptive.advisoryPartitionSizeInBytes", "16m"
        )  # about 50 MB of a result, once it is not compressed
        # a frame from Arrow has a task per batch: 10,000 rows, Spark's default, are 223 tasks for the largest view of a year
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "50000")
        # rows from Arrow stay Arrow until a task reads them; else up to 48 MB travel row by row inside the tasks (3 x the CPU)
        .config("spark.sql.execution.arrow.localRelationThreshold", "0")
        # a result's columns are memory of their own, so that one can be put in order and let go before the next
        .config("spark.sql.execution.arrow.pyspark.selfDestruct.enabled", "true")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.catalogImplementation", "in-memory")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def frame(session: SparkSession, table: pa.Table) -> DataFrame:
    """An Arrow table in Spark: the very bytes that were verified, and on any master, without a file system in common."""
    return session.createDataFrame(table.combine_chunks())


def pieces(session: SparkSession, wanted: float) -> None:
    """Sets how many pieces a shuffle makes where Spark does not find out itself: one per core at least, at most the setting."""
    least = session.sparkContext.defaultParallelism
    count = max(least, min(math.ceil(wanted), SparkSettings().shuffle_partitions))
    session.conf.set("spark.sql.shuffle.partitions", str(count))
