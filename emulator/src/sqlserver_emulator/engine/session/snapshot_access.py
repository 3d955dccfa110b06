"""Whether a statement at SNAPSHOT may run: its databases have to allow it, and its transaction to have begun so."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from sqlserver_emulator.engine.catalog.session_catalog import SessionCatalog
from sqlserver_emulator.engine.connection.transaction import TransactionalConnection
from sqlserver_emulator.errors import SqlServerError

SNAPSHOT: Final = "SNAPSHOT"
_ALWAYS: Final = frozenset(("master", "msdb", "tempdb"))
"""System databases that allow it whatever is said."""


def check_snapshot(databases: Iterable[str], catalog: SessionCatalog, connection: TransactionalConnection) -> None:
    """Raise 3951 and 3952 for a statement that names tables of these databases."""
    for name in sorted(databases):
        entry = catalog.database_entry(name)
        if name not in _ALWAYS and entry is not None and not entry.allows_snapshot:
            raise SqlServerError(
                3952,
                f"Snapshot isolation transaction failed accessing database '{name}' because snapshot isolation is not"
                " allowed in this database. Use ALTER DATABASE to allow snapshot isolation.",
            )
        if connection.in_transaction and connection.begun_at not in ("", SNAPSHOT):
            raise SqlServerError(
                3951,
                f"Transaction failed in database '{name}' because the statement was run under snapshot isolation but"
                " the transaction did not start in snapshot isolation. You cannot change the isolation level of the"
                " transaction to snapshot after the transaction has started unless the transaction was originally"
                " started under snapshot isolation level.",
            )
