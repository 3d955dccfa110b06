"""Reading a message from its start to its end with every length checked. Knows no message by itself."""

from __future__ import annotations

import struct

from sqlserver_emulator import code_units
from sqlserver_emulator.errors import ClientFaultError

_U16 = struct.Struct("<H")
_U32 = struct.Struct("<I")
_I32 = struct.Struct("<i")
_U64 = struct.Struct("<Q")


class ProtocolError(ClientFaultError):
    """The peer broke the protocol; the connection ends. The message is for the log and holds no user data."""


class MessageReader:
    """A position in a message. Every ``read_*`` moves it, or raises ProtocolError when the message is too short."""

    __slots__ = ("data", "end", "position")

    def __init__(self, data: bytes, position: int = 0) -> None:
        self.data = data
        self.position = position
        self.end = len(data)

    @property
    def at_end(self) -> bool:
        return self.position >= self.end

    def _advance(self, size: int) -> int:
        start = self.position
        if size < 0 or start + size > self.end:
            raise ProtocolError(f"message of {self.end} bytes ends inside a field of {size} bytes at {start}")
        self.position = start + size
        return start

    def read_bytes(self, size: int) -> bytes:
        start = self._advance(size)
        return self.data[start : start + size]

    def read_u8(self) -> int:
        return self.data[self._advance(1)]

    def read_u16(self) -> int:
        value: int = _U16.unpack_from(self.data, self._advance(2))[0]
        return value

    def read_u32(self) -> int:
        value: int = _U32.unpack_from(self.data, self._advance(4))[0]
        return value

    def read_i32(self) -> int:
        value: int = _I32.unpack_from(self.data, self._advance(4))[0]
        return value

    def read_u64(self) -> int:
        value: int = _U64.unpack_from(self.data, self._advance(8))[0]
        return value

    def read_text(self, characters: int) -> str:
        """UTF-16LE code units."""
        try:
            return code_units.from_utf16(self.read_bytes(2 * characters))
        except UnicodeDecodeError as error:
            raise ProtocolError("text is not valid UTF-16") from error

    def read_short_text(self) -> str:
        """B_VARCHAR: one length byte."""
        return self.read_text(self.read_u8())

    def peek_u8(self) -> int:
        if self.at_end:
            raise ProtocolError("message ends where a byte was expected")
        return self.data[self.position]


def skip_all_headers(reader: MessageReader) -> None:
    """SQLBatch, RPC and transaction messages begin with ALL_HEADERS (MS-TDS 2.2.5.3); nothing in it is needed.

    The transaction descriptor inside matters only with MARS, which is not offered.
    """
    total = reader.read_u32()
    if total < 4:
        raise ProtocolError(f"ALL_HEADERS of {total} bytes")
    reader.read_bytes(total - 4)
