"""Which rows a change becomes, read back from the bytes that COPY BINARY would get."""

from __future__ import annotations

import struct
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from sqlserver_emulator.cdc.log.pgoutput import NULL_FIELD
from sqlserver_emulator.cdc.rows import CapturedColumn, InstanceRows, changed_places, mask_bytes, row_start

COMMIT, SEQUENCE = b"C" * 10, b"S" * 10


class Written(NamedTuple):
    operation: int
    mask: str
    values: list[bytes | None]
    command_id: int


def _column(
    ordinal: int, name: str, type_name: str = "int", *, is_max: bool = False, source: bool = True
) -> CapturedColumn:
    return CapturedColumn(name, ordinal, ordinal, type_name, is_max, name if source else None)


def _field(value: bytes | None) -> bytes:
    return NULL_FIELD if value is None else struct.pack(">i", len(value)) + value


def _fields(*values: bytes | None) -> list[bytes]:
    return [_field(value) for value in values]


def _read(data: bytes) -> list[Written]:
    rows, at = [], 0
    while at < len(data):
        (count,) = struct.unpack_from(">h", data, at)
        at += 2
        values: list[bytes | None] = []
        for _ in range(count):
            (length,) = struct.unpack_from(">i", data, at)
            at += 4
            values.append(None if length < 0 else data[at : at + length])
            at += max(length, 0)
        start, end, sequence, operation, mask, *captured, command_id = values
        assert (start, end, sequence) == (COMMIT, None, SEQUENCE)
        assert operation is not None and mask is not None and command_id is not None
        rows.append(Written(int.from_bytes(operation), mask.hex(), captured, int.from_bytes(command_id)))
    return rows


ORDERS = [_column(1, "id"), _column(2, "a"), _column(3, "b")]


def _start(columns: list[CapturedColumn]) -> bytes:
    return row_start(len(columns), COMMIT)


def test_insert_is_one_row_with_a_full_mask() -> None:
    rows = InstanceRows(ORDERS, ["id", "a", "b"])
    written = _read(rows.insert(_start(ORDERS), SEQUENCE, 7, _fields(b"1", None, b"z")))
    assert written == [Written(2, "07", [b"1", None, b"z"], 7)]


def test_columns_follow_the_instance_not_the_table() -> None:
    rows = InstanceRows([_column(1, "b"), _column(2, "id")], ["id", "a", "b"])
    written = _read(rows.delete(row_start(2, COMMIT), SEQUENCE, 1, _fields(b"1", b"2", b"3")))
    assert written == [Written(1, "03", [b"3", b"1"], 1)]


def test_update_is_a_pair_with_the_changed_bits() -> None:
    rows = InstanceRows(ORDERS, ["id", "a", "b"])
    old, new = _fields(b"1", b"2", b"3"), _fields(b"1", b"2", b"4")
    written = _read(rows.update(_start(ORDERS), SEQUENCE, 3, (old, new), changed=changed_places(old, new)))
    assert written == [Written(3, "04", [b"1", b"2", b"3"], 3), Written(4, "04", [b"1", b"2", b"4"], 3)]


def test_update_of_an_uncaptured_column_is_nothing() -> None:
    rows = InstanceRows([_column(1, "id")], ["id", "a"])
    assert (
        rows.update(row_start(1, COMMIT), SEQUENCE, 1, (_fields(b"1", b"2"), _fields(b"1", b"3")), changed=(1,)) == b""
    )


def test_single_column_instance_is_written() -> None:
    rows = InstanceRows([_column(1, "id")], ["id"])
    assert _read(rows.insert(row_start(1, COMMIT), SEQUENCE, 1, _fields(b"1"))) == [Written(2, "01", [b"1"], 1)]


def test_computed_column_is_null_with_its_bit_on_insert_only() -> None:
    columns = [_column(1, "id"), _column(2, "twice", source=False), _column(3, "a")]
    rows = InstanceRows(columns, ["id", "a"])
    old, new = _fields(b"1", b"2"), _fields(b"1", b"3")
    assert _read(rows.insert(_start(columns), SEQUENCE, 1, old)) == [Written(2, "07", [b"1", None, b"2"], 1)]
    updated = _read(rows.update(_start(columns), SEQUENCE, 1, (old, new), changed=(1,)))
    assert [(row.operation, row.mask, row.values) for row in updated] == [
        (3, "04", [b"1", None, b"2"]),
        (4, "04", [b"1", None, b"3"]),
    ]


def test_legacy_lob_is_null_in_old_images_only() -> None:
    columns = [_column(1, "id"), _column(2, "t", "ntext")]
    rows = InstanceRows(columns, ["id", "t"])
    old, new = _fields(b"1", b"x"), _fields(b"1", b"y")
    assert _read(rows.delete(_start(columns), SEQUENCE, 1, old))[0].values == [b"1", None]
    assert _read(rows.insert(_start(columns), SEQUENCE, 1, old))[0].values == [b"1", b"x"]
    updated = _read(rows.update(_start(columns), SEQUENCE, 1, (old, new), changed=(1,)))
    assert [row.values for row in updated] == [[b"1", None], [b"1", b"y"]]


def test_max_type_is_null_in_the_before_image_unless_changed() -> None:
    columns = [_column(1, "id"), _column(2, "t", "nvarchar", is_max=True), _column(3, "n")]
    rows = InstanceRows(columns, ["id", "t", "n"])
    old = _fields(b"1", b"x", b"1")
    kept = _read(rows.update(_start(columns), SEQUENCE, 1, (old, _fields(b"1", b"x", b"2")), changed=(2,)))
    changed = _read(rows.update(_start(columns), SEQUENCE, 1, (old, _fields(b"1", b"y", b"1")), changed=(1,)))
    assert [row.values[1] for row in kept] == [None, b"x"]
    assert [row.values[1] for row in changed] == [b"x", b"y"]
    assert _read(rows.delete(_start(columns), SEQUENCE, 1, old))[0].values[1] == b"x"


def test_masks_are_those_of_real_servers() -> None:
    """See docs/reference/sqlserver_cdc.md, "Update mask"."""
    assert mask_bytes(range(1, 14), 13).hex() == "1fff"
    assert mask_bytes([4], 13).hex() == "0008"
    assert mask_bytes(range(1, 10), 9).hex() == "01ff"
    assert mask_bytes([3], 3).hex() == "04"
    assert len(mask_bytes([1, 2], 1000)) == 125


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), max_size=8))
def test_changed_places_are_where_rows_differ(pairs: list[tuple[int, int]]) -> None:
    old, new = [bytes([a]) for a, _ in pairs], [bytes([b]) for _, b in pairs]
    assert changed_places(old, new) == tuple(i for i, (a, b) in enumerate(pairs) if a != b)
