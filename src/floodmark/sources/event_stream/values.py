"""Values of events: how the text of each SQL type is read, and how it is written."""

from __future__ import annotations

import re
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from decimal import Context, Decimal, InvalidOperation
from math import isfinite, nextafter
from typing import Any

import numpy as np
import pyarrow as pa

from floodmark.core.errors import ConfigError, FloodmarkBugError
from floodmark.core.plan import TablePlan
from floodmark.core.schema import SourceColumn
from floodmark.core.settings import TemporalPolicy
from floodmark.core.types import Kind, WarehouseType, warehouse_type
from floodmark.sources.event_stream.defaults import BIT_TEXTS, HEX_PREFIX
from floodmark.sources.event_stream.envelope import PoisonError
from floodmark.sync.filters import FilterError, Row, compile_filter

# --------------------------------------------------------------------------------------------------------------------
# Dates and times of events: they have seven digits of a second, which ``datetime`` cannot hold.
#
# Each value is read into its parts and written from them. What a column of a batch cannot hold is cut off, as the other
# kinds of source on SQL Server do it. Where a column is text, all digits that the type declares are kept.


TICKS_PER_SECOND = 10_000_000
TICK_DIGITS = 7
_TICKS_PER_MICROSECOND, _TICKS_PER_MILLISECOND = 10, 10_000
_DATE = r"(\d{4})-(\d{2})-(\d{2})"
_TIME = r"(\d{2}):(\d{2})(?::(\d{2})(?:\.(\d{1,7}))?)?"
_MOMENT = re.compile(rf"(?:{_DATE})?(?:[T ]?{_TIME}(?: ?(Z|[+-]\d{{2}}:\d{{2}}))?)?", re.ASCII)
_MOST_OFFSET_MINUTES = 14 * 60


@dataclass(frozen=True, slots=True)
class Moment:
    """The parts of a date, a time of day or both."""

    day: date | None
    ticks: int
    """Tenths of a microsecond since midnight."""
    offset_minutes: int | None = None
    """East of UTC; None for a type without an offset."""

    def to_datetime(self) -> datetime:
        """Return the local date and time. Digits below a microsecond are cut off."""
        return datetime.combine(self.day or date.min, self.to_time())

    def to_time(self) -> time:
        """Return the time of day. Digits below a microsecond are cut off."""
        microseconds = self.ticks // _TICKS_PER_MICROSECOND
        seconds, fraction = divmod(microseconds, 1_000_000)
        return time(seconds // 3600, seconds // 60 % 60, seconds % 60, fraction)

    def to_utc(self) -> Moment:
        """Return the same moment with offset zero. Raises OverflowError beyond the years 1 to 9999."""
        offset = timedelta(minutes=self.offset_minutes or 0)
        whole = datetime.combine(self.day or date.min, time.min)
        seconds, fraction = divmod(self.ticks, TICKS_PER_SECOND)
        shifted = whole + timedelta(seconds=seconds) - offset
        rest = timedelta(hours=shifted.hour, minutes=shifted.minute, seconds=shifted.second)
        return Moment(shifted.date(), int(rest.total_seconds()) * TICKS_PER_SECOND + fraction, 0)

    def format_time(self, digits: int) -> str:
        """Return the time of day with this number of digits of a second."""
        seconds, fraction = divmod(self.ticks, TICKS_PER_SECOND)
        shown = f".{fraction:07}"[: digits + 1] if digits else ""
        return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}{shown}"

    def format(self, digits: int) -> str:
        """Return date and time, and the offset where there is one, as CONVERT does with style 121."""
        shown = f"{self.day or date.min} {self.format_time(digits)}"
        if self.offset_minutes is None:
            return shown
        hours, minutes = divmod(abs(self.offset_minutes), 60)
        return f"{shown} {'-' if self.offset_minutes < 0 else '+'}{hours:02}:{minutes:02}"


