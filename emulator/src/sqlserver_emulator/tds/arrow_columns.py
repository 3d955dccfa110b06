"""Arrow columns to parts of rows, one function per family of types; same bytes as ``values`` makes from Python values.

Every function takes an Arrow array without chunks, and ``present``: None when no value is NULL, else a mask.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from sqlserver_emulator.precise import DAY_TICKS, UNITS
from sqlserver_emulator.system_types import BY_NAME
from sqlserver_emulator.system_types.sizes import decimal_bytes, time_bytes
from sqlserver_emulator.system_types.wire import Packing
from sqlserver_emulator.tds.arrow_parts import FixedPart, Mask, Numbers, Part, variable_part
from sqlserver_emulator.tds.arrow_text import content_parts
from sqlserver_emulator.tds.moments import DAY_MICROSECONDS, DAY_TICKS_300, EPOCH_1900, EPOCH_1970
from sqlserver_emulator.tds.values import column_encoder
from sqlserver_emulator.types import TsqlType

ColumnParts: TypeAlias = Callable[[Any, Mask | None], list[Part]]

_ARROW_OF_STORAGE = {
    "smallint": pa.int16(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "real": pa.float32(),
    "double precision": pa.float64(),
}
"""Numbers come from PostgreSQL, in the type that they are stored in: a tinyint as a smallint."""
_DAY_0001 = EPOCH_1970 - 1
_DAY_1900 = EPOCH_1970 - EPOCH_1900


def column_parts(type_: TsqlType) -> ColumnParts:
    """The function for columns of a type; types that are rare in large results go through Python values."""
    make = _MAKERS.get(BY_NAME[type_.name].wire.packing)
    if make is not None:
        return make(type_)
    encode = column_encoder(type_)
    return lambda array, _present: [variable_part(encode(array.to_pylist()))]


def _sized(fields: list[tuple[str, Numbers | int]], present: Mask | None) -> list[Part]:
    """A length byte and the value; NULL is the length 0 alone."""
    size = sum(np.dtype(type_).itemsize for type_, _values in fields)
    length: Numbers | int = size if present is None else np.where(present, size, 0).astype("u1")
    return [FixedPart([("u1", length), *fields], present, 1)]


def _raw(array: Any, arrow_type: Any, numpy_type: str) -> Numbers:
    """The value buffer; what lies under a NULL is arbitrary."""
    if array.type != arrow_type:
        array = array.cast(arrow_type)
    values = np.frombuffer(array.buffers()[1], numpy_type)
    return values[array.offset : array.offset + len(array)]


def _number_parts(type_: TsqlType) -> ColumnParts:
    record = BY_NAME[type_.name]
    numpy_type, arrow_type = f"<{record.wire.number_format}", _ARROW_OF_STORAGE[record.storage]
    stored_type = f"<{np.dtype(arrow_type.to_pandas_dtype()).str[1:]}"

    def parts(array: Any, present: Mask | None) -> list[Part]:
        return _sized([(numpy_type, _raw(array, arrow_type, stored_type))], present)

    return parts


def _bit_parts(array: Any, present: Mask | None) -> list[Part]:
    return _sized([("u1", _raw(array.cast(pa.bool_()).cast(pa.uint8()), pa.uint8(), "u1"))], present)


def _decimal_words(array: Any, precision: int, scale: int) -> tuple[Numbers, Numbers]:
    """The 128-bit value as its low and high word."""
    arrow_type = pa.decimal128(precision, scale)
    fits = pa.types.is_decimal128(array.type) and array.type.scale == scale and array.type.precision <= precision
    words = np.frombuffer((array if fits else (array := array.cast(arrow_type))).buffers()[1], "<u8").reshape(-1, 2)
    words = words[array.offset : array.offset + len(array)]
    return words[:, 0], words[:, 1]


def _decimal_parts(type_: TsqlType) -> ColumnParts:
    size = decimal_bytes(type_.precision)

    def parts(array: Any, present: Mask | None) -> list[Part]:
        low, high = _decimal_words(array, type_.precision, type_.scale)
        negative = high >> 63 != 0
        if size > 9:
            high = np.where(negative, ~high + (low == 0), high)
        low = np.where(negative, ~low + np.uint64(1), low)
        words: dict[int, list[tuple[str, Numbers | int]]] = {
            5: [("<u4", low)],
            9: [("<u8", low)],
            13: [("<u8", low), ("<u4", high)],
            17: [("<u8", low), ("<u8", high)],
        }
        return _sized([("u1", ~negative), *words[size]], present)

    return parts


def _money_parts(type_: TsqlType) -> ColumnParts:
    record = BY_NAME[type_.name]

    def parts(array: Any, present: Mask | None) -> list[Part]:
        low, _high = _decimal_words(array, record.facets.precision, record.facets.scale)
        if record.wire.size == 4:
            return _sized([("<u4", low)], present)
        return _sized([("<u4", low >> np.uint64(32)), ("<u4", low)], present)

    return parts


def _bytes_fields(values: Numbers, size: int) -> list[tuple[str, Numbers | int]]:
    """The low ``size`` bytes of whole numbers, little-endian, as fields that numpy has."""
    fields: list[tuple[str, Numbers | int]] = []
    shift = 0
    for width in (8, 4, 2, 1):
        if size & width:
            fields.append((f"<u{width}", values >> shift if shift else values))
            shift += 8 * width
    return fields


def _ticks(array: Any, microseconds: Any) -> Numbers:
    """The ticks of 100 ns that the array has, or those of its ``microseconds``."""
    if array.type == pa.int64():
        return _raw(array, pa.int64(), "<i8")
    return _raw(array, microseconds, "<i8") * 10


def _moment_parts(type_: TsqlType) -> ColumnParts:
    unit, size = UNITS[type_.scale], time_bytes(type_.scale)

    def date_parts(array: Any, present: Mask | None) -> list[Part]:
        days = _raw(array, pa.date32(), "<i4") + _DAY_0001
        return _sized(_bytes_fields(days, 3), present)

    def time_parts(array: Any, present: Mask | None) -> list[Part]:
        return _sized(_bytes_fields(_ticks(array, pa.time64("us")) // unit, size), present)

    def datetime2_parts(array: Any, present: Mask | None) -> list[Part]:
        # Ticks count from year 1, PostgreSQL's microseconds from 1970.
        first = 0 if array.type == pa.int64() else _DAY_0001
        days, ticks = np.divmod(_ticks(array, pa.timestamp("us")), DAY_TICKS)
        number = (days + first << 8 * size) + ticks // unit
        return _sized(_bytes_fields(number, size + 3), present)

    def datetimeoffset_parts(array: Any, present: Mask | None) -> list[Part]:
        days, ticks = np.divmod(_raw(array.field("utc"), pa.int64(), "<i8"), DAY_TICKS)
        number = (days << 8 * size) + ticks // unit
        minutes = _raw(array.field("minutes"), pa.int16(), "<i2")
        return _sized([*_bytes_fields(number, size + 3), ("<i2", minutes)], present)

    def datetime_parts(array: Any, present: Mask | None) -> list[Part]:
        days, microseconds = np.divmod(_raw(array, pa.timestamp("us"), "<i8"), DAY_MICROSECONDS)
        ticks = (microseconds * 3 + 5_000) // 10_000
        late = ticks == DAY_TICKS_300
        return _sized([("<i4", days + _DAY_1900 + late), ("<u4", np.where(late, 0, ticks))], present)

    def smalldatetime_parts(array: Any, present: Mask | None) -> list[Part]:
        days, microseconds = np.divmod(_raw(array, pa.timestamp("us"), "<i8"), DAY_MICROSECONDS)
        minutes = (microseconds // 1_000_000 + 30) // 60
        late = minutes == 1440
        return _sized([("<u2", days + _DAY_1900 + late), ("<u2", np.where(late, 0, minutes))], present)

    return {
        Packing.DATE: date_parts,
        Packing.TIME: time_parts,
        Packing.DATE_TIME: datetime2_parts,
        Packing.DATE_TIME_OFFSET: datetimeoffset_parts,
        Packing.TICKS: datetime_parts,
        Packing.MINUTES: smalldatetime_parts,
    }[BY_NAME[type_.name].wire.packing]


_UUID_FIELDS = np.dtype([("a", ">u4"), ("b", ">u2"), ("c", ">u2"), ("d", "<u8")])


def _uuid_parts(array: Any, present: Mask | None) -> list[Part]:
    if pa.types.is_fixed_size_binary(array.type):
        data = np.frombuffer(array.buffers()[1], "V16")[array.offset : array.offset + len(array)].view(_UUID_FIELDS)
    else:
        text = "".join(array.drop_null().to_pylist()).replace("-", "")
        known = np.frombuffer(bytes.fromhex(text), _UUID_FIELDS)
        data = known if present is None else np.zeros(len(array), _UUID_FIELDS)
        if present is not None:
            data[present] = known
    # The first three groups travel little-endian: assigning them to little-endian fields turns them round.
    return _sized([("<u4", data["a"]), ("<u2", data["b"]), ("<u2", data["c"]), ("<u8", data["d"])], present)


def _content_parts(type_: TsqlType) -> ColumnParts:
    return lambda array, present: content_parts(type_, array, present)


_MAKERS: dict[Packing, Callable[[TsqlType], ColumnParts]] = {
    Packing.BIT: lambda _type: _bit_parts,
    Packing.INTEGER: _number_parts,
    Packing.FLOAT: _number_parts,
    Packing.DECIMAL: _decimal_parts,
    Packing.MONEY: _money_parts,
    Packing.DATE: _moment_parts,
    Packing.TIME: _moment_parts,
    Packing.DATE_TIME: _moment_parts,
    Packing.DATE_TIME_OFFSET: _moment_parts,
    Packing.TICKS: _moment_parts,
    Packing.MINUTES: _moment_parts,
    Packing.GUID: lambda _type: _uuid_parts,
    **dict.fromkeys((Packing.UNICODE, Packing.CODE_PAGE, Packing.BYTES, Packing.XML), _content_parts),
}
