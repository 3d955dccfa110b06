"""T-SQL's transactions on a PostgreSQL connection.

In SQL Server most errors end the statement, not the transaction; in PostgreSQL they end the transaction. So inside one
every statement runs under a savepoint, sent in the same round trip; until something was written there is nothing to
save, and PostgreSQL's transaction is simply begun again. BEGIN is sent with the first statement.

Owns also the session's context (role and settings that PostgreSQL functions read), which a rollback undoes and which is
therefore sent again when needed.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager

from psycopg import pq
from psycopg.pq.abc import PGresult

from sqlserver_emulator.engine.connection.pipeline import Parameters, StatementFailedError
from sqlserver_emulator.engine.connection.pool import ConnectionPool
from sqlserver_emulator.engine.names import quote, quote_literal

_GUARD = "emulator_statement"
_NO_ROLE = "none"
_MAX_RECURSION = "emulator.max_recursion"
_LEVEL = "emulator.isolation"
_TRACKING_CONTEXT = "emulator.tracking_context"
_SET_ORDER = "emulator.set_order"


class SavepointMissingError(Exception):
    """There is no savepoint of that name in the open transaction."""


class TransactionalConnection:
    """Autocommit until ``begin``."""

    is_read_only = False
    """Whether statements may write to nothing but the session's own table variables."""

    def __init__(self, connections: ConnectionPool) -> None:
        self._connections = connections
        self._is_closed = False
        self.pipeline = connections.take()
        self.in_transaction = False
        self.isolation = "READ COMMITTED"
        self.has_written = False
        """Whether the open transaction did more than read (then another connection does not see what it sees)."""
        self.begun_at = ""
        """The isolation level, as T-SQL names it, of the transaction that is open and has begun to read or write."""
        self._started = False
        self._guard_is_clean = False
        """The newest savepoint is the guard, and nothing was written after it."""
        self._guarded = False
        self._atomic = False
        self._savepoints: list[str] = []
        self._context: dict[str, str] = {}
        self._applied: dict[str, str] = {}

    @property
    def reads_what_others_read(self) -> bool:
        """Whether another connection would read the same now: nothing is written yet, and no snapshot is held."""
        # At READ COMMITTED every statement has its own snapshot, so another connection is as good as this one.
        return not self.in_transaction or (not self.has_written and self.isolation == "READ COMMITTED")

    @property
    def context(self) -> dict[str, str]:
        return self._context

    @property
    def level(self) -> str:
        """The isolation level as T-SQL names it."""
        return self._context.get(_LEVEL, "READ COMMITTED")

    @level.setter
    def level(self, level: str) -> None:
        # PostgreSQL merges two levels into one; the setting keeps the name that the client chose.
        self._context[_LEVEL] = level

    @property
    def in_atomic(self) -> bool:
        return self._atomic

    # -- statements -------------------------------------------------------------------------------------------------

    def run(
        self, sql: str, parameters: Parameters = (), *, reads: bool = False, before: Sequence[str] = ()
    ) -> PGresult:
        """One statement; ``reads``: it writes nothing. ``before`` runs ahead of it, under the same guard."""
        with self._guarding():
            return self.pipeline.run(sql, parameters, [*self._prefix(reads), *before])

    def stream(self, sql: str, parameters: Parameters, chunk_rows: int, *, reads: bool = False) -> Generator[PGresult]:
        with self._guarding():
            try:
                yield from self.pipeline.stream(sql, parameters, self._prefix(reads), chunk_rows)
            # The statement was cancelled by the early close, see below.
            except GeneratorExit:
                # Closed early, which cancelled the statement: that must not cost the transaction either.
                if self.pipeline.transaction_status == pq.TransactionStatus.INERROR:
                    self.undo_statement()
                raise

    def copy_in(self, sql: str, pieces: Iterator[bytes], *, before: Sequence[str] = ()) -> PGresult:
        """COPY … FROM STDIN of what ``pieces`` yields: a statement like any other; so is one that ``pieces`` ends."""
        with self._guarding():
            try:
                return self.pipeline.copy_in(sql, pieces, [*self._prefix(reads=False), *before])
            # A StatementFailedError is undone by the guard outside; anything else was raised by ``pieces`` and is
            # undone here.
            except StatementFailedError:
                raise
            except BaseException:
                if not self._atomic:
                    self.undo_statement()
                raise

    def describe(self, sql: str) -> PGresult:
        with self._guarding():
            return self.pipeline.describe(sql, self._prefix(reads=True))

    def script(self, sql: str) -> None:
        with self._guarding():
            self.pipeline.script(sql, self._prefix(reads=False))

    @contextmanager
    def atomic(self) -> Iterator[None]:
        """Several statements that succeed or fail as one, in the open transaction or in one of their own."""
        if self._atomic:
            yield
            return
        own = not self.in_transaction
        if own:
            self.begin()
        with self._guarding():
            # Sends BEGIN and the savepoint now: from here on statements add no guard of their own.
            self.pipeline.run("SELECT 1", before=self._prefix(reads=False))
            self._atomic = True
            try:
                yield
            except BaseException:
                # Cleared first, because ``undo_statement`` and ``rollback`` have to act as outside of it.
                self._atomic = False
                self.rollback() if own else self.undo_statement()
                raise
            self._atomic = False
        if own:
            self.commit()

    @contextmanager
    def nested(self) -> Iterator[None]:
        """Inside ``atomic``: a part whose failure is undone alone."""
        name = f"emulator_nested_{len(self._savepoints)}"
        self.pipeline.run(f"SAVEPOINT {name}")
        try:
            yield
        except BaseException:
            self.pipeline.run(f"ROLLBACK TO SAVEPOINT {name}")
            # The rollback may have undone settings that were made since the savepoint; they are sent again.
            self._applied.clear()
            raise
        self.pipeline.run(f"RELEASE SAVEPOINT {name}")

    @contextmanager
    def creating(self) -> Iterator[None]:
        """While the tables of table variables are made or removed."""
        yield

    @contextmanager
    def as_owner(self) -> Iterator[None]:
        """With the emulator's own rights instead of the caller's."""
        role = self._context.get("role", _NO_ROLE)
        self.set_context("role", _NO_ROLE)
        try:
            yield
        finally:
            self.set_context("role", role)

    def set_context(self, name: str, value: str) -> None:
        """A PostgreSQL setting of this session, from the next statement on."""
        self._context[name] = value

    def limit_recursion(self, limit: int | None) -> None:
        """OPTION (MAXRECURSION) of the next statement. Said only when it changes: most statements never recur."""
        value = "" if limit is None else str(limit)
        # A value that is set is sent with the next statement, which costs one more command in its round trip.
        if self._context.get(_MAX_RECURSION, "") != value:
            self._context[_MAX_RECURSION] = value

    def say_to_tracking(self, assigned: Sequence[int] = (), context: object = None) -> None:
        """Set what the triggers of tracked tables ask of the next statement: its SET list and its context.

        ``assigned``: ids of columns. ``context``: of WITH CHANGE_TRACKING_CONTEXT; None: there is none. Sent only when
        it changes: most statements have neither.
        """
        order = "".join(column_id.to_bytes(4, "little").hex() for column_id in assigned)
        said = ((_SET_ORDER, order), (_TRACKING_CONTEXT, f"x{context.hex()}" if isinstance(context, bytes) else ""))
        for name, value in said:
            if self._context.get(name, "") != value:
                self._context[name] = value

    # -- transactions -----------------------------------------------------------------------------------------------

    def begin(self) -> None:
        self.in_transaction = True
        # BEGIN itself is sent with the first statement: an empty transaction costs no round trip.
        self.has_written = False

    def commit(self) -> None:
        """Raises StatementFailedError when the commit itself fails; the transaction is over in any case."""
        started = self._started
        # Forgotten first: a COMMIT that fails has ended the transaction, too.
        self._forget_transaction()
        if started:
            self.pipeline.run("COMMIT")

    def rollback(self) -> None:
        started = self._started
        self._forget_transaction()
        if started and not self.pipeline.is_broken:
            self.pipeline.run("ROLLBACK")
            # set_config of an aborted transaction is undone with it.
            self._applied.clear()

    def save(self, name: str) -> None:
        # The client's savepoint must lie outside the guard, or the guard's release would take it away.
        before = self._prefix(reads=True)
        if self._guarded:
            before.append(f"RELEASE SAVEPOINT {_GUARD}")
            self._guarded = self._guard_is_clean = False
        self.pipeline.run(f"SAVEPOINT {quote(name)}", before=before)
        self._savepoints.append(name)

    def rollback_to(self, name: str) -> None:
        if name not in self._savepoints:
            raise SavepointMissingError(name)
        # SQL Server keeps the savepoint after a rollback to it, and so does PostgreSQL.
        self.pipeline.run(f"ROLLBACK TO SAVEPOINT {quote(name)}")
        while self._savepoints[-1] != name:
            self._savepoints.pop()
        self._guarded = self._guard_is_clean = False
        self._applied.clear()

    def close(self, remains: object | None = None) -> None:
        """End the session, of which ``remains`` stays. Repeatable: the connection may be another session's by then."""
        if not self._is_closed:
            self._is_closed = True
            self.pipeline.remains = remains
            self._connections.give_back(self.pipeline)

    def cancel(self) -> None:
        """End the running statement, if there is one; from any thread."""
        if not self._is_closed:
            self.pipeline.cancel()

    # -- the round trip's prefix ------------------------------------------------------------------------------------

    def _prefix(self, reads: bool) -> list[str]:
        """Return what has to be sent before the next statement."""
        commands: list[str] = []
        if self.in_transaction and not self._started:
            commands += self._begin_commands()
            self._started = True
            self.begun_at = self.level
        commands += self._context_commands()
        # Inside ``atomic`` its own guard covers every statement.
        if self.in_transaction and not self._atomic and self._must_guard:
            commands += self._guard_commands()
            # A read leaves nothing to undo, so the next statement may reuse the same savepoint.
            self._guard_is_clean = reads
        if self.in_transaction and not reads:
            self.has_written = True
        return commands

    def _begin_commands(self) -> list[str]:
        return [f"BEGIN ISOLATION LEVEL {self.isolation}"]

    @property
    def _must_guard(self) -> bool:
        """Whether there is anything that a failing statement must not take with it."""
        # Above READ COMMITTED the snapshot belongs to the transaction: a plain ROLLBACK would lose it.
        return self.has_written or bool(self._savepoints) or self.isolation != "READ COMMITTED"

    def _guard_commands(self) -> list[str]:
        if self._guarded and self._guard_is_clean:
            return []
        # Released each time: savepoints that pile up would slow every later statement of the transaction.
        release = [f"RELEASE SAVEPOINT {_GUARD}"] if self._guarded else []
        self._guarded = True
        return [*release, f"SAVEPOINT {_GUARD}"]

    def _context_commands(self) -> list[str]:
        changed = {name: value for name, value in self._context.items() if self._applied.get(name) != value}
        if not changed:
            return []
        self._applied.update(changed)
        # is_local is false: the setting has to outlive the transaction.
        calls = (f"set_config({quote_literal(n)}, {quote_literal(v)}, false)" for n, v in changed.items())
        return ["SELECT " + ", ".join(calls)]

    @contextmanager
    def _guarding(self) -> Iterator[None]:
        """Undo a statement that fails; the transaction stays open."""
        try:
            yield
        except StatementFailedError:
            if self.pipeline.is_broken:
                self._forget_transaction()
            elif not self._atomic:
                self.undo_statement()
            raise

    def undo_statement(self) -> None:
        """Take back the last statement of the open transaction."""
        # A rollback undoes settings, and which ones is not known here: all are sent again.
        self._applied.clear()
        if not self.in_transaction or self.pipeline.transaction_status == pq.TransactionStatus.IDLE:
            return
        if self._guarded:
            self.pipeline.run(f"ROLLBACK TO SAVEPOINT {_GUARD}")
            self._guard_is_clean = True
        else:
            # Nothing but the failed statement is in the transaction; the next statement begins it again.
            self.pipeline.run("ROLLBACK")
            self._started = self.has_written = False
            self.begun_at = ""

    def _forget_transaction(self) -> None:
        self.in_transaction = self.has_written = False
        self.begun_at = ""
        self._started = self._guarded = self._guard_is_clean = False
        self._savepoints.clear()
