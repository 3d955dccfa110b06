"""Read the write-ahead log: one replication slot, streamed by PostgreSQL's WAL sender over a replication connection.

Owns the connection and its two-way protocol: the log's content comes in commit order, whole transactions only; what has
been captured is confirmed back, so that the server may drop that part of its log. A reader that is closed, or killed,
loses nothing: the slot holds the log from the last confirmed place, and the next reader is given its start.

The sender is used rather than ``pg_logical_slot_peek_binary_changes`` because it keeps its decoding state: a peek
decodes everything since the slot's restart point again at each call, which for short intervals costs more than the
changes.

Leaves the meaning of messages to ``pgoutput`` and ``capture``.
"""

from __future__ import annotations

import select
import time
from struct import Struct

from psycopg import OperationalError, pq

from sqlserver_emulator.cdc.lsn import position_text

PAYLOAD_AT = 25
"""Where a message's own bytes begin in what ``receive`` returns; before them are the sender's place and time."""

_XLOG_DATA = ord("w")
# A keepalive: its kind (1 byte), the sender's position (8), the time (8), then this byte.
_KEEPALIVE_WANTS_REPLY_AT = 17
_POSITION = Struct(">Q")
# A standby status update: its kind, the positions written, flushed and applied, the time, whether to reply at once.
_STATUS = Struct(">cQQQqB")
_POSTGRES_EPOCH_SECONDS = 946_684_800
# The bounds of one `receive`: the scan checks only between two of them whether it was asked to stop.
_BATCH_MESSAGES = 4096
_BATCH_BYTES = 4 << 20
# The SQLSTATE of a slot that another process reads.
_OBJECT_IN_USE = b"55006"


class LogReaderError(OperationalError):
    """The log cannot be read. ``busy``: another reader has the slot."""

    def __init__(self, message: str, *, busy: bool = False) -> None:
        super().__init__(message)
        self.busy = busy


class LogReader:
    """One streaming connection to a slot. Not thread-safe.

    ``position``: every transaction whose commit record begins below it has been returned by ``receive``.
    """

    def __init__(
        self, conninfo: str, *, slot: str, publication: str, after_position: int, is_binary: bool = True
    ) -> None:
        """Read the transactions whose commit record begins at or after ``after_position``.

        ``is_binary``: values come in PostgreSQL's binary form, otherwise as its text.

        Raises LogReaderError when the server does not let us, ``busy`` when another process reads this slot.
        """
        self.position = after_position
        self._confirmed = after_position
        # Without a timeout: a job is silent between two scans, for up to a day, and the sender would take it for dead.
        self._connection = pq.PGconn.connect(
            f"{conninfo} replication=database options='-c wal_sender_timeout=0'".encode()
        )
        if self._connection.status != pq.ConnStatus.OK:
            raise LogReaderError(self._error_message())
        self._start(slot, publication, after_position, is_binary=is_binary)
        self._poll = select.poll()
        self._poll.register(self._connection.socket, select.POLLIN)

    def _start(self, slot: str, publication: str, after_position: int, *, is_binary: bool) -> None:
        # origin 'none' leaves out what the capture job itself writes: it marks its transactions with an origin.
        result = self._connection.exec_(
            f"START_REPLICATION SLOT {slot} LOGICAL {position_text(after_position)} (proto_version '1',"
            f" publication_names '{publication}', binary '{is_binary}', messages 'true', origin 'none')".encode()
        )
        if result.status != pq.ExecStatus.COPY_BOTH:
            busy = result.error_field(pq.DiagnosticField.SQLSTATE) == _OBJECT_IN_USE
            message = self._error_message()
            self.close()
            raise LogReaderError(message, busy=busy)

    def receive(self, timeout_seconds: float) -> list[bytes]:
        """Return the messages that have arrived; wait for the first at most ``timeout_seconds``; empty when none came.

        Each is the raw frame: ``message_position`` reads its place, the pgoutput message starts at PAYLOAD_AT.
        """
        messages: list[bytes] = []
        get = self._connection.get_copy_data
        waited = False
        received_bytes = 0
        while len(messages) < _BATCH_MESSAGES and received_bytes < _BATCH_BYTES:
            # The 1 means that the call does not block: it returns the length 0 when no whole message has arrived.
            length, data = get(1)
            if length > 0:
                if data[0] == _XLOG_DATA:
                    messages.append(bytes(data))
                    received_bytes += length
                else:
                    self._note_keepalive(data)
            elif length < 0:
                raise LogReaderError(self._error_message() or "the server ended the replication connection")
            elif messages or waited:
                break
            else:
                waited = True
                if self._poll.poll(timeout_seconds * 1000):
                    self._connection.consume_input()
        return messages

    def request_position(self) -> None:
        """Ask the sender how far it has read; ``receive`` takes the answer into ``position``."""
        self._send_status(reply=True)

    def confirm(self, position: int) -> None:
        """Confirm that all transactions that commit below ``position`` are captured; the server may forget them."""
        self._confirmed = position
        self._send_status(reply=False)

    @property
    def sender_pid(self) -> int:
        """The process of the server at the other end, which holds the slot a moment longer than this reader lives."""
        return self._connection.backend_pid

    def close(self) -> None:
        """Close the connection. The slot is free when the sender has noticed it."""
        self._connection.finish()

    def _note_keepalive(self, data: memoryview) -> None:
        (position,) = _POSITION.unpack_from(data, 1)
        # The only way to learn that the log was read: transactions that the publication leaves out send no message.
        self.position = max(self.position, position)
        if data[_KEEPALIVE_WANTS_REPLY_AT]:
            self._send_status(reply=False)

    def _send_status(self, *, reply: bool) -> None:
        now = int((time.time() - _POSTGRES_EPOCH_SECONDS) * 1_000_000)
        place = self._confirmed
        # The connection is blocking: a status is 34 bytes and the server reads them whenever it waits.
        # Written, flushed and applied are one position here, as nothing is confirmed before it is stored for good.
        self._connection.put_copy_data(_STATUS.pack(b"r", place, place, place, now, reply))
        self._connection.flush()

    def _error_message(self) -> str:
        return self._connection.error_message.decode(errors="replace").strip()


def message_position(message: bytes) -> int:
    """Return the place of the record behind a message of ``LogReader.receive``."""
    position: int = _POSITION.unpack_from(message, 1)[0]
    return position
