"""Bulk loads that end in the middle, byte by byte: nothing of them stays, and the session goes on where it can."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterator

import pytest

from emulator_process import Emulator
from raw_client import ATTENTION, ATTENTION_DONE, BATCH, BULK, HEADERS, RawClient

ANNOUNCE = "INSERT BULK Test.dbo.BrokenOff ([Id] int)"
METADATA = b"\x81\x01\x00" + b"\x00" * 6 + b"\x26\x04\x02I\x00d\x00"
ROWS = b"".join(b"\xd1\x04" + struct.pack("<i", i) for i in range(500))
DONE = b"\xfd" + b"\x00" * 12
IGNORE_LAST = 0x03


@pytest.fixture
def raw(emulator: Emulator) -> Iterator[RawClient]:
    with contextlib.closing(emulator.connect_pymssql("Test", autocommit=True)) as admin:
        admin.cursor().execute("DROP TABLE IF EXISTS dbo.BrokenOff CREATE TABLE dbo.BrokenOff (Id int PRIMARY KEY)")
    with RawClient(emulator.port) as client:
        client.log_in(emulator.password)
        yield client


def count(emulator: Emulator) -> int:
    with contextlib.closing(emulator.connect_pymssql("Test")) as connection:
        cursor = connection.cursor()
        cursor.execute("SELECT COUNT(*) FROM dbo.BrokenOff")
        [(found,)] = cursor.fetchall()
    assert isinstance(found, int)
    return found


def test_a_whole_load_is_counted_and_stays(raw: RawClient, emulator: Emulator) -> None:
    raw.batch(ANNOUNCE)
    raw.send(BULK, METADATA + ROWS, status=0)
    raw.send(BULK, DONE)
    assert struct.pack("<HQ", 0xC3, 500) in raw.read()
    assert count(emulator) == 500


@pytest.mark.parametrize("rows", [ROWS, ROWS[:-2], b""])
def test_a_client_that_leaves_in_the_middle_leaves_no_row(raw: RawClient, emulator: Emulator, rows: bytes) -> None:
    raw.batch(ANNOUNCE)
    raw.send(BULK, METADATA + rows, status=0)
    raw.socket.close()
    assert count(emulator) == 0


def test_an_attention_in_the_middle_undoes_the_load_and_the_session_goes_on(raw: RawClient, emulator: Emulator) -> None:
    raw.batch(ANNOUNCE)
    raw.send(BULK, METADATA + ROWS, status=0)
    raw.send(ATTENTION, b"")
    assert raw.read().endswith(ATTENTION_DONE)
    assert count(emulator) == 0
    assert raw.batch("SELECT 1 AS one")


def test_a_load_that_the_client_marks_to_be_ignored_is_undone(raw: RawClient, emulator: Emulator) -> None:
    raw.batch(ANNOUNCE)
    raw.send(BULK, METADATA + ROWS, status=0)
    raw.send(BULK, DONE, status=IGNORE_LAST)
    assert raw.read()
    assert count(emulator) == 0
    assert raw.batch("SELECT 1 AS one")


def test_nonsense_among_the_rows_ends_the_connection_and_undoes_the_load(raw: RawClient, emulator: Emulator) -> None:
    raw.batch(ANNOUNCE)
    raw.send(BULK, METADATA + ROWS + b"\x00")
    assert raw.is_closed_by_server()
    assert count(emulator) == 0


@pytest.mark.parametrize(("row", "number"), [(ROWS[:6], 2627), (b"\xd1\x03\x01\x02\x03", 4815)])
def test_a_bad_row_at_the_end_undoes_the_load_within_a_transaction(
    raw: RawClient, emulator: Emulator, row: bytes, number: int
) -> None:
    raw.batch("BEGIN TRAN")
    raw.batch(ANNOUNCE)
    raw.send(BULK, METADATA + ROWS + row + DONE)
    assert b"\xaa" in (answer := raw.read())
    assert struct.pack("<i", number) in answer
    assert b"o\x00n\x00e" in raw.batch("SELECT COUNT(*) AS one FROM Test.dbo.BrokenOff HAVING COUNT(*) = 0")
    raw.batch("INSERT INTO Test.dbo.BrokenOff VALUES (7) COMMIT TRAN")
    assert count(emulator) == 1


def test_rows_that_nobody_announced_are_refused(raw: RawClient) -> None:
    raw.send(BULK, METADATA + ROWS + DONE)
    assert struct.pack("<i", 4002) in raw.read()
    raw.batch(ANNOUNCE)
    raw.send(BATCH, HEADERS + "SELECT 1 AS one".encode("utf-16-le"))
    assert raw.read()
