"""Values that PostgreSQL's own types have no room for, byte by byte over the wire and through change data capture."""

from __future__ import annotations

import datetime
import struct
from collections.abc import Iterator

import pytest

from cdc_database import CdcDatabase, cdc_database
from emulator_process import Emulator
from raw_client import HEADERS, RPC, RawClient

_DATETIME2, _TIME, _DATETIMEOFFSET = 0x2A, 0x29, 0x2B
_DAY = datetime.date(2026, 11, 22).toordinal() - 1
_NOON = 12 * 3600 * 10**7


@pytest.fixture
def database(emulator: Emulator) -> Iterator[CdcDatabase]:
    with cdc_database(emulator) as made:
        yield made


@pytest.fixture
def raw(emulator: Emulator, database: CdcDatabase) -> Iterator[RawClient]:
    with RawClient(emulator.port) as client:
        client.log_in(emulator.password)
        client.batch(f"USE {database.name}")
        yield client


def _datetime2(ticks: int) -> bytes:
    """A value with its length: the time of day in ticks of 100 ns, then the days since year 1."""
    return b"\x08" + ticks.to_bytes(5, "little") + _DAY.to_bytes(3, "little")


def _unicode(text: str) -> bytes:
    data = text.encode("utf-16-le")
    return b"\xe7" + struct.pack("<H", 8000) + b"\x09\x04\xd0\x00\x34" + struct.pack("<H", len(data)) + data


def _execute(client: RawClient, statement: str, declared: str, type_: bytes, value: bytes) -> bytes:
    """sp_executesql of a statement with the parameter @p."""
    arguments = b"\x00\x00" + _unicode(statement) + b"\x00\x00" + _unicode(f"@p {declared}")
    parameter = b"\x02" + "@p".encode("utf-16-le") + b"\x00" + type_ + value
    client.send(RPC, HEADERS + struct.pack("<HHH", 0xFFFF, 10, 0) + arguments + parameter)
    return client.read()


def test_keys_that_differ_in_the_seventh_digit_come_back_through_the_change_table(
    database: CdcDatabase, raw: RawClient
) -> None:
    database.run("CREATE TABLE dbo.t (at datetime2(7) NOT NULL PRIMARY KEY, name varchar(10))")
    database.enable("t")
    raw.batch("INSERT dbo.t VALUES ('2026-11-22 12:00:00.0000001', 'literal')")
    wrote = _execute(
        raw, "INSERT dbo.t VALUES (@p, 'parameter')", "datetime2(7)", bytes((_DATETIME2, 7)), _datetime2(_NOON + 2)
    )
    assert wrote[:1] != b"\xaa"
    database.scan()

    first, second = b"\xd1" + _datetime2(_NOON + 1), b"\xd1" + _datetime2(_NOON + 2)
    rows = raw.batch("SELECT at FROM dbo.t ORDER BY at")
    assert 0 < rows.index(first) < rows.index(second)
    captured = raw.batch("SELECT at FROM cdc.dbo_t_CT ORDER BY __$start_lsn")
    assert 0 < captured.index(first) < captured.index(second)
    found = _execute(
        raw, "SELECT at FROM dbo.t WHERE at = @p", "datetime2", bytes((_DATETIME2, 7)), _datetime2(_NOON + 2)
    )
    assert first not in found
    assert second in found
