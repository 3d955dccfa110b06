"""Conversion of Python values to a declared type, as assignment to a T-SQL variable or parameter does it.

Rounding, truncation and errors are SQL Server's. Expressions are converted by PostgreSQL (``engine.translate``); this
is for values that are already here: RPC arguments, results of evaluated expressions, OUTPUT parameters.
"""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation, localcontext
from typing import Any
from uuid import UUID

from sqlserver_emulator import precise
from sqlserver_emulator.code_units import first_units, from_code_page, from_utf16, in_code_page, to_utf16, unit_count
from sqlserver_emulator.errors import SqlServerError
from sqlserver_emulator.system_types import BY_NAME, names_where
from sqlserver_emulator.system_types.wire import Packing
from sqlserver_emulator.types import TsqlType

_MONEY = names_where(lambda type: type.wire.packing is Packing.MONEY)
_SINCE_1900 = names_where(lambda type: type.counts_from_1900)
# sysname and xml are national too, but for bytes they are read as the code page's.
_NATIONAL = names_where(lambda type: type.wire.packing is Packing.UNICODE and not type.wire.announced_as)
_EPOCH = datetime.datetime(1900, 1, 1)
_OFFSET_TEXT = re.compile(r"\s*(Z|[+-]\d\d:\d\d)$")


def convert(value: object, to: TsqlType) -> object:
    """``value`` (as in ``events.Rows``) as a value of ``to``. Raises 220, 241, 245, 8114, 8115, 8169 and the like."""
    return None if value is None else _CONVERTERS[BY_NAME[to.name].wire.packing](value, to)


def _to_bit(value: object, to: TsqlType) -> object:
    if isinstance(value, str):
        word = value.strip().lower()
        # T-SQL knows the words true and false for bit only.
        if word in ("true", "false"):
            return word == "true"
        return _integer(value, TsqlType("bit")) != 0
    if isinstance(value, bytes):
        return any(value)
    return bool(_number(value, to))


def _to_integer(value: object, to: TsqlType) -> object:
    number = _integer(value, to)
    low, high = BY_NAME[to.name].integer_range
    if not low <= number <= high:
        raise _integer_overflow(value, to, number)
    return number


def _integer_overflow(value: object, to: TsqlType, number: int) -> SqlServerError:
    if to.name in ("tinyint", "smallint"):
        # SQL Server has a message of its own for the two small types, which quotes the value.
        return SqlServerError(220, f"Arithmetic overflow error for data type {to.name}, value = {number}.")
    if isinstance(value, str):
        return SqlServerError(248, f"The conversion of the nvarchar value '{value}' overflowed an {to.name} column.")
    return SqlServerError(8115, f"Arithmetic overflow error converting expression to data type {to.name}.", state=2)


def _integer(value: object, to: TsqlType) -> int:
    if isinstance(value, str):
        text = value.strip()
        if not text:
            # An empty string is 0 for integers, but no value for decimals.
            return 0
        if not re.fullmatch(r"[+-]?\d+", text):
            message = f"Conversion failed when converting the nvarchar value '{value}' to data type {to.name}."
            raise SqlServerError(245, message)
        return int(text)
    if isinstance(value, bytes):
        # The last eight bytes count; a shorter binary is not negative.
        return int.from_bytes(value[-8:], "big", signed=len(value) >= 8) if value else 0
    # int() cuts the fraction, as the server does; only decimals round.
    return int(_number(value, to))


def _number(value: object, to: TsqlType) -> int | float | Decimal:
    if isinstance(value, bool | int | float | Decimal):
        return value
    if isinstance(value, datetime.datetime):
        # Day 0 of datetime is 1900-01-01.
        return (value.replace(tzinfo=None) - _EPOCH) / datetime.timedelta(days=1)
    raise _clash(value, to)


