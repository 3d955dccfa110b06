"""The short way from texts to a column: texts that are all written plainly are read by Arrow, many at once.

A plain text has one meaning, which ``values`` gives it too. Where one text of a column is not plain, or out of range,
``values`` reads all of them one by one: nothing here decides what a fault is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from floodmark.core.schema import SourceColumn
from floodmark.core.types import MICROSECOND_DIGITS, Kind, WarehouseType
from floodmark.sources.event_stream.defaults import HEX_PREFIX
from floodmark.sync.ports.arrow import arrow_type

_FLOAT = r"^-?[0-9]{1,17}(\.[0-9]{1,17})?([eE][+-]?[0-9]{1,2})?$"
_DATE = r"^[12][0-9]{3}-[0-9]{2}-[0-9]{2}"
"""Arrow also knows the year 0."""
_TIME = r"[ T][0-9]{2}:[0-9]{2}:[0-9]{2}"
_LONGEST_TIMESTAMP = len("2026-03-01 12:00:00.") + MICROSECOND_DIGITS
_GUID = r"^[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}$"
_HEX = f"^{HEX_PREFIX}([0-9A-Fa-f]{{2}})*$"
_MILLISECOND_DIGITS = 3


@dataclass(frozen=True, slots=True)
class _PlainForm:
    """The plain texts of a column."""

    are_plain: Callable[[pa.Array], pa.Array]
    """Returns for each text whether it is plain, NULL for NULL."""
    read: Callable[[pa.Array], pa.Array]
    """Returns the values of plain texts. It raises ArrowInvalid for one that is out of range."""


_Describe = Callable[[SourceColumn, WarehouseType], _PlainForm]


def read_plain_texts(texts: Sequence[str | None], column: SourceColumn, as_type: WarehouseType) -> pa.Array | None:
    """Return the values of texts, None where one of them is not plain or is out of range."""
    kind, describe = _FORMS.get(column.type_name, _NO_FORM)
    if describe is None or kind not in (None, as_type.kind):
        return None
    form = describe(column, as_type)
    try:
        found = pa.array(texts, pa.string())
        return None if pc.all(form.are_plain(found)).as_py() is False else form.read(found)
    except (pa.ArrowInvalid, UnicodeEncodeError):
        return None


def _matches(pattern: str) -> Callable[[pa.Array], pa.Array]:
    return lambda found: pc.match_substring_regex(found, pattern)


def _cast(pattern: str, kind: pa.DataType) -> _PlainForm:
    return _PlainForm(_matches(pattern), lambda found: found.cast(kind))


def _integers(pattern: str, kind: pa.DataType) -> tuple[None, _Describe]:
    return None, lambda _, __: _cast(pattern, kind)


def _fraction(digits: int) -> str:
    return rf"(\.[0-9]{{1,{digits}}})?$" if digits else "$"


def _decimals(_: SourceColumn, as_type: WarehouseType) -> _PlainForm:
    return _cast(f"^-?[0-9]{{1,{as_type.precision}}}" + _fraction(as_type.scale), arrow_type(as_type))


def _timestamps(digits: int) -> _PlainForm:
    return _PlainForm(_matches(_DATE + _TIME + _fraction(digits)), _read_timestamps)


def _read_timestamps(found: pa.Array) -> pa.Array:
    """Return moments without the digits below a microsecond."""
    return pc.utf8_slice_codeunits(found, 0, _LONGEST_TIMESTAMP).cast(pa.timestamp("us"))


def _texts(column: SourceColumn, _: WarehouseType) -> _PlainForm:
    return _PlainForm(lambda found: _are_within(pc.utf8_length(found), column.max_length), lambda found: found)


def _octets(column: SourceColumn, _: WarehouseType) -> _PlainForm:
    def are_plain(found: pa.Array) -> pa.Array:
        lengths = pc.divide(pc.subtract(pc.binary_length(found), len(HEX_PREFIX)), 2)
        return pc.and_(pc.match_substring_regex(found, _HEX), _are_within(lengths, column.max_length))

    return _PlainForm(are_plain, _read_hex)


def _read_hex(found: pa.Array) -> pa.Array:
    begin = len(HEX_PREFIX)
    return pa.array([text and bytes.fromhex(text[begin:]) for text in found.to_pylist()], pa.binary())


def _are_within(lengths: pa.Array, longest: int) -> pa.Array:
    """Return whether each length is at most the longest, which is not above 0 for a type without one."""
    return pc.less_equal(lengths, longest) if longest > 0 else pc.greater_equal(lengths, 0)


_NO_FORM = (None, None)
_INTEGER = r"^-?[0-9]{1,19}$"
_FORMS: dict[str, tuple[Kind | None, _Describe]] = {
    "tinyint": _integers("^[0-9]{1,2}$", pa.int16()),
    "smallint": _integers(_INTEGER, pa.int16()),
    "int": _integers(_INTEGER, pa.int32()),
    "bigint": _integers(_INTEGER, pa.int64()),
    **dict.fromkeys(("decimal", "numeric", "money", "smallmoney"), (Kind.DECIMAL, _decimals)),
    "float": (Kind.FLOAT64, lambda _, __: _cast(_FLOAT, pa.float64())),
    "bit": (Kind.BOOLEAN, lambda _, __: _cast("^[01]$", pa.bool_())),
    "date": (Kind.DATE, lambda _, __: _cast(f"{_DATE}$", pa.date32())),
    "datetime": (Kind.TIMESTAMP, lambda _, __: _timestamps(_MILLISECOND_DIGITS)),
    "smalldatetime": (Kind.TIMESTAMP, lambda _, __: _timestamps(0)),
    "datetime2": (Kind.TIMESTAMP, lambda column, _: _timestamps(column.scale)),
    "uniqueidentifier": (Kind.UUID, lambda _, __: _PlainForm(_matches(_GUID), pc.ascii_lower)),
    **dict.fromkeys(("char", "varchar", "nchar", "nvarchar", "sysname"), (Kind.TEXT, _texts)),
    **dict.fromkeys(("binary", "varbinary"), (Kind.BYTES, _octets)),
}
"""By SQL type: the kind of the column in the warehouse, None for any, and the plain texts.

The other types have no plain texts: their texts are read one by one.
"""
