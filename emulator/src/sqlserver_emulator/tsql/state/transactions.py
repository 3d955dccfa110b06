"""@@TRANCOUNT and what BEGIN, COMMIT, ROLLBACK and SAVE TRANSACTION do to it and to the engine's transaction.

Only the outermost BEGIN and COMMIT reach the engine; ROLLBACK ends everything. A *doomed* transaction (an error ended
it inside a TRY) can only be rolled back.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

from sqlserver_emulator.contract import EngineSession
from sqlserver_emulator.errors import SqlServerError
from sqlserver_emulator.events import Event, TransactionAction, TransactionChanged
from sqlserver_emulator.tsql.state.system_variables import SystemVariables

_DESCRIPTORS = count(1)
"""Descriptors are unique in the server process, as on a real server."""


class Transactions:
    """The transaction of a session. ``count``: @@TRANCOUNT."""

    def __init__(self, engine: EngineSession, system: SystemVariables) -> None:
        self._engine = engine
        self._depth = system.trancount
        self._state = system.xact_state
        self._name = ""
        self._descriptor = 0
        self.count = 0
        self._is_statement = False

    @property
    def is_doomed(self) -> bool:
        """True when the transaction can only be rolled back: XACT_STATE() is -1."""
        return self._state.value == -1

    def doom(self) -> None:
        """Let the transaction, if there is one, only be rolled back from here on."""
        if self.count:
            self._state.value = -1

    def begin(self, name: str = "") -> Iterator[Event]:
        """Begin a transaction, or count one more. Raises 3930."""
        # A doomed transaction cannot be nested: only ROLLBACK is left.
        if self.is_doomed:
            raise doomed_error()
        if self.count == 0:
            self._engine.begin()
            self._name = name
            self._descriptor = next(_DESCRIPTORS)
            self._set(1)
            yield TransactionChanged(TransactionAction.BEGUN, self._descriptor)
            return
        self._set(self.count + 1)

    def begin_statement(self) -> None:
        """Begin the transaction of a single statement and its triggers, which the client does not learn of."""
        self._engine.begin()
        self._name = ""
        self._is_statement = True
        self._set(1)

    def end_statement(self) -> None:
        """Commit the statement's transaction, unless a trigger has ended it."""
        if self._is_statement and self.count:
            self._set(0)
            self._is_statement = False
            self._engine.commit()

    def abandon_statement(self) -> None:
        """Roll back the statement's transaction, unless it has ended."""
        if self._is_statement and self.count:
            self._set(0)
            self._engine.rollback()
        self._is_statement = False

    def commit(self) -> Iterator[Event]:
        """Commit the transaction, or count one less. Raises 3902, 3930."""
        if self.count == 0:
            raise SqlServerError(3902, "The COMMIT TRANSACTION request has no corresponding BEGIN TRANSACTION.")
        if self.is_doomed:
            raise doomed_error()
        if self.count > 1:
            # An inner COMMIT only counts: the outermost one decides.
            self._set(self.count - 1)
            return
        try:
            self._engine.commit()
        # A commit that fails (a conflict of snapshots, a lost connection) has rolled back.
        except SqlServerError:
            yield from self._ended(TransactionAction.ROLLED_BACK)
            raise
        yield from self._ended(TransactionAction.COMMITTED)

    def rollback(self, name: str = "") -> Iterator[Event]:
        """Roll back the whole transaction, or to the savepoint ``name``. Raises 3903, 3931 or 6401."""
        if self.count == 0:
            raise SqlServerError(3903, "The ROLLBACK TRANSACTION request has no corresponding BEGIN TRANSACTION.")
        # The name of the outermost BEGIN means the whole transaction; any other name is a savepoint's.
        if name and name != self._name:
            if self.is_doomed:
                message = (
                    "The current transaction cannot be committed and cannot be rolled back to a savepoint. "
                    "Roll back the entire transaction."
                )
                raise SqlServerError(3931, message)
            self._engine.rollback_to(name)
            return
        self._engine.rollback()
        yield from self._ended(TransactionAction.ROLLED_BACK)

    def save(self, name: str) -> Iterator[Event]:
        """Set a savepoint. Raises 628, 3930."""
        if self.count == 0:
            raise SqlServerError(628, "Cannot issue SAVE TRANSACTION when there is no active transaction.")
        if self.is_doomed:
            raise doomed_error()
        self._engine.save(name)
        yield from ()

    def notice_loss(self) -> Iterator[Event]:
        """Notice, after an error, that the engine has ended the transaction (deadlock, update conflict)."""
        if self.count and not self._engine.in_transaction:
            yield from self._ended(TransactionAction.ROLLED_BACK)

    def _ended(self, action: TransactionAction) -> Iterator[Event]:
        self._set(0)
        # The client has not learned that the transaction of a single statement began.
        if not self._is_statement:
            yield TransactionChanged(action, self._descriptor)
        self._is_statement = False

    def _set(self, depth: int) -> None:
        self.count = depth
        self._depth.value = depth
        self._state.value = 1 if depth else 0


def doomed_error() -> SqlServerError:
    """Return error 3930."""
    return SqlServerError(
        3930,
        "The current transaction cannot be committed and cannot support operations that write to the log file. "
        "Roll back the transaction.",
    )