def _to_decimal(value: object, to: TsqlType) -> object:
    number = _decimal(value, to)
    with localcontext() as context:
        # More than 38 digits, as the quantizing itself may need them before the overflow is checked.
        context.prec = 80
        rounded = number.quantize(Decimal(1).scaleb(-to.scale), rounding=ROUND_HALF_UP)
    if len(rounded.as_tuple().digits) - to.scale > to.precision - to.scale and rounded != 0:
        source = "nvarchar" if isinstance(value, str) else "numeric"
        raise SqlServerError(8115, f"Arithmetic overflow error converting {source} to data type numeric.", state=8)
    return rounded


def _decimal(value: object, to: TsqlType) -> Decimal:
    if isinstance(value, str):
        try:
            number = Decimal(value.strip().replace(",", "") if to.name in _MONEY else value.strip())
        except InvalidOperation:
            number = Decimal("NaN")
        if not number.is_finite():
            target = "numeric" if to.name in ("decimal", "numeric") else to.name
            raise SqlServerError(8114, f"Error converting data type nvarchar to {target}.", state=5)
        return number
    if isinstance(value, bytes):
        return Decimal(_integer(value, to))
    number_ = _number(value, to)
    return (
        # repr: the shortest digits that give the same float, not its binary expansion.
        number_ if isinstance(number_, Decimal) else Decimal(repr(number_) if isinstance(number_, float) else number_)
    )


def _to_money(value: object, to: TsqlType) -> object:
    text = value.strip().lstrip("$£€") if isinstance(value, str) else value
    rounded = _decimal(text, to).quantize(Decimal("0.0001"), rounding=ROUND_HALF_UP)
    # One more value is there below zero than above; the emulator refuses that one.
    if abs(rounded).scaleb(4) >= 2 ** (8 * BY_NAME[to.name].wire.size - 1):
        raise SqlServerError(8115, f"Arithmetic overflow error converting expression to data type {to.name}.", state=2)
    return rounded


_FLOAT_TEXT = re.compile(r"([+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?)?", re.IGNORECASE | re.ASCII)


def _to_float(value: object, to: TsqlType) -> object:
    if isinstance(value, str):
        # Python would take nan, inf and 1_000 as well, and make infinity of what is too large.
        number = float(value.strip() or 0) if _FLOAT_TEXT.fullmatch(value.strip()) else math.nan
        if not math.isfinite(number):
            raise SqlServerError(8114, f"Error converting data type nvarchar to {to.name}.", state=5)
        return number
    return float(_number(value, to))


def _to_text(value: object, to: TsqlType) -> object:
    text = value if isinstance(value, str) else _text_of(value, to)
    if BY_NAME[to.name].wire.packing is Packing.CODE_PAGE:
        text = in_code_page(text)
    if to.length > 0:
        # A number that does not fit is an error; only strings are cut.
        if not isinstance(value, str | bytes) and len(text) > to.length:
            raise SqlServerError(
                8115, f"Arithmetic overflow error converting expression to data type {to.name}.", state=2
            )
        text = first_units(text, to.length)
    length = BY_NAME[to.name].length
    return text + " " * (to.length - unit_count(text)) if length is not None and length.is_fixed else text


def _text_of(value: object, to: TsqlType) -> str:
    if isinstance(value, bytes):
        return from_utf16(value + b"\0" * (len(value) % 2)) if to.name in _NATIONAL else from_code_page(value, "cp1252")
    text_of = next((text_of for type_, text_of in _TEXT_OF.items() if isinstance(value, type_)), str)
    return text_of(value)


_TEXT_OF: dict[type, Callable[[Any], str]] = {
    bool: lambda value: "1" if value else "0",
    # Six significant digits, as CONVERT of a float to a string has them by default.
    float: lambda value: f"{value:.6g}",
    Decimal: lambda value: format(value, "f"),
    # uniqueidentifier is shown in upper case.
    UUID: lambda value: str(value).upper(),
    datetime.datetime: lambda value: value.isoformat(sep=" "),
    datetime.date: datetime.date.isoformat,
    datetime.time: lambda value: value.isoformat(),
}


