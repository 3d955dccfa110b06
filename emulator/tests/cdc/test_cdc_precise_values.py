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


_UNITS = {
    "NUL": b"a\0\0\0b\0",
    "high half": b"a\0\x3d\xd8b\0",
    "low half": b"\x00\xde",
    "halves the wrong way round": b"\x00\xde\x3d\xd8",
    "pair": b"\x3d\xd8\x00\xde",
    "first of the escapes": "\U0010f000".encode("utf-16-le"),
    "escape of NUL": "\U0010f800".encode("utf-16-le"),
}


@pytest.mark.parametrize("units", _UNITS.values(), ids=_UNITS.keys())
def test_every_code_unit_comes_back_through_the_change_table(
    database: CdcDatabase, raw: RawClient, units: bytes
) -> None:
    database.run("CREATE TABLE dbo.t (id int PRIMARY KEY, v nvarchar(20))")
    database.enable("t")
    value = struct.pack("<H", len(units)) + units
    raw.batch("INSERT dbo.t VALUES (1, N'" + units.decode("utf-16-le", "surrogatepass") + "')")
    _execute(raw, "INSERT dbo.t VALUES (2, @p)", "nvarchar(20)", b"\xe7\x28\x00\x09\x04\xd0\x00\x34", value)
    raw.batch(f"INSERT dbo.t VALUES (3, CAST(0x{units.hex()} AS nvarchar(20)))")
    database.scan()
    assert raw.batch("SELECT v FROM dbo.t").count(b"\xd1" + value) == 3
    assert raw.batch("SELECT v FROM cdc.dbo_t_CT").count(b"\xd1" + value) == 3
    query = "SELECT {} FROM dbo.t WHERE v = (SELECT v FROM dbo.t WHERE id = 1)"
    assert database.query(query.format("COUNT(*) AS n")) == [{"n": 3}]
    facts = "DISTINCT LEN(v) AS n, DATALENGTH(v) AS bytes, CAST(v AS varbinary(40)) AS units"
    assert database.query(query.format(facts)) == [{"n": len(units) // 2, "bytes": len(units), "units": units}]


def test_a_nul_in_a_varchar_is_one_byte(database: CdcDatabase, raw: RawClient) -> None:
    database.run(
        "CREATE TABLE dbo.t (id int PRIMARY KEY, v varchar(20))", "INSERT dbo.t VALUES (1, 'a' + CHAR(0) + 'é')"
    )
    assert b"\xd1\x03\x00a\x00\xe9" in raw.batch("SELECT v FROM dbo.t")
    assert database.scalar("CAST(CHAR(0) AS varbinary(4))") == b"\0"


def test_a_large_result_has_every_code_unit(database: CdcDatabase, raw: RawClient) -> None:
    database.run(
        "CREATE TABLE dbo.t (id int PRIMARY KEY, v nvarchar(20), c varchar(5), at datetime2(7))",
        "INSERT dbo.t SELECT value, NCHAR(0xD83D) + N'é', CHAR(0),"
        " DATEADD(nanosecond, 100, CAST('2026-11-22T12:00:00' AS datetime2))"
        " FROM GENERATE_SERIES(1, 6000)",
    )
    row = b"\x04\x00\x3d\xd8\xe9\x00" + b"\x01\x00\x00" + _datetime2(_NOON + 1)
    assert raw.batch("SELECT v, c, at FROM dbo.t").count(row) == 6000


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("UNICODE(NCHAR(0xD83D))", 0xD83D),
        ("UNICODE(NCHAR(0))", 0),
        ("ASCII(CHAR(0))", 0),
        ("UNICODE(SUBSTRING(N'😀', 2, 1))", 0xDE00),
        ("LEN(LEFT(N'😀x', 1))", 1),
        ("CAST(NCHAR(0xD83D) + NCHAR(0xDE00) AS varbinary(8))", b"\x3d\xd8\x00\xde"),
        ("CAST(N'\\a\\000é\\ă䄀éA' AS varbinary(max))", "\\a\\000é\\ă䄀éA".encode("utf-16-le")),
        ("CAST(N'' AS varbinary(8))", b""),
        ("CASE WHEN NCHAR(0xD83D) + NCHAR(0xDE00) = N'😀' THEN 1 END", 1),
        ("CASE WHEN NCHAR(0xD83D) = NCHAR(0xDE00) THEN 1 ELSE 0 END", 0),
        ("CHARINDEX(N'x', N'😀x')", 3),
        ("CHARINDEX(NCHAR(0xDE00), N'😀x')", 2),
        ("CAST(REPLACE(N'a😀' COLLATE Latin1_General_100_BIN2, NCHAR(0xD83D), N'') AS varbinary(8))", b"a\0\x00\xde"),
        ("REPLACE(N'a' + NCHAR(0) + N'b', NCHAR(0), N'-')", "a-b"),
        ("CAST(STUFF(N'😀', 2, 1, N'x') AS varbinary(8))", b"\x3d\xd8x\0"),
        ("CAST(REVERSE(N'😀') AS varbinary(8))", b"\x00\xde\x3d\xd8"),
        ("CASE WHEN N'a' + NCHAR(0) + N'b' LIKE N'a_b' THEN 1 END", 1),
        ("CASE WHEN N'a' + NCHAR(0xD800) + N'b' LIKE N'%' + NCHAR(0xD800) + N'%' THEN 1 END", 1),
    ],
)
def test_functions_count_code_units(database: CdcDatabase, expression: str, value: object) -> None:
    assert database.scalar(expression) == value


def test_texts_of_a_change_table_have_the_units_of_their_columns(database: CdcDatabase) -> None:
    database.run("CREATE TABLE dbo.t (id int NOT NULL PRIMARY KEY, v nvarchar(3), c nchar(4), d char(4))")
    database.enable("t")
    database.run("INSERT dbo.t VALUES (1, N'🦀a', N'🦀', N'🦀')", "UPDATE dbo.t SET c = N'🦀🦀' WHERE id = 1")
    database.run("DELETE dbo.t WHERE id = 1")
    database.scan()
    rows = [tuple(row[name] for name in ("__$operation", "v", "c", "d")) for row in database.change_table("dbo_t")]
    before, after = ("🦀a", "🦀  ", "??  "), ("🦀a", "🦀🦀", "??  ")
    assert rows == [(2, *before), (3, *before), (4, *after), (1, *after)]
