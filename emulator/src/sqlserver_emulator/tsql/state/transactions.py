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
        return self._state.value == -1

    def doom(self) -> None:
        if self.count:
            self._state.value = -1

    def begin(self, name: str = "") -> Iterator[Event]:
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
        """A statement and its triggers outside a transaction: the client is not told of theirs."""
        self._engine.begin()
        self._name = ""
        self._is_statement = True
        self._set(1)

    def end_statement(self) -> None:
        """Nothing to do when a trigger ended the transaction."""
        if self._is_statement and self.count:
            self._set(0)
            self._is_statement = False
            self._engine.commit()

    def abandon_statement(self) -> None:
        if self._is_statement and self.count:
            self._set(0)
            self._engine.rollback()
        self._is_statement = False

    def commit(self) -> Iterator[Event]:
        if self.count == 0:
            raise SqlServerError(3902, "The COMMIT TRANSACTION request has no corresponding BEGIN TRANSACTION.")
        if self.is_doomed:
            raise doomed_error()
        if self.count > 1:
            self._set(self.count - 1)
            return
        try:
            self._engine.commit()
        except SqlServerError:
            yield from self._ended(TransactionAction.ROLLED_BACK)
            raise
        yield from self._ended(TransactionAction.COMMITTED)

    def rollback(self, name: str = "") -> Iterator[Event]:
        """The whole transaction, or back to the savepoint ``name``. Raises 3903, 3931 or 6401."""
        if self.count == 0:
            raise SqlServerError(3903, "The ROLLBACK TRANSACTION request has no corresponding BEGIN TRANSACTION.")
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
        if self.count == 0:
            raise SqlServerError(628, "Cannot issue SAVE TRANSACTION when there is no active transaction.")
        if self.is_doomed:
            raise doomed_error()
        self._engine.save(name)
        yield from ()

    def notice_loss(self) -> Iterator[Event]:
        """After an error: the engine may have ended the transaction (deadlock, update conflict)."""
        if self.count and not self._engine.in_transaction:
            yield from self._ended(TransactionAction.ROLLED_BACK)

    def _ended(self, action: TransactionAction) -> Iterator[Event]:
        self._set(0)
        if not self._is_statement:
            yield TransactionChanged(action, self._descriptor)
        self._is_statement = False

    def _set(self, depth: int) -> None:
        self.count = depth
        self._depth.value = depth
        self._state.value = 1 if depth else 0


def doomed_error() -> SqlServerError:
    return SqlServerError(
        3930,
        "The current transaction cannot be committed and cannot support operations that write to the log file. "
        "Roll back the transaction.",
    )
