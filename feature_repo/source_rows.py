"""The rows behind a Feast file source, as a Spark frame whose times are all UTC instants in microseconds.

A source tagged ``artifacts`` reads what the manifests below that URI name, each file verified, and nothing else: attempts
that were replaced lie beside the live ones (design 3.4). Any other path is the user's own Parquet: file, folder or glob.
"""

from __future__ import annotations

import datetime as dt
import glob
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
from feast import FileSource
from feast.data_format import ParquetFormat
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  the name that Spark's own documentation uses
from pyspark.sql.types import DataType, DateType, TimestampNTZType, TimestampType

from artifacts import store
from artifacts.refs import Uri, join
from artifacts.step import DataFault
from feature_repo import spark
from feature_repo.offline_store import ARTIFACTS_TAG
from feature_repo.tables import schema_problems

NANOSECONDS = "spark.sql.legacy.parquet.nanosAsLong"  # without it Spark refuses the Parquet that pandas writes

Span = tuple[dt.datetime | None, dt.datetime | None]
"""Rows with an event at or before the first instant, or after the second one, are not needed; None: no such bound."""


@dataclass(frozen=True)
class Wanted:
    """What is asked of one feature view. ``keys``: the entity frame's column -> the source's; ``features`` likewise.

    ``declared`` are the source's columns of all features of the view, asked for or not.
    """

    view: str
    source: Any
    keys: dict[str, str]
    features: dict[str, str]
    event: str
    available: str | None
    ttl: dt.timedelta | None
    delay: dt.timedelta = dt.timedelta(0)
    declared: tuple[str, ...] = ()


@dataclass
class Rows:
    """The rows of one source. Columns are found by the source's names and are called ``s0``, ``s1`` and so on in Spark:
    names with dots, capitals or quotes are a user's right, and Spark's own rules for them depend on its settings.
    """

    place: str
    names: Sequence[str]
    frame: DataFrame
    blank: frozenset[str] | None = None

    def all_null(self, name: str) -> bool:
        """Whether there are rows, and a column holds nothing in any of them; ``blank`` has the answer where it is known."""
        if self.blank is not None:
            return name in self.blank
        return self.frame.where(self.column(name).isNotNull()).isEmpty() and not self.frame.isEmpty()

    def missing(self, view: str, columns: Iterable[str]) -> list[str]:
        """One line per column that the source lacks."""
        return [
            f"{self.place}: {column}: feature view '{view}' needs this column; the source has {list(self.names)}"
            for column in columns
            if column not in self.names
        ]

    def column(self, name: str) -> Column:
        """A column by the source's name."""
        return F.col(self._spark_name(name))

    def kind(self, name: str) -> DataType:
        """Its type in Spark."""
        return self.frame.schema[self._spark_name(name)].dataType

    def instant(self, view: str, name: str) -> Column:
        """A column that holds instants; raises DataFault when it holds anything else."""
        if not isinstance(self.kind(name), TimestampType | DateType):
            raise DataFault([
                f"{self.place}: {name}: type is {self.kind(name).simpleString()}, feature view '{view}' needs instants there; "
                "write the column as timestamp[us, UTC]"
            ])
        return self.column(name).cast(TimestampType())

    def _spark_name(self, name: str) -> str:
        return f"s{list(self.names).index(name)}"


@dataclass
class SourceReader:
    """Reads sources for one call; each artifact is verified once, however many views lie in it."""

    session: SparkSession
    repo_path: Path | None
    _artifacts: dict[Uri, list[store.Artifact]] = field(default_factory=dict)

    def read(self, source: object, view: str, event: str, span: Span = (None, None)) -> Rows:
        """The rows of a view's source; raises DataFault when it is no Parquet file source, or when nothing is there."""
        if not isinstance(source, FileSource) or not isinstance(source.file_format, ParquetFormat | None):
            raise DataFault([
                f"feature view '{view}': batch_source: is a {type(source).__name__}, this store reads Parquet FileSources"
            ])
        return self._published(source, event, span) if ARTIFACTS_TAG in source.tags else self._plain(source, view)

    def _published(self, source: FileSource, event: str, span: Span) -> Rows:
        root, name = source.tags[ARTIFACTS_TAG], source.path.rsplit("/", 1)[-1]
        if root not in self._artifacts:
            self._artifacts[root] = [store.read(join(root, child)) for child in store.children(root)]
        files = published_files(root, name, self._artifacts[root])
        table = read_files(files, event, span)
        blank = frozenset(entry for entry in table.column_names if 0 < table.num_rows == table[entry].null_count)
        return replace(_rows(f"{root}/*/{name}", spark.frame(self.session, table)), blank=blank)

    def _plain(self, source: FileSource, view: str) -> Rows:
        place = FileSource.get_uri_for_file_path(self.repo_path, source.path)
        files = _local_files(place)
        if files == []:
            raise DataFault([f"{place}: feature view '{view}': there is no Parquet file here"])
        self.session.conf.set(NANOSECONDS, "true")
        read = _rows(place, self.session.read.parquet(place))
        written = ds.dataset(files, format="parquet").schema if files else pa.schema([])
        fine = {name for name in written.names if _nanoseconds(written.field(name).type)}
        whole = [_whole(f"s{n}").alias(f"s{n}") if name in fine else f"s{n}" for n, name in enumerate(read.names)]
        return Rows(place, read.names, read.frame.select(*whole))


