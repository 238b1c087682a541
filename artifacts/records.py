"""Named, versioned records with compare-and-set: routing, the replay clock, reservations.

Every version is a row of its own, so the old values stay readable and the database's primary key is the referee:
two writers that expect the same version cannot both insert the next one.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa
from pydantic import AwareDatetime, BaseModel, JsonValue

SCHEMA_VERSION = 1
SQLITE_BUSY_SECONDS = 30

metadata = sa.MetaData()

schema_table = sa.Table("perennial_schema", metadata, sa.Column("version", sa.Integer, primary_key=True))

records_table = sa.Table(
    "perennial_records",
    metadata,
    sa.Column("name", sa.String(200), primary_key=True),
    sa.Column("version", sa.Integer, primary_key=True),
    sa.Column("value", sa.JSON, nullable=False),
    sa.Column("written_at", sa.DateTime(timezone=True), nullable=False),
)


class Conflict(RuntimeError):
    """Somebody else has written this record since it was read; read it again and decide again."""


class SchemaMismatch(RuntimeError):
    """The database has another schema than this code; run ``python -m operators.ledger migrate``."""


class Record(BaseModel, frozen=True):
    """One version of a record; version 0 stands for "never written"."""

    name: str
    version: int
    value: dict[str, JsonValue]
    written_at: AwareDatetime | None = None


def connect(url: str) -> sa.Engine:
    """An engine for records and ledger. SQLite gets WAL, waits for other writers, and one connection per use."""
    if not url.startswith("sqlite"):
        return sa.create_engine(url, pool_pre_ping=True)
    engine = sa.create_engine(url, connect_args={"timeout": SQLITE_BUSY_SECONDS}, poolclass=sa.pool.NullPool)

    @sa.event.listens_for(engine, "connect")
    def _pragmas(connection: Any, _record: Any) -> None:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")

    return engine


def check_schema(engine: sa.Engine) -> None:
    """Refuses a database that the ledger has not migrated to this code's schema."""
    try:
        with engine.connect() as connection:
            version = connection.scalar(sa.select(sa.func.max(schema_table.c.version)))
    except (sa.exc.OperationalError, sa.exc.ProgrammingError) as error:
        version = None
        cause: Exception | None = error
    else:
        cause = None
    if version != SCHEMA_VERSION:
        raise SchemaMismatch(
            f"{engine.url.render_as_string(hide_password=True)}: schema is {version or 'absent'}, this code needs "
            f"{SCHEMA_VERSION}; run `python -m operators.ledger migrate`"
        ) from cause


class Records:
    """The records of one database."""

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine

    def get(self, name: str) -> Record:
        """The newest version of a record; version 0 and an empty value when nobody has written it."""
        query = (
            sa
            .select(records_table)
            .where(records_table.c.name == name)
            .order_by(records_table.c.version.desc())
            .limit(1)
        )
        with self._engine.connect() as connection:
            row = connection.execute(query).mappings().first()
        return _record(row) if row else Record(name=name, version=0, value={})

    def history(self, name: str) -> tuple[Record, ...]:
        """Every version of a record, oldest first."""
        query = sa.select(records_table).where(records_table.c.name == name).order_by(records_table.c.version)
        with self._engine.connect() as connection:
            return tuple(_record(row) for row in connection.execute(query).mappings())

    def names(self, prefix: str) -> tuple[str, ...]:
        """The names of the records that begin with a text, sorted."""
        column = records_table.c.name
        query = sa.select(column).distinct().where(column.startswith(prefix, autoescape=True)).order_by(column)
        with self._engine.connect() as connection:
            return tuple(connection.scalars(query))

    def put(self, name: str, value: Mapping[str, JsonValue], expected: int) -> Record:
        """Writes version ``expected + 1``; raises Conflict when ``expected`` is no longer the newest."""
        now = dt.datetime.now(dt.UTC)
        row = {"name": name, "version": expected + 1, "value": dict(value), "written_at": now}
        try:
            with self._engine.begin() as connection:
                newest = sa.select(sa.func.coalesce(sa.func.max(records_table.c.version), 0)).where(
                    records_table.c.name == name
                )
                if (found := connection.scalar(newest)) != expected:
                    raise Conflict(f"record '{name}' is at version {found}, not {expected}; read it again")
                connection.execute(records_table.insert().values(row))
        except sa.exc.IntegrityError as error:
            raise Conflict(f"record '{name}' got version {expected + 1} from another writer; read it again") from error
        return Record(name=name, version=expected + 1, value=dict(value), written_at=now)


def _record(row: Mapping[Any, Any]) -> Record:
    written_at = row["written_at"]
    return Record(**{**row, "written_at": written_at if written_at.tzinfo else written_at.replace(tzinfo=dt.UTC)})
