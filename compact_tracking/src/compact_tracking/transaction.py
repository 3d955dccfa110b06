"""Transactions that carry a BSN from their beginning and a tracking context to the rows that they change.

SQLite has one writer at a time. So transactions of this library are open together only before their first write, and
can commit in another order than they began because of that. A write on the connection without a Transaction is
tracked as well, but under a number that it shares with others, and without a context.
"""

import re
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Self
from uuid import UUID

from compact_tracking.access import check_sqlite, open_cursor, write_transaction
from compact_tracking.errors import InvalidOperationError, TransactionLostError
from compact_tracking.numbers import begin_bsn, commit_bsn, end_bsn, start_writing
from compact_tracking.schema import install
from compact_tracking.tombstones import pack_tombstones

Parameters = Sequence[Any] | Mapping[str, Any]

_FIRST_WORDS = re.compile(r"(?:\s|--[^\n]*\n|/\*.*?\*/|;)*([a-z]+)(?:\s+(?:transaction\s+)?(to)\b)?", re.I | re.S)
_READS = frozenset({"select", "values", "explain", "pragma"})
_ENDS = frozenset({"begin", "commit", "end", "rollback"})


class Transaction:
    """A transaction with a BSN (original: SqlCeTransaction).

    It begins when it is made. As a context manager it commits at the end of the block, and rolls back after an error.
    """

    def __init__(self, connection: sqlite3.Connection, tracking_context: UUID | None = None) -> None:
        """Begin a transaction: one short write to take the BSN, which waits while another connection writes."""
        check_sqlite()
        with write_transaction(connection) as cursor:
            install(cursor)
            self._bsn = begin_bsn(cursor)
        self._connection = connection
        self._context = tracking_context
        self._cursor = open_cursor(connection)
        self._csn: int | None = None
        self._writing = False
        self._ended = False

    @property
    def connection(self) -> sqlite3.Connection:
        """The connection on which the transaction runs."""
        return self._connection

    @property
    def current_transaction_bsn(self) -> int:
        """The BSN of the transaction (original: CurrentTransactionBsn)."""
        return self._bsn

    @property
    def tracking_context(self) -> UUID | None:
        """The context that changed rows and tombstones get from now on (original: TrackingContext)."""
        return self._context

    @tracking_context.setter
    def tracking_context(self, value: UUID | None) -> None:
        self._context = value
        if self._writing:
            self._cursor.execute("UPDATE main.__ct_state SET tx_context = ?", (self._context_text(),))

    def execute(self, sql: str, parameters: Parameters = ()) -> sqlite3.Cursor:
        """Run a statement in the transaction; the first one that may write takes the file's write lock.

        Raises:
            InvalidOperationError: the statement would begin or end a transaction, or this one has ended.
            TransactionLostError: the BSN was given up, or another connection wrote after this one read.
        """
        self._prepare(sql)
        return self._connection.execute(sql, parameters)

    def executemany(self, sql: str, parameters: Iterable[Parameters]) -> sqlite3.Cursor:
        """Run a statement for each of the parameters, as ``execute`` does."""
        self._prepare(sql)
        return self._connection.executemany(sql, parameters)

    def start_writing(self) -> sqlite3.Cursor:
        """Take the write lock, unless the transaction has it, and return a cursor that gives plain tuples."""
        self._check_open()
        if not self._writing:
            try:
                if not self._connection.in_transaction:
                    self._cursor.execute("BEGIN IMMEDIATE")
                known = start_writing(self._cursor, self._bsn, self._context_text())
            except sqlite3.OperationalError as error:
                self._explain(error)
                raise
            if not known:
                self._give_up()
                raise TransactionLostError(f"the transaction with BSN {self._bsn} was taken for dead: begin it again")
            self._writing = True
        return self._cursor

    def start_reading(self) -> sqlite3.Cursor:
        """Fix the snapshot to read, unless the transaction has one, and return a cursor that gives plain tuples."""
        self._check_open()
        if not self._connection.in_transaction:
            self._cursor.execute("BEGIN")
        return self._cursor

    def commit(self) -> int | None:
        """Commit, and return the CSN; None for a transaction that did not write."""
        self._check_open()
        if not self._writing:
            self.rollback()
            return None
        if self._csn is None:
            pack_tombstones(self._cursor)
            self._csn = commit_bsn(self._cursor, self._bsn)
        # May be refused while another connection reads, without WAL; the caller can repeat it.
        self._cursor.execute("COMMIT")
        self._ended = True
        return self._csn

    def rollback(self) -> None:
        """Undo what the transaction wrote; its BSN is used up."""
        if self._ended:
            raise InvalidOperationError("the transaction has ended: begin another one")
        self._give_up()
        # Where another connection writes for long, the entry stays until this process has ended; see numbers.py.
        with suppress(sqlite3.OperationalError), write_transaction(self._connection) as cursor:
            end_bsn(cursor, self._bsn)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._ended:
            return
        if kind is None:
            self.commit()
        else:
            self.rollback()

    def _prepare(self, sql: str) -> None:
        word, savepoint = self._classify(sql)
        if word in _ENDS and not savepoint:
            raise InvalidOperationError(f"{word.upper()} was not run: a Transaction ends with commit() or rollback()")
        if word in _READS:
            self.start_reading()
        else:
            self.start_writing()

    def _classify(self, sql: str) -> tuple[str, bool]:
        found = _FIRST_WORDS.match(sql)
        return (found[1].lower(), bool(found[2])) if found else ("", False)

    def _check_open(self) -> None:
        if self._ended:
            raise InvalidOperationError("the transaction has ended: begin another one")
        if self._writing and not self._connection.in_transaction:
            self._ended = True
            raise InvalidOperationError(
                "the transaction was ended on its connection: end it with commit() or rollback() of the Transaction"
            )

    def _explain(self, error: sqlite3.OperationalError) -> None:
        # The extended codes of SQLITE_BUSY have it in their low byte.
        if self._connection.in_transaction and error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY:
            self._give_up()
            raise TransactionLostError(
                "another connection writes, or wrote after this transaction had read: begin it again, or write first"
            ) from error

    def _give_up(self) -> None:
        self._ended = True
        if self._connection.in_transaction:
            self._cursor.execute("ROLLBACK")

    def _context_text(self) -> str | None:
        return None if self._context is None else str(self._context)