def _to_binary(value: object, to: TsqlType) -> object:
    data = _bytes_of(value, to)
    if to.name == "rowversion":
        return data[:8].ljust(8, b"\0")
    if to.length > 0:
        # Numbers keep their low bytes and are filled at the front; strings and binaries keep their first bytes.
        keep_right = not isinstance(value, bytes | str | UUID)
        data = data[-to.length :] if keep_right else data[: to.length]
    if to.name == "binary":
        keep_right = not isinstance(value, bytes | str | UUID)
        data = data.rjust(to.length, b"\0") if keep_right else data.ljust(to.length, b"\0")
    return data


def _bytes_of(value: object, to: TsqlType) -> bytes:
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if isinstance(value, bool):
        return bytes([value])
    if isinstance(value, int):
        # An int has four bytes; a larger number is a bigint's eight.
        return value.to_bytes(4 if -(2**31) <= value < 2**31 else 8, "big", signed=True)
    if isinstance(value, UUID):
        # SQL Server stores the first three groups of a uniqueidentifier in little-endian order.
        return value.bytes_le
    if isinstance(value, str):
        return to_utf16(value)
    raise _clash(value, to)


def _to_uuid(value: object, to: TsqlType) -> object:
    if isinstance(value, UUID):
        return value
    if isinstance(value, bytes):
        return UUID(bytes_le=value[:16].ljust(16, b"\0"))
    if isinstance(value, str):
        try:
            # What follows the 36 characters of the value is ignored.
            return UUID(value.strip().strip("{}")[:36])
        except ValueError:
            message = "Conversion failed when converting from a character string to uniqueidentifier."
            raise SqlServerError(8169, message, state=2) from None
    raise _clash(value, to)


def _to_date(value: object, to: TsqlType) -> object:
    return _datetime(value, to).date()


def _to_time(value: object, to: TsqlType) -> object:
    count = precise.time_ticks(value if isinstance(value, datetime.time) else _datetime(value, to))
    # A time that is rounded up to midnight is midnight.
    count = precise.rounded(count, to.scale) % precise.DAY_TICKS
    return precise.time_of(count) if to.has_ticks else precise.coarse_time(count)


def _to_datetime(value: object, to: TsqlType) -> object:
    moment = to_datetime_ticks(_datetime(value, to))
    # Year 1753: the first whole year of the Gregorian calendar in England.
    return _checked_year(moment, 1753, datetime.MAXYEAR, to)


def _to_smalldatetime(value: object, to: TsqlType) -> object:
    # smalldatetime rounds to the nearest minute.
    moment = precise.coarse_datetime(precise.ticks(_datetime(value, to))) + datetime.timedelta(seconds=30)
    return _checked_year(moment, 1900, 2079, to).replace(second=0, microsecond=0)


def _to_datetime2(value: object, to: TsqlType) -> object:
    count = precise.rounded(precise.ticks(_datetime(value, to)), to.scale)
    return precise.datetime_of(count) if to.has_ticks else precise.coarse_datetime(count)


def to_datetime_ticks(moment: datetime.datetime) -> datetime.datetime:
    """datetime counts in 1/300 s: milliseconds end in 0, 3 or 7."""
    midnight = datetime.datetime.combine(moment.date(), datetime.time())
    ticks = (precise.time_ticks(moment) * 300 + 5_000_000) // 10_000_000
    milliseconds = (ticks * 10 + 1) // 3  # 0, 3.33 -> 3, 6.67 -> 7
    return midnight + datetime.timedelta(milliseconds=milliseconds)


def _to_datetimeoffset(value: object, to: TsqlType) -> object:
    if isinstance(value, str):
        found = _OFFSET_TEXT.search(value)
        zone = found.group(1) if found else "+00:00"
        moment = _datetime(value[: found.start()] if found else value, to)
        offset = datetime.datetime.fromisoformat(f"2000-01-01T00:00:00{zone}").tzinfo
    else:
        moment = _datetime(value, to)
        offset = value.tzinfo if isinstance(value, datetime.datetime) else None
    return precise.datetime_of(precise.rounded(precise.ticks(moment), to.scale), offset or datetime.UTC)


