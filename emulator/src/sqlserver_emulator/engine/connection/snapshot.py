"""The connection of a session with a readable secondary: one state of the databases, which it only reads.

One PostgreSQL transaction at a snapshot lasts as long as the session, or to its next ROLLBACK. T-SQL's own transactions
have nothing to commit. PostgreSQL refuses each statement that writes, except to the session's table variables: they are
temporary tables, which are made outside of what is read-only (``creating``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sqlserver_emulator.engine.connection.pool import ConnectionPool
from sqlserver_emulator.engine.connection.transaction import TransactionalConnection
from sqlserver_emulator.engine.names import quote_literal

# As on a secondary replica, whatever isolation the client asks for.
_SNAPSHOT_ISOLATION = "REPEATABLE READ"


class SnapshotConnection(TransactionalConnection):
    """``snapshot``: the name of an exported snapshot; "" for the present state."""

    is_read_only = True

    def __init__(self, connections: ConnectionPool, snapshot: Callable[[], str]) -> None:
        super().__init__(connections)
        self._snapshot = snapshot
        self._creates = False
        self.in_transaction = True
        self.set_context("emulator.read_only", "on")

    @property
    def isolation(self) -> str:
        return _SNAPSHOT_ISOLATION

    @isolation.setter
    def isolation(self, _level: str) -> None:
        return

    def begin(self) -> None:
        return

    def commit(self) -> None:
        return

    def rollback(self) -> None:
        super().rollback()
        self.in_transaction = True

    def undo_statement(self) -> None:
        super().undo_statement()
        # The savepoint is as new, and what is said after it is gone.
        self._guard_is_clean = False

    @contextmanager
    def creating(self) -> Iterator[None]:
        self._creates, self._guard_is_clean = True, False
        try:
            yield
        finally:
            self._creates = self._guard_is_clean = False

    def _begin_commands(self) -> list[str]:
        snapshot = self._snapshot()
        return super()._begin_commands() + ([f"SET TRANSACTION SNAPSHOT {quote_literal(snapshot)}"] if snapshot else [])

    def _guard_commands(self) -> list[str]:
        commands = super()._guard_commands()
        # The setting ends with the savepoint that is before it.
        return [*commands, "SET TRANSACTION READ ONLY"] if commands and not self._creates else commands
