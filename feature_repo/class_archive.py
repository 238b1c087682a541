"""Makes an archive of the classes that Spark loads, so that a session starts in about half the time; set-up runs it once.

A JVM that finds the archive maps its classes instead of reading and verifying ten thousand of them (Java's class data
sharing). It fits one Java and one set of jars; any other JVM leaves it aside and starts as it would without.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812  the name that Spark's own documentation uses

from feature_repo import spark

END_SECONDS = 120.0  # the JVM writes the archive when it ends


def make(archive: Path) -> None:
    """Writes the archive, whole or not at all; raises RuntimeError when Java left none."""
    draft = archive.with_suffix(f".{os.getpid()}")
    os.environ["PERENNIAL_SPARK_JAVA_OPTIONS"] = f"{spark.JAVA_OPTIONS} -XX:ArchiveClassesAtExit={draft} -Xlog:cds=off"
    with spark.session("perennial-class-archive") as session, tempfile.TemporaryDirectory() as folder:
        _work(session, Path(folder))
        gateway = session.sparkContext._gateway
    gateway.shutdown()
    gateway.proc.stdin.close()  # the JVM ends with it
    gateway.proc.wait(END_SECONDS)
    if not draft.exists():
        raise RuntimeError(f"{archive}: Java wrote no archive; sessions work without it, and start some seconds later")
    draft.replace(archive)


def _work(session: SparkSession, folder: Path) -> None:
    """A little of everything that the steps do: Parquet and Arrow in and out, joins, windows and aggregates, both ways to run."""
    rows = pa.table({"key": ["a", "b"] * 50, "at": list(range(100)), "value": [0.5] * 100})
    file = str(folder / "rows.parquet")
    spark.frame(session, rows).write.parquet(file)
    for compiled in ("true", "false"):
        session.conf.set("spark.sql.codegen.wholeStage", compiled)
        session.conf.set("spark.sql.codegen.factoryMode", "FALLBACK" if compiled == "true" else "NO_CODEGEN")
        frame = session.read.parquet(file)
        frame.createOrReplaceTempView("rows")
        session.sql("SELECT COUNT(*) FROM rows WHERE value IS NULL").collect()
        _queries(frame)


def _queries(frame: DataFrame) -> None:
    seen = Window.partitionBy("key").orderBy("at").rowsBetween(Window.unboundedPreceding, 0)
    best = frame.withColumn("best", F.max(F.struct("at", "value")).over(seen)).select("key", "at", "best.value")
    counts = frame.groupBy("key").agg(
        F.count("*").alias("rows"), F.sum("value").alias("sum"), F.max("at").alias("last")
    )
    best.join(counts, "key", "left").unionByName(frame, allowMissingColumns=True).toArrow()
    frame.where("value > 0").select(F.count_distinct("key"), F.min("value"), F.avg("value")).collect()
    frame.orderBy("at").limit(5).toArrow()


if __name__ == "__main__":
    make(Path(sys.argv[1]))