def _datetime(value: object, to: TsqlType) -> datetime.datetime:
    if isinstance(value, datetime.datetime):
        # The offset is dropped without converting to UTC: the local time counts.
        return precise.datetime_of(precise.ticks(value))
    if isinstance(value, datetime.date):
        return datetime.datetime.combine(value, datetime.time())
    if isinstance(value, datetime.time):
        return precise.datetime_of((_EPOCH.toordinal() - 1) * precise.DAY_TICKS + precise.time_ticks(value))
    if isinstance(value, str):
        return parse_datetime(value)
    # Only datetime and smalldatetime convert from numbers, as days since 1900.
    if isinstance(value, int | float | Decimal) and to.name in _SINCE_1900:
        return _EPOCH + datetime.timedelta(days=float(value))
    raise _clash(value, to)


def parse_datetime(text: str) -> datetime.datetime:
    """ISO forms, yyyymmdd and a bare time. Raises 241."""
    stripped = _OFFSET_TEXT.sub("", text.strip()) if ":" in text else text.strip()
    if not stripped:
        # An empty string is the first day of 1900.
        return _EPOCH
    stripped = stripped.replace(" ", "T", 1)
    # Python reads six digits; those beyond the seventh are cut.
    digits = re.search(r"\.\d{6}(\d)\d*$", stripped)
    stripped = stripped if digits is None else stripped[: digits.start(1)]
    try:
        if re.fullmatch(r"\d{1,2}:\d\d.*", stripped):
            # fromisoformat wants two digits of the hour.
            moment = datetime.datetime.combine(_EPOCH, datetime.time.fromisoformat(stripped.zfill(len(stripped))))
        else:
            moment = datetime.datetime.fromisoformat(stripped)
        return precise.datetime_of(precise.ticks(moment) + (int(digits[1]) if digits else 0))
    except ValueError:
        message = "Conversion failed when converting date and/or time from character string."
        raise SqlServerError(241, message) from None


def _checked_year(moment: datetime.datetime, first: int, last: int, to: TsqlType) -> datetime.datetime:
    if not first <= moment.year <= last:
        message = f"The conversion of a datetime2 data type to a {to.name} data type resulted in an out-of-range value."
        raise SqlServerError(242, message, state=3)
    return moment


def _clash(value: object, to: TsqlType) -> SqlServerError:
    source = _TYPE_NAMES.get(type(value), "nvarchar")
    return SqlServerError(206, f"Operand type clash: {source} is incompatible with {to.name}", state=2)


_TYPE_NAMES = {
    int: "int",
    bool: "bit",
    float: "float",
    Decimal: "numeric",
    bytes: "varbinary",
    UUID: "uniqueidentifier",
    datetime.date: "date",
    datetime.time: "time",
    datetime.datetime: "datetime2",
}
_CONVERTERS: dict[Packing, Callable[[object, TsqlType], object]] = {
    Packing.BIT: _to_bit,
    Packing.INTEGER: _to_integer,
    Packing.DECIMAL: _to_decimal,
    Packing.MONEY: _to_money,
    Packing.FLOAT: _to_float,
    Packing.DATE: _to_date,
    Packing.TIME: _to_time,
    Packing.TICKS: _to_datetime,
    Packing.MINUTES: _to_smalldatetime,
    Packing.DATE_TIME: _to_datetime2,
    Packing.DATE_TIME_OFFSET: _to_datetimeoffset,
    Packing.GUID: _to_uuid,
    **dict.fromkeys((Packing.UNICODE, Packing.CODE_PAGE, Packing.XML), _to_text),
    Packing.BYTES: _to_binary,
    # A variant takes every value as it is.
    Packing.VARIANT: lambda value, _to: value,
}
