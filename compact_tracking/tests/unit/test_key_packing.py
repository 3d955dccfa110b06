"""The packed form of keys: known bytes, every type there and back, and what is refused."""

import sqlite3
import struct
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compact_files import open_file
from compact_tracking import ChangeTracking, TrackingArgumentError
from compact_tracking.key_packing import KeyType, pack_key, unpack_key

GUID = UUID("00112233-4455-6677-8899-aabbccddeeff")


def key(*declared: str, is_guid: bool = False) -> KeyType:
    return KeyType(tuple((f"c{number}", name) for number, name in enumerate(declared)), is_guid)


@pytest.mark.parametrize(
    ("types", "values", "packed"),
    [
        (["int"], [1], "01000000 04000000 01000000"),
        (["INTEGER"], [-2], "01000000 04000000 feffffff"),
        (["int", "nvarchar(20)"], [7, "aé"], "02000000 04000000 07000000 04000000 6100e900"),
        (["bit"], [True], "01000000 02000000 0100"),
        (["tinyint"], [255], "01000000 01000000 ff"),
        (["smallint"], [-1], "01000000 02000000 ffff"),
        (["bigint"], [1], "01000000 08000000 0100000000000000"),
        (["int"], [2**31], "01000000 08000000 0000008000000000"),
        (["uniqueidentifier"], [GUID], "01000000 10000000 33221100 5544 7766 8899aabbccddeeff"),
        (["varbinary(8)"], [b"\x00\xff"], "01000000 02000000 00ff"),
        (["real"], [1.5], "01000000 04000000 0000c03f"),
        (["float"], [1.5], "01000000 08000000 000000000000f83f"),
        (["datetime"], ["1900-01-02 00:00:01"], "01000000 08000000 2c010000 01000000"),
        (["numeric(9, 2)"], [-1.25], "01000000 13000000 09 02 00 7d0000000000000000000000 00000000"),
        (["money"], [Decimal("1.5")], "01000000 08000000 983a000000000000"),
        # A value that its declared type cannot hold.
        (["int"], ["x"], "01000080 02000000 7478"),
        ([""], [5], "01000080 09000000 690500000000000000"),
    ],
)
def test_a_key_has_these_bytes(types: list[str], values: list[Any], packed: str) -> None:
    assert pack_key(key(*types), values).hex() == packed.replace(" ", "")
    assert unpack_key(key(*types), bytes.fromhex(packed)) == tuple(
        datetime(1900, 1, 2, 0, 0, 1) if types == ["datetime"] else value for value in values
    )


def test_a_rowguid_key_is_the_guid_alone() -> None:
    assert pack_key(key("uniqueidentifier", is_guid=True), [str(GUID)]) == GUID.bytes_le
    for odd in ("sevenby", "no guid", 5):
        packed = pack_key(key("uniqueidentifier", is_guid=True), [odd])
        assert len(packed) != 16
        assert unpack_key(key("uniqueidentifier", is_guid=True), packed) == (odd,)


STORED = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.text(),
    st.binary(),
    st.sampled_from([0, 1, 0.1, 12.34]),
)
NAMES = [
    "tinyint",
    "smallint",
    "int",
    "bigint",
    "bit",
    "nchar(5)",
    "nvarchar(5)",
    "varbinary(5)",
    "real",
    "float",
    "datetime",
    "numeric(12, 3)",
    "money",
    "uniqueidentifier",
    "",
    "DATE",
]


def is_same(stored: Any, unpacked: Any) -> bool:
    """Return whether an unpacked value is the stored one, in the type that the column declares."""
    match unpacked:
        case Decimal():
            return Decimal(repr(stored)) == unpacked
        case UUID():
            return UUID(bytes_le=stored) == unpacked if isinstance(stored, bytes) else UUID(stored) == unpacked
        case datetime():
            return datetime.fromisoformat(stored) == unpacked
        case _:
            return bool(stored == unpacked)


