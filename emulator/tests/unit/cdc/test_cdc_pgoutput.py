"""The plugin's messages, built here byte by byte as its documentation describes them."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sqlserver_emulator.cdc.log import pgoutput
from sqlserver_emulator.cdc.log.pgoutput import NULL_FIELD, RelationColumn

values = st.lists(st.none() | st.binary(max_size=20), max_size=6)


def _tuple(row: list[bytes | None]) -> bytes:
    parts = [struct.pack(">h", len(row))]
    parts += [b"n" if value is None else b"b" + struct.pack(">i", len(value)) + value for value in row]
    return b"".join(parts)


def _fields(row: list[bytes | None]) -> list[bytes]:
    return [NULL_FIELD if value is None else struct.pack(">i", len(value)) + value for value in row]


@given(values)
def test_inserted_row_is_split_into_fields_as_copy_wants_them(row: list[bytes | None]) -> None:
    message = b"??" + b"I" + struct.pack(">I", 4711) + b"N" + _tuple(row)
    assert pgoutput.row_object_id(message, 2) == 4711
    assert pgoutput.read_row(message, 2) == _fields(row)


@given(values)
def test_deleted_row_is_the_old_one(row: list[bytes | None]) -> None:
    message = b"D" + struct.pack(">I", 1) + b"O" + _tuple(row)
    assert pgoutput.read_row(message, 0) == _fields(row)


def test_updated_row_takes_an_unchanged_large_value_from_the_old_one() -> None:
    new = struct.pack(">h", 2) + b"b" + struct.pack(">i", 1) + b"2" + b"u"
    message = b"U" + struct.pack(">I", 1) + b"O" + _tuple([b"1", b"large"]) + b"N" + new
    old_fields, new_fields = pgoutput.read_row_pair(message, 0)
    assert old_fields == _fields([b"1", b"large"])
    assert new_fields == _fields([b"2", b"large"])


def test_update_without_the_old_row_is_an_error() -> None:
    message = b"U" + struct.pack(">I", 9) + b"N" + _tuple([b"1"])
    with pytest.raises(ValueError, match="table 9"):
        pgoutput.read_row_pair(message, 0)


def test_transaction_begins_with_commit_place_and_time() -> None:
    message = b"B" + struct.pack(">QqI", 0x16B374D848, 1_000_000, 77)
    begin = pgoutput.read_begin(message, 0)
    assert (begin.commit_position, begin.transaction_id) == (0x16B374D848, 77)
    assert begin.commit_time == 946_684_801_000_000


def test_transaction_ends_with_the_place_after_it() -> None:
    commit = pgoutput.read_commit(b"C\0" + struct.pack(">QQq", 100, 148, 0), 0)
    assert (commit.commit_position, commit.end_position) == (100, 148)


def test_relation_has_its_columns_with_types() -> None:
    message = (
        b"R"
        + struct.pack(">I", 5)
        + b"Shop.dbo\0Bestellung \xc3\xa4\0f"
        + struct.pack(">h", 2)
        + b"\1id\0"
        + struct.pack(">Ii", 23, -1)
        + b"\1name\0"
        + struct.pack(">Ii", 1043, 24)
    )
    relation = pgoutput.read_relation(message, 0)
    assert (relation.object_id, relation.schema, relation.name) == (5, "Shop.dbo", "Bestellung ä")
    assert relation.columns == (RelationColumn("id", 23, -1), RelationColumn("name", 1043, 24))


def test_logical_message_has_prefix_and_content() -> None:
    message = b"M\1" + struct.pack(">Q", 16) + b"ddl\0" + struct.pack(">i", 2) + b"{}"
    read = pgoutput.read_message(message, 0)
    assert (read.transactional, read.position, read.prefix, read.content) == (True, 16, "ddl", b"{}")
