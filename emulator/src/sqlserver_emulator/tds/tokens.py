"""The tokens of a response, each as a function that returns its bytes; ``response`` knows which comes when."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from enum import IntFlag
from functools import lru_cache

from sqlserver_emulator import code_units
from sqlserver_emulator.collations import DEFAULT_COLLATION, IGNORE_CASE
from sqlserver_emulator.errors import SqlServerError
from sqlserver_emulator.events import Column, Command, Info, ReturnValue
from sqlserver_emulator.release import Release
from sqlserver_emulator.tds import type_info
from sqlserver_emulator.tds.values import cell_encoder, null_bytes

SERVER_NAME = "sqlserver-emulator"
PRODUCT_NAME = "Microsoft SQL Server"
LANGUAGE = "us_english"

_TDS_74 = bytes((0x74, 0x00, 0x00, 0x04))
_INTERFACE_TSQL = 1
_LONGEST_MESSAGE = 8000
_OUTPUT_PARAMETER = 0x01
_TCP = 0

_NULLABLE = 0x0001
_CASE_SENSITIVE = 0x0002
_UPDATEABLE_UNKNOWN = 0x0008
_IDENTITY = 0x0010
_COMPUTED = 0x0020

_EXPRESSION = 0x04
_HIDDEN = 0x10


class DoneToken:
    DONE = 0xFD
    DONEPROC = 0xFE
    DONEINPROC = 0xFF


class DoneStatus(IntFlag):
    FINAL = 0x00
    MORE = 0x01
    ERROR = 0x02
    IN_TRANSACTION = 0x04
    COUNT = 0x10
    ATTENTION = 0x20
    RPC_IN_BATCH = 0x80
    SERVER_ERROR = 0x100


class EnvironmentChange:
    DATABASE = 1
    LANGUAGE = 2
    PACKET_SIZE = 4
    COLLATION = 7
    RESET_DONE = 18
    ROUTING = 20


def short_text(text: str) -> bytes:
    """B_VARCHAR, cut at 255 UTF-16 units."""
    data = code_units.to_utf16(text)[:510]
    return bytes((len(data) // 2,)) + data


def _long_text(text: str) -> bytes:
    data = code_units.to_utf16(text)
    return struct.pack("<H", len(data) // 2) + data


def done(token: int, status: int, command: int, row_count: int = 0) -> bytes:
    return struct.pack("<BHHQ", token, status, command & 0xFFFF, row_count)


def error(raised: SqlServerError) -> bytes:
    line = raised.line or 1
    return _message(0xAA, Info(raised.number, raised.message, raised.severity, raised.state, raised.procedure, line))


def info(event: Info) -> bytes:
    return _message(0xAB, event)


def _message(token: int, content: Info) -> bytes:
    # The server sends severity 10 as 0 "for compatibility"; pymssql would raise a mere warning of class 10.
    severity = 0 if content.severity == 10 else content.severity
    body = (
        struct.pack("<iBB", content.number, content.state & 0xFF, severity)
        + _long_text(content.message[:_LONGEST_MESSAGE])
        + short_text(SERVER_NAME)
        + short_text(content.procedure)
        + struct.pack("<I", max(content.line, 0))
    )
    return struct.pack("<BH", token, len(body)) + body


def _environment_change(kind: int, new: bytes, old: bytes) -> bytes:
    return struct.pack("<BHB", 0xE3, 1 + len(new) + len(old), kind) + new + old


def text_change(kind: int, new: str, old: str = "") -> bytes:
    """Database, language, packet size."""
    return _environment_change(kind, short_text(new), short_text(old))


def collation_change(collation: bytes) -> bytes:
    return _environment_change(EnvironmentChange.COLLATION, bytes((len(collation),)) + collation, b"\x00")


def transaction_change(kind: int, descriptor: int, *, begun: bool) -> bytes:
    """8 begun carries the descriptor as the new value, 9 committed and 10 rolled back as the old one."""
    value = b"\x08" + struct.pack("<Q", descriptor)
    return _environment_change(kind, value, b"\x00") if begun else _environment_change(kind, b"\x00", value)


def routing(host: str, port: int) -> bytes:
    """Lead the client to another server, over TCP: it leaves this one and logs in there."""
    body = struct.pack("<BH", _TCP, port) + _long_text(host)
    return _environment_change(EnvironmentChange.ROUTING, struct.pack("<H", len(body)) + body, b"\x00\x00")


def reset_done() -> bytes:
    return _environment_change(EnvironmentChange.RESET_DONE, b"\x00", b"\x00")


def login_acknowledgement(release: Release) -> bytes:
    major, minor, build, _ = release.version
    body = bytes((_INTERFACE_TSQL,)) + _TDS_74 + short_text(PRODUCT_NAME) + struct.pack(">BBH", major, minor, build)
    return struct.pack("<BH", 0xAD, len(body)) + body


def sspi(data: bytes) -> bytes:
    """A token of integrated authentication, which the client answers with one of its own."""
    return struct.pack("<BH", 0xED, len(data)) + data


def feature_acknowledgement(*, utf8: bool, federated: bool, column_encryption: bool) -> bytes:
    """A feature that is not acknowledged stays off. That of a token has no data, column encryption has its version: 1
    is without enclaves."""
    granted = struct.pack("<BI", 0x02, 0) if federated else b""
    granted += struct.pack("<BIB", 0x04, 1, 1) if column_encryption else b""
    granted += struct.pack("<BIB", 0x0A, 1, 1) if utf8 else b""
    return b"\xae" + granted + b"\xff" if granted else b""


def return_status(value: int) -> bytes:
    return struct.pack("<Bi", 0x79, value)


def return_value(result: ReturnValue) -> bytes:
    type_ = result.type
    value = null_bytes(type_) if result.value is None else cell_encoder(type_)(result.value)
    return (
        struct.pack("<BH", 0xAC, result.ordinal)
        + short_text(result.name)
        + struct.pack("<BIH", _OUTPUT_PARAMETER, 0, _NULLABLE)
        + type_info.encode_type_info(type_)
        + value
    )


@lru_cache(maxsize=1024)
def column_metadata(columns: Sequence[Column], *, column_encryption: bool = False) -> bytes:
    """``column_encryption``: the client has it, and expects the table of the keys, which has none."""
    keys = b"\x00\x00" if column_encryption else b""
    metadata = struct.pack("<BH", 0x81, len(columns)) + keys + b"".join(map(_column, columns))
    return metadata + _column_information(columns) if any(column.hidden for column in columns) else metadata


def _column_information(columns: Sequence[Column]) -> bytes:
    """COLINFO, by which results of server cursors mark what is hidden. No column is said to be a table's."""
    body = b"".join(
        bytes((number, 0, _EXPRESSION | (_HIDDEN if column.hidden else 0))) for number, column in enumerate(columns, 1)
    )
    return struct.pack("<BH", 0xA5, len(body)) + body


def _column(column: Column) -> bytes:
    type_ = column.type
    flags = _NULLABLE if column.nullable else 0
    collation = column.collation or DEFAULT_COLLATION
    if type_info.is_character(type_) and not collation.comparison_style & IGNORE_CASE:
        flags |= _CASE_SENSITIVE
    flags |= _IDENTITY if column.identity else 0
    flags |= _COMPUTED if column.computed else 0
    flags |= 0 if column.identity or column.computed else _UPDATEABLE_UNKNOWN
    user_type = type_info.TIMESTAMP_USER_TYPE if type_.name == "rowversion" else 0
    table_name = b"\x01" + _long_text("") if type_.name in type_info.POINTER_NAMES else b""
    head = struct.pack("<IH", user_type, flags)
    return head + type_info.encode_type_info(type_, collation.wire) + table_name + short_text(column.name)


def attention_acknowledgement() -> bytes:
    return done(DoneToken.DONE, DoneStatus.ATTENTION, Command.NONE.value)