def parse_moment(text: str, digits: int) -> Moment:
    """Return the parts of a text.

    digits: the digits of a second that the type keeps. Raises ValueError for a text of another form, with more digits
    that are not zero, or with a part out of range.
    """
    match = _MOMENT.fullmatch(text)
    if not match or not text:
        raise ValueError
    year, month, day, hours, minutes, seconds, fraction, offset = match.groups()
    found = date(int(year), int(month), int(day)) if year else None
    ticks = int((fraction or "").ljust(TICK_DIGITS, "0"))
    if ticks % 10 ** (TICK_DIGITS - digits):
        raise ValueError
    at = time(int(hours or 0), int(minutes or 0), int(seconds or 0))
    ticks += ((at.hour * 60 + at.minute) * 60 + at.second) * TICKS_PER_SECOND
    return Moment(found, ticks, _parse_offset(offset) if offset else None)


def moment_of(value: datetime | time | date) -> Moment:
    """Return the parts of a value."""
    if isinstance(value, datetime):
        offset = value.utcoffset()
        minutes = None if offset is None else int(offset.total_seconds()) // 60
        return Moment(value.date(), _ticks(value.time()), minutes)
    if isinstance(value, time):
        return Moment(None, _ticks(value))
    return Moment(value, 0)


def round_to_milliseconds(moment: Moment) -> Moment:
    """Return a ``datetime`` of the server as it prints it. Its ticks are thirds of 10 ms, with any number of digits."""
    ticks = round(moment.ticks / _TICKS_PER_MILLISECOND) * _TICKS_PER_MILLISECOND
    return Moment(moment.day, min(ticks, 24 * 3600 * TICKS_PER_SECOND - _TICKS_PER_MILLISECOND))


def aware(moment: Moment) -> datetime:
    """Return a moment as a datetime in UTC. Raises OverflowError beyond the years 1 to 9999."""
    return moment.to_utc().to_datetime().replace(tzinfo=UTC)


def _ticks(at: time) -> int:
    seconds = (at.hour * 60 + at.minute) * 60 + at.second
    return seconds * TICKS_PER_SECOND + at.microsecond * _TICKS_PER_MICROSECOND


def _parse_offset(text: str) -> int:
    if text == "Z":
        return 0
    minutes = int(text[1:3]) * 60 + int(text[4:6])
    if minutes > _MOST_OFFSET_MINUTES or int(text[4:6]) > 59:
        raise ValueError
    return -minutes if text[0] == "-" else minutes


# --------------------------------------------------------------------------------------------------------------------
# Values of events: one table that says how the text of each SQL type is read, and how it is written.
#
# Reading is lenient, because Microsoft documents few types; writing has one form per type. A text that is no value of
# its column's type is a fault, never another value. The Arrow type of each column is that of ``sync.arrow``.


ReadValue = Callable[[str], Any]
_INTEGER = re.compile(r"[+-]?\d{1,20}", re.ASCII)
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,4})?", re.ASCII)
_HEX = re.compile(rf"(?i:{HEX_PREFIX})((?:[0-9A-Fa-f]{{2}})*)")
_GUID = re.compile(r"\{?([0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12})\}?")
_BIT_OUT = {value: text for text, value in reversed(BIT_TEXTS.items())}
_MOST_FLOAT32 = nextafter(float(np.finfo(np.float32).max) + 2.0**103, 0)
"""The highest number that is rounded to a ``real``: the shortest text of the highest ``real`` is above its value."""
_EXACT = Context(prec=80)
_SEVEN, _MICROSECOND_DIGITS, _MILLISECOND_DIGITS = 7, 6, 3


@dataclass(frozen=True, slots=True)
class ValueForm:
    """The text of a type's values."""

    reader: Callable[[SourceColumn, WarehouseType, TemporalPolicy], ReadValue]
    """Returns the function that reads a column's texts. It raises ValueError, OverflowError or InvalidOperation."""
    write: Callable[[SourceColumn, Any], str]
    """Returns the one form in which a value is written."""


def has_form_of(written: SourceColumn, present: SourceColumn) -> bool:
    """Return whether texts of a column are read as its present type.

    written: the column when the texts were written. Other conversions have rules of the server, such as a style of
    dates.
    """
    families = (_FAMILIES.get(each.type_name, each.type_name) for each in (written, present))
    return len(set(families)) == 1


