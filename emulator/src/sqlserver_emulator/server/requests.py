"""Running one message of a logged-in client: which session method it means, and streaming the answer.

What a statement means is the session's business; the shape of the answer is ``tds.response``'s.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterator
from itertools import chain

from sqlserver_emulator.errors import ConnectionCutError, NotSupportedByEmulatorError, SqlServerError
from sqlserver_emulator.events import Command, ErrorRaised, Event, ReturnStatus, StatementDone
from sqlserver_emulator.server.channel import Channel, Message, MessageCancelledError
from sqlserver_emulator.server.handshake import INTERNAL_ERROR
from sqlserver_emulator.server.interruption import Interruption
from sqlserver_emulator.session import Session
from sqlserver_emulator.tds import tokens
from sqlserver_emulator.tds.bulk import BulkReader
from sqlserver_emulator.tds.packets import RESET, RESET_KEEPING_TRANSACTION, PacketType
from sqlserver_emulator.tds.reading import MessageReader, ProtocolError, skip_all_headers
from sqlserver_emulator.tds.response import ResponseEncoder
from sqlserver_emulator.tds.rpc import RpcCall, parse_calls
from sqlserver_emulator.tds.transaction import TransactionKind, TransactionRequest, parse_transaction

_LOG = logging.getLogger(__name__)
# From this severity on SQL Server closes the connection.
_FATAL = 20
_RESET_PROCEDURE = "sp_reset_connection"
"""The same as the reset bit, by name: python-tds' pool calls it. In a batch it is not there, as on a real server."""


