"""Bulk load messages: rows of every type, cut into packets anywhere, come out as the columns that went in."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from datetime import UTC
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import canned
from sqlserver_emulator import code_units, precise
from sqlserver_emulator.errors import NotSupportedByEmulatorError, SqlServerError
from sqlserver_emulator.tds.bulk import BulkReader
from sqlserver_emulator.tds.reading import ProtocolError
from sqlserver_emulator.tds.rows import RowEncoder
from sqlserver_emulator.tds.type_info import POINTER_NAMES, encode_type_info
from sqlserver_emulator.types import TsqlType

DONE = b"\xfd" + b"\x00" * 12
TYPES = {name: type_ for name, (type_, _) in canned.ALL_TYPES.items() if type_.name not in ("rowversion", "sysname")}
INT, TEXT = TsqlType("int"), TsqlType("nvarchar", 20)


def metadata(types: Sequence[TsqlType]) -> bytes:
    message = struct.pack("<BH", 0x81, len(types))
    for type_ in types:
        table = struct.pack("<H", 1) + "t".encode("utf-16-le") if type_.name in POINTER_NAMES else b""
        message += b"\x00" * 6 + encode_type_info(type_) + table + b"\x01" + "c".encode("utf-16-le")
    return message


def read(message: bytes, packet_bytes: int = 100_000) -> Iterator[tuple[Any, ...]]:
    reader = BulkReader(message[i : i + packet_bytes] for i in range(0, len(message), packet_bytes))
    for batch in reader.batches():
        columns = [[_as_sent(value) for value in column.to_pylist()] for column in batch.columns]
        yield from zip(*columns, strict=True)


def _as_sent(value: Any) -> Any:
    if isinstance(value, dict):
        return precise.datetime_of(value["utc"], UTC)
    return value


def as_read(type_: TsqlType, value: Any) -> Any:
    return value.bytes if isinstance(value, UUID) else value


@pytest.mark.parametrize("packet_bytes", [1, 7, 512, 1_000_000])
def test_every_type_comes_out_as_it_went_in_wherever_packets_end(packet_bytes: int) -> None:
    full = tuple(canned.ALL_TYPES[name][1] for name in TYPES)
    rows = [full, (None,) * len(full), full]
    message = metadata(list(TYPES.values())) + RowEncoder(list(TYPES.values())).encode(rows)
    expected = tuple(as_read(type_, value) for type_, value in zip(TYPES.values(), full, strict=True))
    assert list(read(message + DONE, packet_bytes)) == [expected, (None,) * len(full), expected]
    assert len(list(read(message, packet_bytes))) == 3  # FreeTDS sends no DONE


@settings(max_examples=50)
@given(st.lists(st.tuples(st.none() | st.integers(-(2**31), 2**31 - 1), st.none() | st.text(max_size=10)), max_size=20))
def test_numbers_and_texts_keep_their_rows(rows: list[tuple[int | None, str | None]]) -> None:
    held = [(number, text and code_units.escaped(text)) for number, text in rows]
    assert list(read(metadata([INT, TEXT]) + RowEncoder([INT, TEXT]).encode(held) + DONE, 64)) == held


def test_rows_that_name_their_nulls_by_bits_are_read() -> None:
    row = b"\xd2\x02" + b"\x04" + struct.pack("<i", 5)
    assert list(read(metadata([INT, TEXT]) + row + DONE)) == [(5, None)]


def test_chunks_of_a_long_value_are_put_together() -> None:
    chunks = b"\xfe" + b"\xff" * 7 + b"".join(struct.pack("<I", 2) + piece for piece in (b"a\0", b"b\0")) + b"\0" * 4
    assert list(read(metadata([TsqlType("nvarchar", -1)]) + b"\xd1" + chunks + DONE, 3)) == [("ab",)]


@pytest.mark.parametrize(
    ("type_", "value", "number"),
    [
        (TsqlType("int"), b"\x03\x01\x02\x03", 4815),
        (TsqlType("date"), b"\x03\xff\xff\xff", 4815),
        (TsqlType("float", precision=53), b"\x08" + struct.pack("<d", float("nan")), 4815),
        (TsqlType("datetime"), b"\x08" + struct.pack("<iI", 0, 25_920_000), 4815),
        (TEXT, b"\x03\x00a\x00b", 4895),
    ],
)
def test_a_value_that_its_type_cannot_have_is_refused(type_: TsqlType, value: bytes, number: int) -> None:
    with pytest.raises(SqlServerError) as caught:
        list(read(metadata([type_]) + b"\xd1" + value + DONE))
    assert caught.value.number == number


@pytest.mark.parametrize(
    "message",
    [b"", b"\x81", b"\xd1", metadata([INT])[:-1], metadata([INT]) + b"\xd1\x04\x00", metadata([INT]) + b"\x00"],
)
def test_a_message_that_is_cut_off_or_nonsense_breaks_the_protocol(message: bytes) -> None:
    with pytest.raises(ProtocolError):
        list(read(message))


def test_table_of_keys_is_read_after_the_number_of_columns() -> None:
    message = metadata([INT])
    with_keys = message[:3] + b"\x00\x00" + message[3:] + RowEncoder([INT]).encode([(7,)]) + DONE
    (batch,) = BulkReader(iter([with_keys]), column_encryption=True).batches()
    assert batch.column(0).to_pylist() == [7]


def test_encrypted_columns_are_refused_by_name() -> None:
    message = metadata([INT])
    with pytest.raises(NotSupportedByEmulatorError, match="encrypted columns"):
        BulkReader(iter([message[:3] + b"\x01\x00" + message[3:]]), column_encryption=True)