def value_reader(column: SourceColumn, as_type: WarehouseType, temporal: TemporalPolicy) -> Callable[[str | None], Any]:
    """Return the function that makes of a text the value of a batch. It raises PoisonError, naming the column.

    as_type: the column's type in the warehouse, by ``core.types.warehouse_type``.
    """
    form = FORMS.get(column.type_name)
    if form is None:
        raise PoisonError(f"column {column.name} has type {column.type_name}, which events cannot have")
    read = form.reader(column, as_type, temporal)

    def checked(text: str | None) -> Any:
        if text is None:
            return None
        try:
            return read(text)
        except (ValueError, OverflowError, InvalidOperation):
            raise PoisonError(f"column {column.name} has a value that is no {column.declared_type}") from None

    return checked


def write_value(column: SourceColumn, value: Any) -> str | None:
    """Return the text of a value, None for NULL. Raises PoisonError for a type that events cannot have."""
    if value is None:
        return None
    form = FORMS.get(column.type_name)
    if form is None:
        raise PoisonError(f"column {column.name} has type {column.type_name}, which events cannot have")
    return form.write(column, value)


def _integers(low: int, high: int) -> ValueForm:
    def read(text: str) -> int:
        if not _INTEGER.fullmatch(text):
            raise ValueError
        value = int(text)
        if not low <= value <= high:
            raise ValueError
        return value

    return ValueForm(lambda _, __, ___: read, lambda _, value: str(int(value)))


def _read_bit(text: str) -> bool:
    value = BIT_TEXTS.get(text.lower())
    if value is None:
        raise ValueError
    return value


def _decimal_reader(_: SourceColumn, as_type: WarehouseType, __: TemporalPolicy) -> ReadValue:
    quantum, precision = Decimal(1).scaleb(-as_type.scale), as_type.precision

    def read(text: str) -> Decimal:
        if not _NUMBER.fullmatch(text):
            raise ValueError
        found = Decimal(text)
        exact = found.quantize(quantum, context=_EXACT)
        if exact != found or len(exact.as_tuple().digits) > precision:
            raise ValueError
        return exact

    return read


def _decimals(digits: Callable[[SourceColumn], int]) -> ValueForm:
    def write(column: SourceColumn, value: Any) -> str:
        return f"{Decimal(value).quantize(Decimal(1).scaleb(-digits(column)), context=_EXACT):f}"

    return ValueForm(_decimal_reader, write)


def _floats(most: float, shorten: Callable[[Any], str]) -> ValueForm:
    def read(text: str) -> float:
        if not _NUMBER.fullmatch(text):
            raise ValueError
        value = float(text)
        if not isfinite(value) or abs(value) > most:
            raise ValueError
        return value

    return ValueForm(lambda _, __, ___: read, lambda _, value: shorten(value).removesuffix(".0"))


def _read_guid(text: str) -> str:
    match = _GUID.fullmatch(text)
    if not match:
        raise ValueError
    return match[1].lower()


def _text_reader(column: SourceColumn, _: WarehouseType, __: TemporalPolicy) -> ReadValue:
    longest = column.max_length

    def read(text: str) -> str:
        # No character is shorter than one unit of the declared length, whatever that unit is.
        if 0 < longest < len(text):
            raise ValueError
        return text

    return read


def _bytes_reader(column: SourceColumn, _: WarehouseType, __: TemporalPolicy) -> ReadValue:
    longest = column.max_length

    def read(text: str) -> bytes:
        match = _HEX.fullmatch(text)
        try:
            value = bytes.fromhex(match[1]) if match else b64decode(text, validate=True)
        except Base64Error:
            raise ValueError from None
        if 0 < longest < len(value):
            raise ValueError
        return value

    return read


def _time_reader(column: SourceColumn, as_type: WarehouseType, _: TemporalPolicy) -> ReadValue:
    shown = column.scale if as_type.kind is Kind.TEXT else _MICROSECOND_DIGITS

    def read(text: str) -> str:
        moment = parse_moment(text, column.scale)
        if moment.day or moment.offset_minutes is not None:
            raise ValueError
        return moment.format_time(shown)

    return read


