"""Shared code of the tests of all clients: statements through a DB-API connection, and types with their extremes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import date, datetime, timedelta, timezone
from datetime import time as datetime_time
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from emulator_process import Emulator

DATABASE = "Clients"
OFFSET = timezone(timedelta(hours=-3, minutes=-30))

# declared type, literal, what a driver must return
TYPES: list[tuple[str, str, object]] = [
    ("bit", "1", True),
    ("tinyint", "255", 255),
    ("smallint", "-32768", -32768),
    ("int", "-2147483648", -2147483648),
    ("bigint", "9223372036854775807", 9223372036854775807),
    ("decimal(18,2)", "-9999999999999999.99", Decimal("-9999999999999999.99")),
    (
        "numeric(38,10)",
        "1234567890123456789012345678.0123456789",
        Decimal("1234567890123456789012345678.0123456789"),
    ),
    ("money", "-922337203685477.5808", Decimal("-922337203685477.5808")),
    ("smallmoney", "214748.3647", Decimal("214748.3647")),
    ("real", "1.5", 1.5),
    ("float", "-1.7976931348623157E308", -1.7976931348623157e308),
    ("date", "'0001-01-01'", date(1, 1, 1)),
    ("time(6)", "'23:59:59.999999'", datetime_time(23, 59, 59, 999999)),
    ("datetime2(7)", "'9999-12-31 23:59:59.999999'", datetime(9999, 12, 31, 23, 59, 59, 999999)),
    ("datetime2(0)", "'0001-01-01 00:00:00'", datetime(1, 1, 1)),
    (
        "datetimeoffset(6)",
        "'2024-02-29 12:30:00.000001 -03:30'",
        datetime(2024, 2, 29, 12, 30, 0, 1, OFFSET),
    ),
    ("datetime", "'1753-01-01 23:59:59.997'", datetime(1753, 1, 1, 23, 59, 59, 997000)),
    ("smalldatetime", "'2079-06-06 23:59'", datetime(2079, 6, 6, 23, 59)),
    ("char(5)", "'abc'", "abc  "),
    ("varchar(20)", "'Größe €'", "Größe €"),
    ("varchar(max)", "replicate(cast('ü' as varchar(max)), 9000)", "ü" * 9000),
    ("nchar(4)", "N'日本'", "日本  "),
    ("nvarchar(20)", "N'naïve 🌊'", "naïve 🌊"),
    ("nvarchar(max)", "replicate(cast(N'é' as nvarchar(max)), 5000)", "é" * 5000),
    ("sysname", "N'dbo'", "dbo"),
    ("binary(4)", "0x0001FEFF", b"\x00\x01\xfe\xff"),
    ("varbinary(10)", "0x", b""),
    ("varbinary(max)", "0x" + "00FF" * 5000, b"\x00\xff" * 5000),
    ("uniqueidentifier", "'12345678-9ABC-DEF0-1234-56789ABCDEF0'", UUID("12345678-9abc-def0-1234-56789abcdef0")),
    ("xml", "N'<a>é</a>'", "<a>é</a>"),
    ("text", "'old text'", "old text"),
    ("ntext", "N'old é'", "old é"),
    ("image", "0x89504E47", b"\x89PNG"),
]


def rows_of(connection: Any, statement: str, *parameters: object) -> list[tuple[object, ...]]:
    cursor = connection.cursor()
    cursor.execute(statement, parameters) if parameters else cursor.execute(statement)
    rows = [tuple(row) for row in cursor.fetchall()]
    cursor.close()
    return rows


def run(connection: Any, statement: str, *parameters: object) -> Any:
    """The cursor that ran it. A new one each time: python-tds has one at a time, and closes the one before."""
    cursor = connection.cursor()
    cursor.execute(statement, parameters) if parameters else cursor.execute(statement)
    return cursor


def error_of(statement: Callable[[], object]) -> BaseException:
    with pytest.raises(Exception) as caught:
        statement()
    return caught.value


def names_in(server: Emulator) -> list[object]:
    other = server.connect_pymssql(DATABASE)
    names = [row[0] for row in rows_of(other, "SELECT Name FROM dbo.Things ORDER BY Name")]
    other.close()
    return names


def until(condition: Callable[[], bool], seconds: float = 30) -> None:
    """Wait for what happens by itself."""
    deadline = time.monotonic() + seconds
    pause = threading.Event()
    while not condition():
        assert time.monotonic() < deadline, "it did not come true in time"
        pause.wait(0.05)
