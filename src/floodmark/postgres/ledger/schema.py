"""The creation of the ledger's tables, once, also when several processes start it at the same time."""

from __future__ import annotations

import psycopg

from floodmark.core.doctor.engine import ENCODING, NEW_DATABASE
from floodmark.core.errors import ConfigError, WarehouseAdminError
from floodmark.postgres.session import SUBJECT, Reachable, encoding_of, open_transaction, refuse_shared_servers
from floodmark.postgres.sql import read_sql

VERSION = 14
# CREATE ... IF NOT EXISTS still fails when two sessions run it at once, so they queue up. An arbitrary, fixed number.
_ADVISORY_LOCK = 0x_F100_D3A2


def ensure_schema(at: Reachable) -> None:
    """Create the ledger's tables, or upgrade those of an earlier version.

    A ledger of this version is not touched, so that daily runs need no right to create objects.
    Raises ConfigError when a newer Floodmark created the ledger, and WarehouseAdminError for a database that cannot
    store every text, or where the connection leads through a pooler in transaction mode.
    """
    with open_transaction(at) as connection:
        refuse_shared_servers(at, connection)
        if (encoding := encoding_of(connection)) != ENCODING:
            raise WarehouseAdminError(
                SUBJECT, f"its database has the encoding {encoding}, not {ENCODING}.", NEW_DATABASE
            )
        if _version(connection) == VERSION:
            return
    # In a new session: the one above may have cached that there is no ledger.
    with open_transaction(at) as connection:
        connection.execute("SELECT pg_advisory_xact_lock(%s)", [_ADVISORY_LOCK])
        found = _version(connection)
        if found > VERSION:
            raise ConfigError(
                SUBJECT, f"its ledger has version {found}, but this Floodmark supports {VERSION}.", "Upgrade Floodmark."
            )
        if found < VERSION:
            connection.execute(read_sql("ensure_schema"))
            connection.execute("INSERT INTO floodmark.ledger_version (version) VALUES (%s)", [VERSION])


def _version(connection: psycopg.Connection) -> int:
    """Return the version of the ledger; 0 where there is no ledger."""
    exists = connection.execute("SELECT to_regclass('floodmark.ledger_version') IS NOT NULL").fetchone()
    if exists is None or not exists[0]:
        return 0
    row = connection.execute("SELECT coalesce(max(version), 0) FROM floodmark.ledger_version").fetchone()
    return int(row[0]) if row else 0
