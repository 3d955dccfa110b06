"""PRELOGIN: what the client asks before it logs in, and the answer. The encryption table is a real server's."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

from sqlserver_emulator.release import Release
from sqlserver_emulator.tds.reading import ProtocolError

_VERSION, _ENCRYPTION, _INSTANCE, _THREAD_ID, _MARS, _FEDERATED = 0, 1, 2, 3, 4, 6
_END = 0xFF
_OPTION = struct.Struct(">BHH")


class Encryption(IntEnum):
    OFF = 0
    ON = 1
    NOT_SUPPORTED = 2
    REQUIRED = 3


_ANSWERS: Mapping[Encryption, Encryption] = {
    # Both sides can and neither wants to: TLS around the login packet only.
    Encryption.OFF: Encryption.OFF,
    Encryption.ON: Encryption.ON,
    Encryption.NOT_SUPPORTED: Encryption.NOT_SUPPORTED,
    Encryption.REQUIRED: Encryption.ON,
}


@dataclass(frozen=True, slots=True)
class Prelogin:
    encryption: Encryption
    federated: bytes = b""
    """FEDAUTHREQUIRED; empty where the client leaves it out."""

    @property
    def asks_federated(self) -> bool:
        return self.federated == b"\x01"


def parse_prelogin(payload: bytes) -> Prelogin:
    options = _parse_options(payload)
    encryption = options.get(_ENCRYPTION, b"")
    if len(encryption) != 1:
        # SQL Server 2000's clients leave the option out: they know no TLS.
        return Prelogin(Encryption.NOT_SUPPORTED, options.get(_FEDERATED, b""))
    # 0x80 asks for a client certificate, which is not offered.
    return Prelogin(Encryption(encryption[0] & 0x03), options.get(_FEDERATED, b""))


def _parse_options(payload: bytes) -> dict[int, bytes]:
    options: dict[int, bytes] = {}
    position = 0
    while True:
        if position >= len(payload):
            raise ProtocolError("PRELOGIN option list has no end")
        if payload[position] == _END:
            return options
        if position + _OPTION.size > len(payload):
            raise ProtocolError("PRELOGIN option list is cut off")
        token, offset, length = _OPTION.unpack_from(payload, position)
        if offset + length > len(payload):
            raise ProtocolError(f"PRELOGIN option 0x{token:02X} lies outside the message")
        options[token] = payload[offset : offset + length]
        position += _OPTION.size


def answer_encryption(asked: Encryption) -> Encryption:
    return _ANSWERS[asked]


def build_prelogin_answer(request: Prelogin, release: Release) -> bytes:
    major, minor, build, _ = release.version
    options: list[tuple[int, bytes]] = [
        (_VERSION, struct.pack(">BBHH", major, minor, build, 0)),
        (_ENCRYPTION, bytes([answer_encryption(request.encryption)])),
        (_INSTANCE, b"\x00"),
        (_THREAD_ID, b""),
        (_MARS, b"\x00"),
    ]
    if request.federated:
        options.append((_FEDERATED, b"\x01" if request.asks_federated else b"\x00"))
    offset = _OPTION.size * len(options) + 1
    head, body = bytearray(), bytearray()
    for token, value in options:
        head += _OPTION.pack(token, offset + len(body), len(value))
        body += value
    return bytes(head) + bytes([_END]) + bytes(body)