def _timestamp_reader(column: SourceColumn, as_type: WarehouseType, _: TemporalPolicy) -> ReadValue:
    # A datetime is printed with three digits, and read with all that its third of 10 ms may have.
    digits = _SEVEN if column.type_name == "datetime" else column.scale
    is_text = as_type.kind is Kind.TEXT

    def read(text: str) -> Any:
        moment = parse_moment(text, digits)
        if moment.day is None or moment.offset_minutes is not None:
            raise ValueError
        if column.type_name == "datetime":
            moment = round_to_milliseconds(moment)
        return moment.format(digits) if is_text else moment.to_datetime()

    return read


def _offset_reader(column: SourceColumn, as_type: WarehouseType, temporal: TemporalPolicy) -> ReadValue:
    is_text, keeps_offset = as_type.kind is Kind.TEXT, temporal is TemporalPolicy.TEXT

    def read(text: str) -> Any:
        moment = parse_moment(text, column.scale)
        if moment.day is None or moment.offset_minutes is None:
            raise ValueError
        if not is_text:
            return aware(moment)
        in_utc = moment.to_utc()
        # In a key: two offsets of one moment are one key at the source.
        return (moment if keeps_offset else in_utc).format(column.scale)

    return read


def _moment(value: datetime | time | date | str) -> Moment:
    return parse_moment(value, _SEVEN) if isinstance(value, str) else moment_of(value)


def _write_offset(column: SourceColumn, value: Any) -> str:
    moment = _moment(value)
    return Moment(moment.day, moment.ticks, moment.offset_minutes or 0).format(column.scale)


_TEXT = ValueForm(_text_reader, lambda _, value: str(value))
_BYTES = ValueForm(_bytes_reader, lambda _, value: HEX_PREFIX + bytes(value).hex().upper())
_MONEY = _decimals(lambda _: 4)
_DECIMAL = _decimals(lambda column: column.scale)

FORMS: dict[str, ValueForm] = {
    "bit": ValueForm(lambda _, __, ___: _read_bit, lambda _, value: _BIT_OUT[bool(value)]),
    "tinyint": _integers(0, 255),
    "smallint": _integers(-(1 << 15), (1 << 15) - 1),
    "int": _integers(-(1 << 31), (1 << 31) - 1),
    "bigint": _integers(-(1 << 63), (1 << 63) - 1),
    "decimal": _DECIMAL,
    "numeric": _DECIMAL,
    "money": _MONEY,
    "smallmoney": _MONEY,
    "float": _floats(float("inf"), lambda value: repr(float(value))),
    "real": _floats(_MOST_FLOAT32, lambda value: str(np.float32(value))),
    **dict.fromkeys(("char", "varchar", "nchar", "nvarchar", "sysname", "text", "ntext", "xml", "json"), _TEXT),
    **dict.fromkeys(("binary", "varbinary", "image", "rowversion", "timestamp"), _BYTES),
    "uniqueidentifier": ValueForm(lambda _, __, ___: _read_guid, lambda _, value: str(value).upper()),
    "date": ValueForm(lambda _, __, ___: _read_date, lambda _, value: str(_moment(value).day)),
    "time": ValueForm(_time_reader, lambda column, value: _moment(value).format_time(column.scale)),
    "datetime": ValueForm(
        _timestamp_reader, lambda _, value: round_to_milliseconds(_moment(value)).format(_MILLISECOND_DIGITS)
    ),
    "smalldatetime": ValueForm(_timestamp_reader, lambda _, value: _moment(value).format(0)),
    "datetime2": ValueForm(_timestamp_reader, lambda column, value: _moment(value).format(column.scale)),
    "datetimeoffset": ValueForm(_offset_reader, _write_offset),
}
"""Every SQL type that an event can carry, by its lower-case name."""
_FAMILIES = {
    **dict.fromkeys(("bit", "tinyint", "smallint", "int", "bigint"), "number"),
    **dict.fromkeys(("decimal", "numeric", "money", "smallmoney", "float", "real"), "number"),
    **dict.fromkeys(("char", "varchar", "nchar", "nvarchar", "sysname"), "text"),
    **dict.fromkeys(("binary", "varbinary"), "binary"),
    **dict.fromkeys(("date", "smalldatetime", "datetime", "datetime2"), "moment"),
}
"""The types whose texts each other's readers take, with the same meaning. Any other type is alone."""


