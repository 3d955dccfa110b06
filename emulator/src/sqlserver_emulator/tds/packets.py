"""TDS packets: the eight-byte header, and cutting a response into packets. Sockets belong to ``server.transport``."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import TypeAlias

from sqlserver_emulator.tds.reading import ProtocolError

Buffer: TypeAlias = bytes | bytearray | memoryview

HEADER_BYTES = 8
DEFAULT_PACKET_BYTES = 4096
SMALLEST_PACKET_BYTES = 512
LARGEST_PACKET_BYTES = 32767
LARGEST_TLS_PACKET_BYTES = 16000
"""A TLS record holds 16 KB: mssql-jdbc refuses more, and msodbcsql18 wants room in it for the record's own bytes."""

LAST = 0x01
IGNORE = 0x02
RESET = 0x08
RESET_KEEPING_TRANSACTION = 0x10

_HEADER = struct.Struct(">BBHHBB")


class PacketType(IntEnum):
    SQL_BATCH = 0x01
    RPC = 0x03
    RESPONSE = 0x04
    ATTENTION = 0x06
    BULK_LOAD = 0x07
    TRANSACTION = 0x0E
    LOGIN = 0x10
    SSPI = 0x11
    PRELOGIN = 0x12


@dataclass(frozen=True, slots=True)
class PacketHeader:
    """``length`` includes the header."""

    type: PacketType
    status: int
    length: int

    @property
    def is_last(self) -> bool:
        return bool(self.status & LAST)


def parse_header(data: Buffer) -> PacketHeader:
    """Raises ProtocolError for a type that no client may send, or an impossible length."""
    number, status, length, _spid, _packet_id, _window = _HEADER.unpack_from(data)
    try:
        packet_type = PacketType(number)
    except ValueError:
        raise ProtocolError(f"unknown packet type 0x{number:02X}") from None
    if not HEADER_BYTES <= length <= LARGEST_PACKET_BYTES + 1:
        raise ProtocolError(f"packet length {length}")
    return PacketHeader(packet_type, status, length)


def negotiate_packet_bytes(requested: int, *, tls: bool) -> int:
    """Return the size that the server grants; 0 asks for the server's default."""
    if requested == 0:
        return DEFAULT_PACKET_BYTES
    largest = LARGEST_TLS_PACKET_BYTES if tls else LARGEST_PACKET_BYTES
    return max(SMALLEST_PACKET_BYTES, min(requested, largest))


class PacketCutter:
    """Cuts one message into packets as it grows.

    At least one byte is always held back, because the last packet carries the end-of-message bit and the end is known
    only when it comes.
    """

    def __init__(self, packet_type: PacketType, packet_bytes: int, spid: int = 0) -> None:
        self._type = packet_type
        self._payload_bytes = packet_bytes - HEADER_BYTES
        self._spid = spid & 0xFFFF
        self._packet_id = 0
        self._pending = bytearray()

    @property
    def pending_bytes(self) -> int:
        return len(self._pending)

    def add(self, data: Buffer) -> None:
        self._pending += data

    def _header(self, status: int, payload_bytes: int) -> bytes:
        self._packet_id = (self._packet_id + 1) & 0xFF
        return _HEADER.pack(self._type, status, payload_bytes + HEADER_BYTES, self._spid, self._packet_id, 0)

    def cut(self) -> bytes:
        """The packets that are full so far."""
        size = self._payload_bytes
        count = (len(self._pending) - 1) // size if self._pending else 0
        if count == 0:
            return b""
        pieces: list[Buffer] = []
        with memoryview(self._pending) as view:
            for start in range(0, count * size, size):
                pieces.append(self._header(0, size))
                pieces.append(view[start : start + size])
            packets = b"".join(pieces)
            pieces.clear()
        del self._pending[: count * size]
        return packets

    def cut_all(self) -> bytes:
        """Everything so far, of a message that will have no end."""
        packets = self.cut()
        rest = bytes(self._pending)
        self._pending.clear()
        return packets + self._header(0, len(rest)) + rest if rest else packets

    def finish(self) -> bytes:
        """The rest of the message, its last packet marked so; the cutter may then be used for another message."""
        packets = self.cut()
        rest = bytes(self._pending)
        self._pending.clear()
        packets += self._header(LAST, len(rest)) + rest
        self._packet_id = 0
        return packets


def frame_message(packet_type: PacketType, payload: Buffer, packet_bytes: int = DEFAULT_PACKET_BYTES) -> bytes:
    """A whole message as packets."""
    cutter = PacketCutter(packet_type, packet_bytes)
    cutter.add(payload)
    return cutter.finish()