class RequestRunner:
    """Belongs to one connection's thread."""

    def __init__(self, channel: Channel, session: Session, interruption: Interruption) -> None:
        self._channel = channel
        self._session = session
        self._interruption = interruption
        self._handlers: dict[PacketType, Callable[[bytes], bool]] = {
            PacketType.SQL_BATCH: self._run_batch,
            PacketType.RPC: self._run_calls,
            PacketType.TRANSACTION: self._run_transaction,
            PacketType.ATTENTION: self._acknowledge,
            PacketType.BULK_LOAD: self._run_bulk_load,
        }

    def run(self, message: Message) -> bool:
        """False: the connection has to end, for an error of severity 20 or above."""
        handler = self._handlers.get(message.type)
        if handler is None:
            raise ProtocolError(f"message {message.type.name} after the login")
        # The reset belongs to the message that carries it, and precedes its request.
        if message.status & (RESET | RESET_KEEPING_TRANSACTION):
            self._reset(message)
        goes_on = handler(message.payload)
        self._channel.end_message()
        return goes_on

    def _reset(self, message: Message) -> None:
        if message.status & RESET_KEEPING_TRANSACTION:
            raise ProtocolError("RESETCONNECTIONSKIPTRAN is not supported")
        self._reset_session()

    def _reset_session(self) -> None:
        before = self._session.database
        self._channel.write(tokens.reset_done())
        # A driver that follows its transaction by these notices would commit one that is gone.
        self._write_events(iter(self._session.reset()), self._encoder())
        # A driver's pool follows the database by these notices.
        if self._session.database != before:
            change = tokens.EnvironmentChange.DATABASE
            self._channel.write(tokens.text_change(change, self._session.database, before))
            self._channel.write(tokens.collation_change(self._session.collation.wire))

    def _run_batch(self, payload: bytes) -> bool:
        reader = MessageReader(payload)
        skip_all_headers(reader)
        # The rest of the payload is UTF-16: two bytes a unit.
        text = reader.read_text((reader.end - reader.position) // 2)
        return self._stream(self._session.run_batch(text), self._encoder())

    def _run_calls(self, payload: bytes) -> bool:
        # Calls are parsed one by one: those before a broken one have been run and answered.
        calls = parse_calls(payload)
        while True:
            try:
                call = next(calls)
            except SqlServerError as error:
                return self._stream(_refusal(error), self._encoder(procedure=True))
            goes_on = self._run_call(call)
            # After an attention the remaining calls of the message are not run.
            if call.is_last or not goes_on or self._interruption.requested:
                return goes_on

    def _run_call(self, call: RpcCall) -> bool:
        encoder = self._encoder(procedure=True, more_follows=not call.is_last)
        if call.procedure.lower() == _RESET_PROCEDURE:
            self._reset_session()
            return self._stream(iter((ReturnStatus(0),)), encoder)
        return self._stream(self._session.run_procedure(call.procedure, call.arguments), encoder)

    def _run_transaction(self, payload: bytes) -> bool:
        try:
            events = self._transaction_events(parse_transaction(payload))
        # Refused here, because parsing is not within ``_stream``.
        except NotSupportedByEmulatorError as error:
            events = _refusal(error)
        return self._stream(_with_one_end(events), self._encoder())

    def _transaction_events(self, request: TransactionRequest) -> Iterator[Event]:
        session = self._session
        match request.kind:
            case TransactionKind.BEGIN:
                return session.begin_transaction(request.name, request.isolation)
            case TransactionKind.SAVE:
                return session.save_transaction(request.name)
            case TransactionKind.COMMIT:
                events = session.commit_transaction(request.name)
            case TransactionKind.ROLLBACK:
                events = session.rollback_transaction(request.name)
        if request.begins_another:
            return chain(events, session.begin_transaction(request.next_name, request.isolation))
        return events

    def _acknowledge(self, _payload: bytes) -> bool:
        """An attention that came when the response was complete already."""
        # The client waits for an answer to its attention in any case.
        self._channel.write(tokens.attention_acknowledgement())
        return True

    def _run_bulk_load(self, _payload: bytes) -> bool:
        """Read and load as the packets come. Nothing is watched meanwhile: what waits in the socket are rows."""
        self._interruption.forget()
        encoder = self._encoder()
        payloads = self._channel.read_stream()
        try:
            try:
                self._write_events(self._load(payloads), encoder)
            except SqlServerError as error:
                self._write_events(_refusal(error), encoder)
            for _ in payloads:
                # The message has to be read to its end before the answer: the client reads nothing until it has sent
                # everything.
                pass  # the rest of a message whose beginning was refused
        except MessageCancelledError as cancelled:
            if cancelled.packet_type is PacketType.ATTENTION:
                return self._acknowledge(b"")
            # The last packet was marked to be ignored: the request itself ends with an error, without an attention to
            # answer.
            self._write_events(iter((StatementDone(failed=True),)), encoder)
        except (OSError, ProtocolError):
            raise
        except Exception as error:  # noqa: BLE001 - the edge, as in _stream
            self._write_internal_error(error)
            return False
        self._channel.write(encoder.finish())
        return not encoder.is_fatal

    def _load(self, payloads: Iterator[bytes]) -> Iterator[Event]:
        reader = BulkReader(payloads, column_encryption=self._channel.column_encryption)
        return self._session.load_bulk(reader.types, reader.batches())

    def _encoder(self, *, procedure: bool = False, more_follows: bool = False) -> ResponseEncoder:
        # Asked when a DONE is encoded: the statement itself may begin or end a transaction.
        return ResponseEncoder(
            lambda: self._session.in_transaction,
            procedure=procedure,
            more_follows=more_follows,
            column_encryption=self._channel.column_encryption,
        )

    def _stream(self, events: Iterator[Event], encoder: ResponseEncoder) -> bool:
        # Only within this block does a cancel reach the session.
        with self._interruption as interruption:
            try:
                self._write_events(events, encoder)
            except SqlServerError as error:
                self._write_events(_refusal(error), encoder)
            except ConnectionCutError:
                # The rows before the cut have to arrive: the fault counts them.
                self._channel.send_unfinished()
                raise
            except (OSError, ProtocolError):
                raise
            except Exception as error:  # noqa: BLE001 - the edge: a bug must not leave the client without an answer
                self._write_internal_error(error)
                return False
        # The attention is checked after the watching has ended, so that none is left unread.
        if interruption.requested:
            self._finish_interrupted()
            return True
        self._channel.write(encoder.finish())
        return not encoder.is_fatal

    def _write_events(self, events: Iterator[Event], encoder: ResponseEncoder) -> None:
        for event in events:
            for data in encoder.encode(event):
                if self._channel.write(data):
                    # An attention is noticed between two sends here, without waiting for the watching thread.
                    self._interruption.check()
                if self._interruption.requested:
                    # Cursors and streams of the engine end before the answer does.
                    _close(events)
                    return

    def _write_internal_error(self, error: Exception) -> None:
        _LOG.exception("session %d: internal error", self._session.session_id)
        text = f"Internal error of sqlserver_emulator ({type(error).__name__}): {error}"
        # Severity 20: the connection is closed after the answer.
        self._channel.write(tokens.error(SqlServerError(INTERNAL_ERROR, text, severity=_FATAL)))
        self._channel.write(tokens.done(tokens.DoneToken.DONE, tokens.DoneStatus.ERROR, Command.NONE.value))

    def _finish_interrupted(self) -> None:
        """End the response that was cut short, and acknowledge the attention, which is still to be read, in its own.

        mssql-jdbc waits for two messages, as it knows them from the real server; other drivers take either.
        """
        self._channel.write(tokens.done(tokens.DoneToken.DONE, tokens.DoneStatus.ERROR, Command.NONE.value))
        self._channel.end_message()
        message = self._channel.read_message()
        if message is None:
            # The interruption was a closed socket and not an attention.
            raise ConnectionResetError("the client left while its request ran")
        if message.type is not PacketType.ATTENTION:
            raise ProtocolError(f"message {message.type.name} while a request ran")
        self._channel.write(tokens.attention_acknowledgement())


def _refusal(error: SqlServerError) -> Iterator[Event]:
    yield ErrorRaised(error)
    yield StatementDone(failed=True)


def _with_one_end(events: Iterator[Event]) -> Iterator[Event]:
    """A transaction request has one DONE, also when it commits and begins: drivers read no further than the first."""
    end = StatementDone()
    for event in events:
        if not isinstance(event, StatementDone):
            yield event
        elif not end.failed:
            end = event
    yield end


def _close(events: Iterator[Event]) -> None:
    """Let a generator put things in order now, not when it is collected."""
    if isinstance(events, Generator):
        events.close()
