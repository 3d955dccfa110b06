"""Events of a session to the tokens of one response: which DONE token, which flags, in which order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache

from sqlserver_emulator.events import (
    Column,
    Command,
    DatabaseChanged,
    ErrorRaised,
    Event,
    Info,
    ResultStart,
    ReturnStatus,
    ReturnValue,
    Rows,
    RowsArrow,
    StatementDone,
    TransactionAction,
    TransactionChanged,
)
from sqlserver_emulator.tds import tokens
from sqlserver_emulator.tds.arrow_rows import ArrowRowEncoder
from sqlserver_emulator.tds.packets import Buffer
from sqlserver_emulator.tds.rows import RowEncoder
from sqlserver_emulator.tds.tokens import DoneStatus, DoneToken

FATAL_SEVERITY = 20


@lru_cache(maxsize=1024)
def _row_encoder(columns: tuple[Column, ...]) -> RowEncoder:
    return RowEncoder([column.type for column in columns])


@lru_cache(maxsize=1024)
def _arrow_row_encoder(columns: tuple[Column, ...]) -> ArrowRowEncoder:
    return ArrowRowEncoder([column.type for column in columns])


class ResponseEncoder:
    """One request's response.

    A batch ends each statement with DONE, and only the last of them lacks the MORE flag; so a DONE is kept back until
    the next event or the end shows which it was. In a procedure call statements end with DONEINPROC, and the call
    with DONEPROC, which ``more_follows`` when calls are chained in one message.
    """

    def __init__(
        self,
        in_transaction: Callable[[], bool],
        *,
        procedure: bool = False,
        more_follows: bool = False,
        column_encryption: bool = False,
    ) -> None:
        self._in_transaction = in_transaction
        self._procedure = procedure
        self._more_follows = more_follows
        self._column_encryption = column_encryption
        self._columns: tuple[Column, ...] = ()
        self._kept: StatementDone | None = None
        self._kept_token = DoneToken.DONE
        self._status_sent = False
        self._failed = False
        self.is_fatal = False

    def encode(self, event: Event) -> Iterator[Buffer]:
        if self._kept is not None:
            yield self._release(DoneStatus.MORE)
        match event:
            case Rows(rows):
                yield _row_encoder(self._columns).encode(rows)
            case RowsArrow(batch):
                yield from _arrow_row_encoder(self._columns).encode(batch)
            case StatementDone():
                yield from self._end_statement(event)
            case _:
                yield self._encode_small(event)

    def _encode_small(self, event: Event) -> bytes:
        match event:
            case ResultStart(columns):
                self._columns = columns
                token = tokens.column_metadata(columns, column_encryption=self._column_encryption)
            case Info():
                token = tokens.info(event)
            case ErrorRaised(error):
                self.is_fatal = self.is_fatal or error.severity >= FATAL_SEVERITY
                token = tokens.error(error)
            case ReturnStatus(value):
                self._status_sent = True
                token = tokens.return_status(value)
            case ReturnValue():
                token = tokens.return_value(event)
            case DatabaseChanged(old, new, collation):
                token = tokens.text_change(tokens.EnvironmentChange.DATABASE, new, old)
                if collation is not None:
                    token += tokens.collation_change(collation.wire)
            case TransactionChanged(action, descriptor):
                begun = action is TransactionAction.BEGUN
                token = tokens.transaction_change(action.value, descriptor, begun=begun)
            case _:
                raise TypeError(f"not an event: {event!r}")
        return token

    def _end_statement(self, event: StatementDone) -> Iterator[bytes]:
        self._failed = event.failed
        if self._procedure:
            status = self._status(event.failed, event.row_count) | DoneStatus.MORE
            yield tokens.done(DoneToken.DONEINPROC, status, event.command.value, event.row_count or 0)
            return
        self._kept = event
        # EXEC in a batch: its return status is followed by DONEPROC.
        self._kept_token = DoneToken.DONEPROC if self._status_sent else DoneToken.DONE
        self._status_sent = False

    def _status(self, failed: bool, row_count: int | None) -> int:
        status = DoneStatus.ERROR if failed else DoneStatus.FINAL
        if failed and self.is_fatal:
            status |= DoneStatus.SERVER_ERROR
        if row_count is not None:
            status |= DoneStatus.COUNT
        if self._in_transaction():
            status |= DoneStatus.IN_TRANSACTION
        return status

    def _release(self, more: int) -> bytes:
        kept, self._kept = self._kept, None
        if kept is None:
            return tokens.done(DoneToken.DONE, self._status(self._failed, None) | more, Command.NONE.value)
        status = self._status(kept.failed, kept.row_count) | more
        return tokens.done(self._kept_token, status, kept.command.value, kept.row_count or 0)

    def finish(self) -> bytes:
        """The DONE or DONEPROC that ends the response."""
        if not self._procedure:
            return self._release(DoneStatus.FINAL)
        # mssql-python's Rust driver counts on RPC_IN_BATCH to distinguish the calls of a message.
        more = DoneStatus.MORE | DoneStatus.RPC_IN_BATCH if self._more_follows else DoneStatus.FINAL
        return tokens.done(DoneToken.DONEPROC, self._status(self._failed, None) | more, Command.EXECUTE.value)