def _read_date(text: str) -> date:
    moment = parse_moment(text, 0)
    if moment.day is None or moment.ticks or moment.offset_minutes is not None:
        raise ValueError
    return moment.day


# --------------------------------------------------------------------------------------------------------------------
# The filter of a table over the rows of its events, and over those of a load: both are compared as the same values.
#
# The server would compare texts by its collations, which no event shows. So the server filters neither.


_COMPARED_AS = {
    **dict.fromkeys(("decimal", "numeric", "money", "smallmoney"), "decimal"),
    **dict.fromkeys(("datetime", "smalldatetime", "datetime2"), "datetime2"),
    **dict.fromkeys(("varchar", "nvarchar", "sysname"), "nvarchar"),
    **dict.fromkeys(("char", "nchar"), "nchar"),
}
"""The types that ``sync.filters`` knows by another name."""
_MICROSECOND_TEXT = len("2026-01-31 12:00:00.000000")


@dataclass(frozen=True)
class EventFilter:
    """The filter of one table."""

    columns: Mapping[str, SourceColumn]
    """The columns that it reads, by their names."""
    readers: Mapping[str, Callable[[str | None], Any]]
    """The functions that read the texts of these columns, and raise PoisonError."""
    test: Callable[[Row], bool]

    @classmethod
    def of(cls, plan: TablePlan) -> EventFilter | None:
        """Return the filter of a table, None for a table without one. Raises ConfigError, naming what it compares."""
        if plan.settings.where is None:
            return None
        columns = {column.name: column for column in plan.feed.filtering}
        if any(each.name not in columns for each in plan.settings.where.columns):
            raise FloodmarkBugError(str(plan.source), "its plan lacks columns that the filter reads.")
        typed = {name: replace(each, type_name=_compared_as(each)) for name, each in columns.items()}
        try:
            test = compile_filter(plan.settings.where, typed)
        except FilterError as error:
            raise ConfigError(str(plan.source), f"where: {error}.", "Correct it in pipelines.yaml.") from None
        temporal = plan.settings.temporal
        types = {name: warehouse_type(plan.feed.table, each, temporal) for name, each in columns.items()}
        readers = {name: value_reader(each, types[name], temporal) for name, each in columns.items()}
        return cls(columns, readers, test)

    def passes(self, texts: Mapping[str, str | None]) -> bool:
        """Return whether a row of an event passes. texts: those of ``columns`` by their names.

        Raises PoisonError, also for NULL in a column that is never NULL: the event does not show its value.
        """
        for name, column in self.columns.items():
            if texts[name] is None and not column.nullable:
                raise PoisonError(f"column {name}, which the filter reads and which is never NULL, has no value")
        row = {name: _compared(each, self.readers[name](texts[name])) for name, each in self.columns.items()}
        return self.test(row)

    def select(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows of a batch of the table itself that pass."""
        values = {
            name: [_compared(each, value) for value in _to_python(batch.column(name))]
            for name, each in self.columns.items()
        }
        rows = ({name: found[place] for name, found in values.items()} for place in range(batch.num_rows))
        return batch.filter(pa.array([self.test(row) for row in rows], pa.bool_()))


def _compared_as(column: SourceColumn) -> str:
    return _COMPARED_AS.get(column.type_name, column.type_name)


def _compared(column: SourceColumn, value: Any) -> Any:
    """Return a value in the form that is compared. Moments that are texts have more digits than the others."""
    if isinstance(value, str):
        match _compared_as(column):
            case "datetime2":
                return datetime.fromisoformat(value[:_MICROSECOND_TEXT])
            case "nchar":
                return value.rstrip(" ")
            case "uniqueidentifier":
                return value.lower()
    return value


def _to_python(values: pa.Array) -> list[Any]:
    if not pa.types.is_string(values.type):
        return list(values.to_pylist())
    octets = values.cast(pa.binary()).to_pylist()
    return [None if each is None else each.decode("utf-8", "surrogatepass") for each in octets]