@given(st.lists(st.tuples(st.sampled_from(NAMES), STORED), min_size=1, max_size=4))
def test_every_stored_value_comes_back(columns: list[tuple[str, Any]]) -> None:
    types = key(*(name for name, _ in columns))
    unpacked = unpack_key(types, pack_key(types, [value for _, value in columns]))
    assert all(is_same(value, back) for (_, value), back in zip(columns, unpacked, strict=True))


@given(st.binary(max_size=40), st.sampled_from(NAMES), st.booleans())
def test_other_bytes_are_refused_or_are_a_key(packed: bytes, name: str, is_guid: bool) -> None:
    types = key(name, is_guid=is_guid)
    try:
        values = unpack_key(types, packed)
    except TrackingArgumentError:
        return
    assert len(values) == 1


@given(st.datetimes(datetime(1753, 1, 1), datetime(9999, 12, 31)))
def test_every_tick_of_a_datetime_comes_back(moment: datetime) -> None:
    day, ticks = (moment - datetime(1900, 1, 1)).days, (moment.microsecond * 300) // 10**6
    packed = struct.pack("<IiIi", 1, 8, ticks, day)
    (value,) = unpack_key(key("datetime"), packed)
    assert pack_key(key("datetime"), [value]) == packed


@pytest.fixture
def tracking(tmp_path: Path) -> ChangeTracking:
    file = open_file(tmp_path / "device.db")
    file.execute("CREATE TABLE keyless (a)")
    file.execute("CREATE TABLE pair (a int, b nvarchar(9), PRIMARY KEY (b, a))")
    return ChangeTracking(file)


def test_keys_are_packed_in_key_order_also_before_the_table_is_tracked(tracking: ChangeTracking) -> None:
    packed = tracking.pack_tombstone_key("pair", ["x", 7])
    assert packed.hex() == "02000000020000007800" + "0400000007000000"
    assert tracking.unpack_tombstone_key("PAIR", packed) == ("x", 7)
    tracking.enable_tracking("pair")
    assert tracking.pack_tombstone_key("pair", ("x", 7)) == packed


@pytest.mark.parametrize(
    ("table", "values", "message"),
    [
        ("none", [1], "no table 'none'"),
        ("keyless", [1], "no primary key"),
        ("pair", [1], "1 values were given for a key of 2 columns"),
        ("pair", ["x", None], "NULL"),
        ("pair", ["x", object()], "a value of the type object"),
    ],
)
def test_what_is_no_key_is_not_packed(tracking: ChangeTracking, table: str, values: list[Any], message: str) -> None:
    with pytest.raises(TrackingArgumentError, match=message):
        tracking.pack_tombstone_key(table, values)


@pytest.mark.parametrize(
    ("packed", "message"),
    [
        ("02000000", "more than 4 bytes"),
        ("01000000 04000000 07000000", "has not 2 columns"),
        ("02000000 02000000 7800", "ends inside a value"),
        ("02000000 02000000 7800 08000000 07000000", "ends inside a value"),
        ("02000000 02000000 7800 04000000 07000000 00", "bytes after its last value"),
        ("02000000 02000000 7800 03000000 070000", "does not fit the type"),
        ("02000080 01000000 78 00000000", "does not fit the type"),
    ],
)
def test_what_is_no_packed_key_is_not_unpacked(tracking: ChangeTracking, packed: str, message: str) -> None:
    with pytest.raises(TrackingArgumentError, match=message):
        tracking.unpack_tombstone_key("pair", bytes.fromhex(packed))


def test_a_key_with_the_character_zero_is_packed_whole(tracking: ChangeTracking, tmp_path: Path) -> None:
    tracking.enable_tracking("pair")
    file: sqlite3.Connection = open_file(tmp_path / "device.db")
    file.execute("INSERT INTO pair (a, b) VALUES (1, ?)", ("x\0y",))
    file.execute("DELETE FROM pair")
    tracking.take_anchor()
    ((packed,),) = file.execute("SELECT __sysRK FROM __sysOCSDeletedRows").fetchall()
    assert tracking.unpack_tombstone_key("pair", packed) == ("x\0y", 1)