def checked(reader: SourceReader, view: Wanted, span: Span = (None, None), *, strict: bool = False) -> Rows:
    """The rows of a view's source; raises DataFault when a column that the view names is not there."""
    if strict and view.available is None:
        raise DataFault([
            f"feature view '{view.view}': created_timestamp_column: the source names none, so nobody can tell what was known "
            "at an instant; name the column that says when a row became available"
        ])
    rows = reader.read(view.source, view.view, view.event, span)
    clocks = [view.event, *([view.available] if view.available else [])]
    problems = rows.missing(view.view, [*view.keys.values(), *clocks, *view.features.values()])
    if problems:
        raise DataFault(problems)
    if view.available and rows.all_null(view.available):
        raise DataFault([
            f"{rows.place}: {view.available}: is null in every row, so no row of feature view '{view.view}' was ever "
            "available; fill the column, or leave created_timestamp_column out of the source"
        ])
    return rows


def clocks(rows: Rows, view: Wanted) -> tuple[Column, Column]:
    """Event time and available time; a source that names no second clock knew each row at its event."""
    event = rows.instant(view.view, view.event)
    return event, rows.instant(view.view, view.available) if view.available else event


def published_files(root: Uri, name: str, found: Sequence[store.Artifact]) -> list[Path]:
    """The verified files of that name in some artifacts; raises DataFault when there is no artifact or one lacks the file."""
    if not found:
        raise DataFault([f"{root}: nothing has been published here; run feature_repo.build first"])
    lacking = [artifact.uri for artifact in found if name not in {entry.path for entry in artifact.manifest.files}]
    if lacking:
        raise DataFault(f"{uri}: {name}: file is missing; build these hours again" for uri in lacking)
    return [artifact.file(name) for artifact in found]


def read_files(files: Sequence[Path], event: str, span: Span) -> pa.Table:
    """All files as one table; raises DataFault with a line per file whose columns are not those of the last one."""
    dataset = ds.dataset([str(path) for path in files], format="parquet")
    fragments = list(dataset.get_fragments())
    wanted = fragments[-1].physical_schema
    problems = [line for part in fragments for line in schema_problems(part.path, part.physical_schema, wanted)]
    if problems:
        raise DataFault(problems)
    if event not in wanted.names:
        return dataset.head(0)  # the caller names the column that is missing
    after, until = span
    bounds = [ds.field(event) > pa.scalar(after, wanted.field(event).type)] if after else []
    bounds += [ds.field(event) <= pa.scalar(until, wanted.field(event).type)] if until else []
    return dataset.to_table(filter=_all(bounds))


def _all(bounds: Sequence[ds.Expression]) -> ds.Expression | None:
    return bounds[0] & bounds[1] if len(bounds) > 1 else next(iter(bounds), None)


def _local_files(place: str) -> list[str] | None:
    """Some of the Parquet files of a local path, enough to see their schema; None when the path lies elsewhere."""
    path = place.removeprefix("file://")
    if "://" in path:
        return None
    found = [Path(name) for name in sorted(glob.glob(path))]  # noqa: PTH207  the pattern may be absolute
    files = [file for name in found for file in ([name] if name.is_file() else sorted(name.rglob("*.parquet")))]
    return [str(file) for file in files[:1]]


def _nanoseconds(kind: pa.DataType) -> bool:
    return pa.types.is_timestamp(kind) and kind.unit == "ns"


def _whole(name: str) -> Column:
    """Nanoseconds as an instant, rounded up: a row must never look as if it had been known earlier than it was."""
    return F.expr(f"timestamp_micros(({name} - pmod({name}, 1000)) div 1000 + if(pmod({name}, 1000) > 0, 1, 0))")


def _rows(place: str, frame: DataFrame) -> Rows:
    """Columns by position, zoneless times read as UTC."""
    names = list(frame.columns)
    frame = frame.toDF(*(f"s{number}" for number in range(len(names))))
    zoneless = {entry.name for entry in frame.schema if isinstance(entry.dataType, TimestampNTZType)}
    return Rows(
        place,
        names,
        frame.select(
            *(F.col(name).cast(TimestampType()).alias(name) if name in zoneless else name for name in frame.columns)
        ),
    )
