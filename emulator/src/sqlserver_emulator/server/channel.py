"""Whole messages over a transport: packets put together on the way in, cut on the way out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sqlserver_emulator.errors import ClientFaultError
from sqlserver_emulator.server.limits import Capacity
from sqlserver_emulator.server.transport import Transport
from sqlserver_emulator.tds.packets import (
    DEFAULT_PACKET_BYTES,
    HEADER_BYTES,
    IGNORE,
    Buffer,
    PacketCutter,
    PacketHeader,
    PacketType,
    frame_message,
    parse_header,
)
from sqlserver_emulator.tds.reading import ProtocolError

# Several packets go out in one system call.
_FLUSH_BYTES = 256 << 10
_STEP_BYTES = 1 << 20
"""A message takes memory from what all clients share in steps of this size; one step is everybody's own."""


@dataclass(frozen=True, slots=True)
class Message:
    """``status``: the status bits of its first packet."""

    type: PacketType
    status: int
    payload: bytes


class MessageCancelledError(ClientFaultError):
    """The client broke off a message that was being read as it came, by an attention or by marking its last packet."""

    def __init__(self, packet_type: PacketType) -> None:
        super().__init__(packet_type.name)
        self.packet_type = packet_type


class Channel:
    """One message at a time in each direction."""

    def __init__(self, transport: Transport, capacity: Capacity) -> None:
        self.transport = transport
        self.column_encryption = False
        """Whether the login asked for it and was granted it: metadata in both directions has a table of keys then."""
        # Until the login a client may take little memory: anyone can connect.
        self.largest_message_bytes = capacity.limits.login_bytes
        self._memory = capacity.message_bytes
        self._taken_bytes = 0
        self._buffer = bytearray()
        self._cutter = PacketCutter(PacketType.RESPONSE, DEFAULT_PACKET_BYTES)

    def set_packet_bytes(self, packet_bytes: int, session_id: int) -> None:
        """From the next message on."""
        self._cutter = PacketCutter(PacketType.RESPONSE, packet_bytes, session_id)

    def take_read_ahead(self) -> bytes:
        """Bytes received beyond the last message: they belong to the transport that replaces this one."""
        data = bytes(self._buffer)
        self._buffer.clear()
        return data

    def read_message(self) -> Message | None:
        """None when the client has gone. Messages that the client itself cancelled are left out.

        The message's memory is the client's until it reads the next one or is closed. A bulk load is only announced:
        it may be of any size, and ``read_stream`` gives it piece by piece.
        """
        while True:
            self.close()
            payload = bytearray()
            first: PacketHeader | None = None
            while True:
                if not self._fill(HEADER_BYTES, mid_message=first is not None):
                    return None
                header = parse_header(self._buffer)
                # A bulk load is not gathered: its rows are read while they are loaded.
                if first is None and header.type is PacketType.BULK_LOAD:
                    return Message(header.type, header.status, b"")
                self._fill(header.length, mid_message=True)
                if first is not None and header.type is not first.type:
                    first = _take_over(first, header)
                    # What the client sent of the broken-off message is dropped.
                    payload.clear()
                first = first or header
                payload += memoryview(self._buffer)[HEADER_BYTES : header.length]
                del self._buffer[: header.length]
                # Checked before the next packet is read, so a message cannot exceed the limit by more than one packet.
                self._take_memory(len(payload))
                if header.is_last:
                    break
            # The client marked the message as one to ignore; no answer is expected.
            if not header.status & IGNORE:
                return Message(header.type, first.status, bytes(payload))

    def _take_memory(self, size: int) -> None:
        if size > self.largest_message_bytes:
            raise ProtocolError(f"a message of more than {self.largest_message_bytes} bytes")
        # One step is free for each client, so that small messages never wait for the shared allowance.
        while size > self._taken_bytes + _STEP_BYTES:
            if not self._memory.take(_STEP_BYTES):
                raise ProtocolError(f"the messages of all clients exceed {self._memory.most} bytes")
            self._taken_bytes += _STEP_BYTES

    def close(self) -> None:
        """Give back the memory of the last message."""
        self._memory.give_back(self._taken_bytes)
        self._taken_bytes = 0

    def read_stream(self) -> Iterator[bytes]:
        """The payload of the message that ``read_message`` has only announced, packet by packet."""
        while True:
            self._fill(HEADER_BYTES, mid_message=True)
            header = parse_header(self._buffer)
            self._fill(header.length, mid_message=True)
            payload = bytes(memoryview(self._buffer)[HEADER_BYTES : header.length])
            del self._buffer[: header.length]
            # An attention in the middle of the rows ends the bulk load.
            if header.type is not PacketType.BULK_LOAD:
                raise MessageCancelledError(header.type)
            yield payload
            if header.is_last:
                # The client ended the message properly, but marked it as one to ignore.
                if header.status & IGNORE:
                    raise MessageCancelledError(header.type)
                return

    def _fill(self, size: int, *, mid_message: bool) -> bool:
        while len(self._buffer) < size:
            data = self.transport.receive()
            if not data:
                # A client may leave between messages, but not within one.
                if mid_message or self._buffer:
                    raise ProtocolError("the client left in the middle of a message")
                return False
            self._buffer += data
        return True

    def write(self, data: Buffer) -> bool:
        """Add to the response; True when something was sent because enough had gathered."""
        self._cutter.add(data)
        if self._cutter.pending_bytes < _FLUSH_BYTES:
            return False
        self.transport.send(self._cutter.cut())
        return True

    def send_unfinished(self) -> None:
        """Send what there is of a message whose end will not come."""
        self.transport.send(self._cutter.cut_all())

    def end_message(self) -> None:
        self.transport.send(self._cutter.finish())

    def send_message(self, packet_type: PacketType, payload: bytes) -> None:
        self.transport.send(frame_message(packet_type, payload))


def _take_over(first: PacketHeader, header: PacketHeader) -> PacketHeader:
    """A packet of another type inside a message: an attention gives up what was sent so far."""
    if header.type is not PacketType.ATTENTION:
        raise ProtocolError(f"a packet {header.type.name} inside a message {first.type.name}")
    return header
