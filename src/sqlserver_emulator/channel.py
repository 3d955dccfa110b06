"""Whole messages over a transport: packets put together on the way in, cut on the way out."""

from __future__ import annotations

from dataclasses import dataclass

from sqlserver_emulator.tds.packets import (
    DEFAULT_PACKET_BYTES,
    HEADER_BYTES,
    IGNORE,
    Buffer,
    PacketCutter,
    PacketType,
    frame_message,
    parse_header,
)
from sqlserver_emulator.tds.reading import ProtocolError
from sqlserver_emulator.transport import Transport

LARGEST_LOGIN_BYTES = 128 << 10
LARGEST_MESSAGE_BYTES = 1 << 30
_FLUSH_BYTES = 256 << 10


@dataclass(frozen=True, slots=True)
class Message:
    """``status``: the status bits of its first packet."""

    type: PacketType
    status: int
    payload: bytes


class Channel:
    """One message at a time in each direction."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self.largest_message_bytes = LARGEST_LOGIN_BYTES
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
        """None when the client has gone. Messages that the client itself cancelled are left out."""
        while True:
            payload = bytearray()
            first_status: int | None = None
            while True:
                if not self._fill(HEADER_BYTES, mid_message=first_status is not None):
                    return None
                header = parse_header(self._buffer)
                self._fill(header.length, mid_message=True)
                payload += memoryview(self._buffer)[HEADER_BYTES : header.length]
                del self._buffer[: header.length]
                if len(payload) > self.largest_message_bytes:
                    raise ProtocolError(f"a message of more than {self.largest_message_bytes} bytes")
                first_status = header.status if first_status is None else first_status
                if header.is_last:
                    break
            if not header.status & IGNORE:
                return Message(header.type, first_status, bytes(payload))

    def _fill(self, size: int, *, mid_message: bool) -> bool:
        while len(self._buffer) < size:
            data = self.transport.receive()
            if not data:
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

    def end_message(self) -> None:
        self.transport.send(self._cutter.finish())

    def send_message(self, packet_type: PacketType, payload: bytes) -> None:
        self.transport.send(frame_message(packet_type, payload))
