"""The ledger's tables, their migration, and the one-writer transaction that appending needs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy as sa

from artifacts.records import SCHEMA_VERSION, SchemaMismatch, metadata, schema_table

WRITER_LOCK = 7_337_313  # any number will do, as long as every writer of this database takes the same one

entries_table = sa.Table(
    "perennial_ledger",
    metadata,
    sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=False),
    sa.Column("at", sa.DateTime(timezone=True), nullable=False),
    sa.Column("recorded_at", sa.DateTime(timezone=True), nullable=False),
    sa.Column("kind", sa.String(60), nullable=False),
    sa.Column("subject", sa.String(200), nullable=False),
    sa.Column("actor", sa.String(200), nullable=False),
    sa.Column("body", sa.Text, nullable=False),  # the canonical JSON text that was hashed, kept byte for byte
    sa.Column("unique_key", sa.String(300), unique=True),
    sa.Column("previous", sa.String(71), nullable=False),
    sa.Column("digest", sa.String(71), nullable=False),
    sa.Index("perennial_ledger_kind_subject", "kind", "subject", "id"),
)

head_table = sa.Table(  # one row: without it, cutting off the newest rows would leave a chain that looks whole
    "perennial_ledger_head",
    metadata,
    sa.Column("one", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("id", sa.BigInteger, nullable=False),
    sa.Column("digest", sa.String(71), nullable=False),
)

APPEND_ONLY = """CREATE TRIGGER IF NOT EXISTS perennial_ledger_no_{verb} BEFORE {verb} ON perennial_ledger
BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END"""


@contextmanager
def one_writer(engine: sa.Engine) -> Iterator[sa.Connection]:
    """A transaction that no other writer of the ledger can run beside; it waits for the one before it."""
    if engine.dialect.name != "sqlite":
        with engine.begin() as connection:
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(WRITER_LOCK)))
            yield connection
        return
    # The driver's own BEGIN is deferred: two readers that both turn writers would fail instead of waiting.
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql("BEGIN IMMEDIATE")
        try:
            yield connection
        except BaseException:
            connection.exec_driver_sql("ROLLBACK")
            raise
        connection.exec_driver_sql("COMMIT")


def migrate(engine: sa.Engine) -> int:
    """Creates or completes the tables of records and ledger and returns the schema version; safe to repeat and to race.

    Raises SchemaMismatch when the database is newer than this code.
    """
    if engine.dialect.name == "sqlite" and engine.url.database not in {None, "", ":memory:"}:
        Path(str(engine.url.database)).parent.mkdir(parents=True, exist_ok=True)
    with one_writer(engine) as connection:
        metadata.create_all(connection)
        if engine.dialect.name == "sqlite":
            for verb in ("UPDATE", "DELETE"):
                connection.exec_driver_sql(APPEND_ONLY.format(verb=verb))
        version = connection.scalar(sa.select(sa.func.max(schema_table.c.version)))
        if version is not None and version > SCHEMA_VERSION:
            raise SchemaMismatch(
                f"the database has schema {version}, this code knows {SCHEMA_VERSION}; use the newer release"
            )
        if version is None:
            connection.execute(schema_table.insert().values(version=SCHEMA_VERSION))
    return SCHEMA_VERSION
