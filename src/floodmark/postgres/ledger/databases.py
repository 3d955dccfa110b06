"""``DatabaseRecords``: the database that each pipeline follows. Part of ``PostgresLedger``."""

from __future__ import annotations

from psycopg.rows import DictRow, dict_row

from floodmark.core.source.database import DatabaseIdentity
from floodmark.postgres.session import Reachable, open_transaction
from floodmark.postgres.sql import read_sql


class DatabaseRecords:
    """The part of ``PostgresLedger`` for the followed databases. Each method is one transaction of its own."""

    _at: Reachable

    def read_database(self, pipeline: str) -> DatabaseIdentity | None:
        with open_transaction(self._at, pipeline) as session:
            cursor = session.cursor(row_factory=dict_row)
            row = cursor.execute(read_sql("read_database"), {"pipeline": pipeline}).fetchone()
        return database_of(row) if row else None

    def record_database(self, pipeline: str, known: DatabaseIdentity | None, found: DatabaseIdentity) -> None:
        before = {f"known_{name}": value for name, value in _named(known).items()}
        with open_transaction(self._at, pipeline) as session:
            session.execute(read_sql("record_database"), {"pipeline": pipeline, **before, **_named(found)})

    def confirm_database(self, pipeline: str, found: DatabaseIdentity, confirmed_by: str) -> None:
        named = {"pipeline": pipeline, "confirmed_by": confirmed_by, **_named(found)}
        with open_transaction(self._at, pipeline) as session:
            session.execute(read_sql("confirm_database"), named)


def database_of(row: DictRow) -> DatabaseIdentity | None:
    """Return the database of a row with the columns of ``followed_databases``; None where they are NULL."""
    if row["server_name"] is None:
        return None
    return DatabaseIdentity(
        row["server_name"], row["database_name"], _text(row["database_guid"]), _text(row["group_database_id"])
    )


def _named(identity: DatabaseIdentity | None) -> dict[str, str | None]:
    if identity is None:
        return dict.fromkeys(("server", "database", "guid", "group_id"))
    return {
        "server": identity.server,
        "database": identity.database,
        "guid": identity.guid,
        "group_id": identity.group_id,
    }


def _text(value: object) -> str | None:
    return None if value is None else str(value)
