"""Faults that a session meets: errors, delays, a full log, the end of its connection. One object a session."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from sqlserver_emulator.clock import Fetch
from sqlserver_emulator.contract import StatementResult
from sqlserver_emulator.control.reader_locks import locks_to_wait_for
from sqlserver_emulator.control.statement_databases import databases_of, written_database
from sqlserver_emulator.engine.connection.pipeline import StatementFailedError
from sqlserver_emulator.errors import ConnectionCutError, SqlServerError
from sqlserver_emulator.events import Rows, RowsArrow
from sqlserver_emulator.faults import Fault, FaultBoard, FaultKind

FAILURES: Final = {1205: "40P01", 1222: "55P03"}
"""Error number -> what PostgreSQL fails with when it comes to that, which then takes its real course."""

_WRITES: Final = re.compile(
    r"^\s*(?:WITH\b.*?\)\s*)?(?:(?:INSERT|UPDATE|DELETE|MERGE|TRUNCATE|CREATE|ALTER|DROP)\b|SELECT\b.*?\bINTO\b)",
    re.IGNORECASE | re.DOTALL,
)
_IN_TEMPDB: Final = re.compile(
    r"\b(?:INTO|UPDATE|FROM|TABLE|INSERT|DELETE|MERGE|BULK)\s+(?:\w+\.)?[\[\"]?[#@]", re.IGNORECASE
)


class SessionFaults:
    """``login``: whose session it is."""

    def __init__(self, board: FaultBoard, login: str) -> None:
        self._board = board
        self._login = login

    @property
    def are_active(self) -> bool:
        return bool(self._board.statement_faults)

    def meet(self, statement: str, database: str, fetch: Fetch) -> None:
        """Before the statement runs. Raises what it fails with."""
        databases = databases_of(statement, database)
        slow = self._strike(FaultKind.SLOW_STATEMENT, statement, databases)
        # Delayed first: a statement can be slow and then fail.
        if slow is not None:
            fetch("SELECT pg_sleep($1::float8)", (slow.value,))
        error = self._strike(FaultKind.STATEMENT_ERROR, statement, databases)
        if error is not None:
            # By PostgreSQL's SQLSTATE: the session handles it like an error of the statement's own.
            raise StatementFailedError(sqlstate=FAILURES[error.number], message="a fault on demand")
        for object_id, mode in locks_to_wait_for(self._board.locked_reads(databases, self._login), statement):
            fetch("SELECT emulator.wait_for_lock($1::int, $2)", (object_id, mode))
        full = self._strike_log(statement, database)
        if full is not None:
            message = f"The transaction log for database '{full.match.database}' is full due to 'REPLICATION'."
            raise SqlServerError(9002, message, severity=17, state=2)

    def cut(self, result: StatementResult, statement: str, database: str) -> StatementResult:
        """The result, whose rows may end with the connection."""
        databases = databases_of(statement, database)
        fault = self._board.find(FaultKind.CONNECTION_CUT, statement, databases, self._login)
        if fault is not None and result.columns is not None:
            result.batches = self._until_cut(result.batches, fault)
        return result

    def _strike(self, kind: FaultKind, statement: str, databases: frozenset[str]) -> Fault | None:
        # A fault that another session has used up in the meantime does not happen; the next one may.
        while (fault := self._board.find(kind, statement, databases, self._login)) is not None:
            if self._board.happens(fault):
                return fault
        return None

    def _strike_log(self, statement: str, database: str) -> Fault | None:
        # The text is searched for what it writes, which takes long for a large one: only where it matters.
        if not (self._board.has(FaultKind.LOG_FULL) and writes_to_the_log(statement)):
            return None
        return self._strike(FaultKind.LOG_FULL, statement, frozenset([written_database(statement, database)]))

    def _until_cut(self, batches: Iterator[Rows | RowsArrow], fault: Fault) -> Iterator[Rows | RowsArrow]:
        # Rows over all batches of one result.
        left = int(fault.value)
        for batch in batches:
            size = len(batch.rows) if isinstance(batch, Rows) else batch.batch.num_rows
            # The result has to have that many rows before the connection is cut: shorter ones stay whole.
            if size >= left and self._board.happens(fault):
                if left:
                    yield Rows(batch.rows[:left]) if isinstance(batch, Rows) else RowsArrow(batch.batch.slice(0, left))
                raise ConnectionCutError(f"fault {fault.fault_id} cut the connection after {int(fault.value)} rows")
            left = max(left - size, 0)
            yield batch


def writes_to_the_log(statement: str) -> bool:
    """Whether the statement writes to a database that is not tempdb."""
    return _WRITES.match(statement) is not None and _IN_TEMPDB.search(statement) is None
