"""Hypothesis strategies: T-SQL types, their values, and the same values as Arrow columns."""

from __future__ import annotations

from datetime import datetime, time, timedelta, timezone
from decimal import Decimal
from functools import partial
from typing import Any

import pyarrow as pa
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from sqlserver_emulator import code_units, precise
from sqlserver_emulator.types import MAX_LENGTH, TsqlType

PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""The tables of characters take a second to build, once."""

SCALES = st.integers(0, 7)
TEXT = st.text(st.characters(), max_size=10).map(
    lambda text: code_units.from_utf16(text.encode("utf-16-le", "surrogatepass"))
)
"""Any code units, as the emulator holds them."""
_UNASSIGNED = st.sampled_from("\x81\x8d\x8f\x90\x9d")
"""What the five bytes stand for that are no characters of the code page."""
CODE_PAGE_TEXT = st.text(st.one_of(st.characters(codec="cp1252"), _UNASSIGNED), max_size=20).map(code_units.escaped)


def _whole(bits: int, *, signed: bool = True) -> st.SearchStrategy[int]:
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else st.integers(0, 2**bits - 1)


def scaled(precision: int, scale: int) -> st.SearchStrategy[Decimal]:
    limit = 10**precision - 1
    return st.integers(-limit, limit).map(
        lambda number: Decimal((int(number < 0), tuple(map(int, str(abs(number)))), -scale))
    )


def _precise(moment: datetime | time, digit: int) -> datetime | time:
    if isinstance(moment, datetime):
        return precise.datetime_of(precise.ticks(moment) + digit, moment.tzinfo)
    return precise.time_of(precise.time_ticks(moment) + digit)


def _cut(moment: Any, scale: int) -> Any:
    step = 10 ** max(6 - scale, 0)
    return moment.replace(microsecond=moment.microsecond // step * step)


ZONES = st.integers(-839, 839).map(lambda minutes: timezone(timedelta(minutes=minutes)))
OLD = (datetime(1753, 1, 1), datetime(9999, 12, 31))
SMALL = (datetime(1900, 1, 1), datetime(2079, 6, 5))


@st.composite
def decimal_types(draw: st.DrawFn) -> TsqlType:
    precision = draw(st.integers(1, 38))
    return TsqlType(draw(st.sampled_from(["decimal", "numeric"])), 0, precision, draw(st.integers(0, precision)))


_FIXED_NAMES = """bit tinyint smallint int bigint money smallmoney real date datetime smalldatetime uniqueidentifier
    xml text ntext image rowversion"""
FIXED_TYPES = st.sampled_from(
    [*map(TsqlType, _FIXED_NAMES.split()), TsqlType("float", precision=53), TsqlType("sysname", 128)]
)
SIZED_TYPES = st.builds(
    TsqlType,
    st.sampled_from(["char", "varchar", "nchar", "nvarchar", "binary", "varbinary"]),
    st.sampled_from([20, 4000, MAX_LENGTH]),
).filter(lambda type_: not (type_.is_max and "var" not in type_.name))
SCALED_TYPES = st.builds(
    lambda name, scale: TsqlType(name, 0, 0, scale), st.sampled_from(["time", "datetime2"]), SCALES
)
TYPES = st.one_of(
    FIXED_TYPES,
    SIZED_TYPES,
    SCALED_TYPES,
    decimal_types(),
    st.builds(lambda scale: TsqlType("datetimeoffset", 0, 0, scale), SCALES),
)


def values_of(type_: TsqlType) -> st.SearchStrategy[Any]:
    """Values that the type holds exactly; NULL is not among them."""
    name, scale = type_.name, type_.scale
    if name in ("decimal", "numeric"):
        return scaled(type_.precision, scale)
    if name in ("time", "datetime2", "datetimeoffset"):
        moments = {"time": st.times(), "datetime2": st.datetimes(), "datetimeoffset": _offset_moments()}[name]
        return (
            st.builds(_precise, moments, st.integers(0, 9)) if scale == 7 else moments.map(partial(_cut, scale=scale))
        )
    if name in ("text", "char", "varchar"):
        return CODE_PAGE_TEXT
    if name in ("ntext", "nchar", "nvarchar", "sysname", "xml"):
        return TEXT
    if name in ("image", "binary", "varbinary"):
        return st.binary(max_size=20)
    return _SIMPLE_VALUES[name]


def _offset_moments() -> st.SearchStrategy[datetime]:
    near_the_ends = (datetime(1, 1, 2), datetime(9999, 12, 30))
    return st.datetimes(*near_the_ends, timezones=ZONES)


_SIMPLE_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "bit": st.booleans(),
    "tinyint": _whole(8, signed=False),
    "smallint": _whole(16),
    "int": _whole(32),
    "bigint": _whole(64),
    "money": st.one_of(scaled(18, 4), st.just(Decimal("-922337203685477.5808"))),
    "smallmoney": scaled(9, 4),
    "real": st.floats(width=32, allow_nan=False, allow_infinity=False),
    "float": st.floats(allow_nan=False, allow_infinity=False),
    "date": st.dates(),
    "datetime": st.datetimes(*OLD).map(
        lambda moment: moment.replace(microsecond=moment.microsecond // 10_000 * 10_000)
    ),
    "smalldatetime": st.datetimes(*SMALL).map(lambda moment: moment.replace(second=0, microsecond=0)),
    "uniqueidentifier": st.uuids(),
    "rowversion": st.binary(min_size=8, max_size=8),
}


def arrow_column(type_: TsqlType, values: list[Any], *, as_text: bool) -> pa.Array:
    """``as_text``: decimals and uuids as text, bits as int16, which the engine may choose too."""
    name = type_.name
    if name == "datetimeoffset":
        return _offset_column(values)
    if type_.has_ticks:
        count = precise.time_ticks if name == "time" else precise.ticks
        return pa.array([None if v is None else count(v) for v in values], pa.int64())
    if name in ("decimal", "numeric", "money", "smallmoney"):
        precision = {"money": 19, "smallmoney": 10}.get(name, type_.precision)
        decimals = pa.array(values, pa.decimal128(precision, type_.scale if type_.precision else 4))
        return pa.array([None if v is None else f"{v:f}" for v in values], pa.string()) if as_text else decimals
    if name == "uniqueidentifier":
        return (
            pa.array([None if v is None else str(v) for v in values], pa.string())
            if as_text
            else pa.array([None if v is None else v.bytes for v in values], pa.binary(16))
        )
    if name == "bit":
        return pa.array(values, pa.bool_()).cast(pa.int16()) if as_text else pa.array(values, pa.bool_())
    return pa.array(values, _ARROW.get(name, pa.binary() if "bin" in name or name == "image" else pa.string()))


def _offset_column(values: list[datetime | None]) -> pa.Array:
    parts = [None if value is None else _utc_and_minutes(value) for value in values]
    return pa.array(parts, pa.struct([("utc", pa.int64()), ("minutes", pa.int16())]))


def _utc_and_minutes(value: datetime) -> dict[str, int]:
    offset = value.utcoffset()
    assert offset is not None
    minutes = offset // timedelta(minutes=1)
    return {"utc": precise.ticks(value) - minutes * precise.MINUTE_TICKS, "minutes": minutes}


_ARROW = {
    "tinyint": pa.int16(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "real": pa.float32(),
    "float": pa.float64(),
    "date": pa.date32(),
    "time": pa.time64("us"),
    "datetime2": pa.timestamp("us"),
    "datetime": pa.timestamp("us"),
    "smalldatetime": pa.timestamp("us"),
    "rowversion": pa.binary(),
}
