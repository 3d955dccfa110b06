"""LOGIN7: who logs in, to which database, with which packet size and features."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from sqlserver_emulator.tds.reading import MessageReader, ProtocolError

_FIXED = struct.Struct("<IIIIIIBBBBiI")
_FIELDS = struct.Struct("<18H6s4H")
_NEW_PASSWORD = struct.Struct("<HHI")
_LONG_SSPI = 0xFFFF
_TDS_72 = 0x72000000
_INTEGRATED_SECURITY = 0x80
_HAS_EXTENSION = 0x10
_READ_ONLY_INTENT = 0x20
_FEATURES_END = 0xFF
FEATURE_FEDERATED = 0x02
FEATURE_COLUMN_ENCRYPTION = 0x04
FEATURE_UTF8 = 0x0A
_SECURITY_TOKEN = 1


@dataclass(frozen=True, slots=True)
class Login:
    user: str
    password: str = field(repr=False)
    database: str
    host: str
    application: str
    packet_bytes: int
    """What the client asks for; 0 is the server's default."""
    tds_version: int
    integrated_security: bool = False
    reads_only: bool = False
    """ApplicationIntent=ReadOnly."""
    changes_password: bool = False
    feature_ids: frozenset[int] = frozenset()
    sspi: bytes = field(default=b"", repr=False)
    """The first token of integrated authentication."""
    token: str | None = field(default=None, repr=False)
    """Of federated authentication; None: the client has none, or wants to be led to a token service."""


def parse_login(payload: bytes) -> Login:
    if len(payload) < _FIXED.size + _FIELDS.size:
        raise ProtocolError(f"LOGIN7 of {len(payload)} bytes")
    _length, version, packet_bytes, _, _, _, _flags1, flags2, type_flags, flags3, _, _ = _FIXED.unpack_from(payload)
    fields = _FIELDS.unpack_from(payload, _FIXED.size)
    pairs = [(fields[i], fields[i + 1]) for i in range(0, 18, 2)]
    host, user, password, application, _server, extension, _library, _language, database = pairs
    features = _features(payload, extension) if flags3 & _HAS_EXTENSION else {}
    return Login(
        user=_text(payload, user),
        password=_reveal(_slice(payload, password)),
        database=_text(payload, database),
        host=_text(payload, host),
        application=_text(payload, application),
        packet_bytes=packet_bytes,
        tds_version=version,
        integrated_security=bool(flags2 & _INTEGRATED_SECURITY),
        reads_only=bool(type_flags & _READ_ONLY_INTENT),
        changes_password=version >= _TDS_72 and _asks_new_password(payload),
        feature_ids=frozenset(features),
        sspi=_sspi(payload, fields[19], fields[20]),
        token=_token(features[FEATURE_FEDERATED]) if FEATURE_FEDERATED in features else None,
    )


def _asks_new_password(payload: bytes) -> bool:
    position = _FIXED.size + _FIELDS.size
    if len(payload) < position + _NEW_PASSWORD.size:
        raise ProtocolError(f"LOGIN7 of {len(payload)} bytes")
    _offset, characters, _long_sspi = _NEW_PASSWORD.unpack_from(payload, position)
    return bool(characters)


def _sspi(payload: bytes, offset: int, size: int) -> bytes:
    if size == _LONG_SSPI:
        *_, size = _NEW_PASSWORD.unpack_from(payload, _FIXED.size + _FIELDS.size)
    return MessageReader(payload, offset).read_bytes(size) if size else b""


def _slice(payload: bytes, pair: tuple[int, int]) -> bytes:
    offset, characters = pair
    return MessageReader(payload, offset).read_bytes(2 * characters) if characters else b""


def _text(payload: bytes, pair: tuple[int, int]) -> str:
    try:
        return _slice(payload, pair).decode("utf-16-le")
    except UnicodeDecodeError as error:
        raise ProtocolError("a name in LOGIN7 is not valid UTF-16") from error


def _reveal(hidden: bytes) -> str:
    """Undo the hiding of the password (MS-TDS 2.2.6.4): XOR 0xA5, then swap the nibbles."""
    plain = bytes(((byte ^ 0xA5) << 4 | (byte ^ 0xA5) >> 4) & 0xFF for byte in hidden)
    return plain.decode("utf-16-le", errors="replace")


def _features(payload: bytes, pair: tuple[int, int]) -> dict[int, bytes]:
    """The data of each feature, by its number."""
    offset, length = pair
    if length < 4:
        raise ProtocolError("LOGIN7 extension is too short")
    reader = MessageReader(payload, MessageReader(payload, offset).read_u32())
    features = {}
    while (feature := reader.read_u8()) != _FEATURES_END:
        features[feature] = reader.read_bytes(reader.read_u32())
    return features


def _token(data: bytes) -> str | None:
    """The token of feature FEDAUTH (MS-TDS 2.2.6.4): the first byte has the client's library above one bit."""
    reader = MessageReader(data)
    if reader.read_u8() >> 1 != _SECURITY_TOKEN:
        return None
    try:
        return reader.read_bytes(reader.read_u32()).decode("utf-16-le")
    except UnicodeDecodeError as error:
        raise ProtocolError("the token in LOGIN7 is not valid UTF-16") from error
