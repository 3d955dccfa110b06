"""A change of a row, as an event describes it: the table, its columns, the key, the transaction and both images.

Three levels of JSON lie in each other: the envelope, its data, and in the data the two images. Values stay texts here;
``values`` converts them. Nothing is NULL by accident: an image that is absent is empty, and only a column that an image
with values leaves out is NULL.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple

from floodmark.core.position import POSITION_BYTES, Lsn
from floodmark.core.schema import MAX_LENGTH, SourceColumn
from floodmark.sources.event_stream.defaults import CUT_LENGTH, HEX_PREFIX
from floodmark.sources.event_stream.envelope import (
    Data,
    Envelope,
    EventOperation,
    LogicalId,
    PoisonError,
    load_exact_json,
    load_json,
    parse_lsn,
    read_avro_data,
)

# --------------------------------------------------------------------------------------------------------------------
# Declared types of an event's columns (``datetime2(7)``, ``nvarchar(max)``) as columns of Floodmark.


_DECLARED = re.compile(
    r"\s*\[?([a-z_][a-z0-9_]*(?: [a-z]+)*)\]?\s*(?:\(\s*(max|[0-9]{1,5})\s*(?:,\s*([0-9]{1,2})\s*)?\))?\s*",
    re.IGNORECASE,
)
_LENGTHS = {
    **dict.fromkeys(("char", "varchar", "binary", "varbinary"), 8000),
    **dict.fromkeys(("nchar", "nvarchar"), 4000),
}
"""The types with a length, and their longest."""
_WITH_MAX = frozenset({"varchar", "nvarchar", "varbinary"})
_FRACTIONS = frozenset({"time", "datetime2", "datetimeoffset"})
_MOST_DIGITS, _DEFAULT_DIGITS = 38, 18
_MOST_FRACTION_DIGITS = 7
_MOST_FLOAT_BITS, _MOST_REAL_BITS = 53, 24
_SYNONYMS = {"dec": "decimal", "integer": "int", "double precision": "float"}


def parse_column(name: str, declared: str, index: int) -> SourceColumn:
    """Return a column of an event. Raises PoisonError, naming the column, for a declaration that has no meaning.

    index: the 0-based place in the table. Types that Floodmark does not know keep their name and have no facets.
    """
    match = _DECLARED.fullmatch(declared)
    if not match:
        raise _unreadable(name)
    base = _SYNONYMS.get(match[1].lower(), match[1].lower())
    first, second = match[2] and match[2].lower(), match[3]
    if base in _LENGTHS:
        return SourceColumn(name, base, index + 1, max_length=_length(name, base, first, second))
    if first == "max":
        raise _unreadable(name)
    if base in ("decimal", "numeric"):
        precision, scale = int(first or _DEFAULT_DIGITS), int(second or 0)
        if not 1 <= precision <= _MOST_DIGITS or scale > precision:
            raise _unreadable(name)
        return SourceColumn(name, base, index + 1, precision=precision, scale=scale)
    if second:
        raise _unreadable(name)
    if base in _FRACTIONS:
        scale = int(first) if first else _MOST_FRACTION_DIGITS
        if scale > _MOST_FRACTION_DIGITS:
            raise _unreadable(name)
        return SourceColumn(name, base, index + 1, scale=scale)
    if base == "float" and first:
        if not 1 <= int(first) <= _MOST_FLOAT_BITS:
            raise _unreadable(name)
        base = "real" if int(first) <= _MOST_REAL_BITS else base
    return SourceColumn(name, base, index + 1)


def _length(name: str, base: str, first: str | None, second: str | None) -> int:
    if first == "max" and base in _WITH_MAX and not second:
        return MAX_LENGTH
    length = int(first) if first and first != "max" else 1
    if second or first == "max" or not 1 <= length <= _LENGTHS[base]:
        raise _unreadable(name)
    return length


def _unreadable(name: str) -> PoisonError:
    return PoisonError(f"column {name} has a declared type that cannot be read")


# --------------------------------------------------------------------------------------------------------------------


Image = Mapping[str, str | None]
"""The values of a row by column; empty where the event has none."""
_HIGHEST_INDEX = (1 << 16) - 1
_TEXT = r'"(?:[^"\\]|\\.)*"'
_NAMES = re.compile(rf'"db"\s*:\s*{_TEXT}\s*,\s*"schema"\s*:\s*{_TEXT}\s*,\s*"tbl"\s*:\s*{_TEXT}')


@dataclass(frozen=True, slots=True)
class EventColumn:
    """A column that an event carries."""

    name: str
    declared_type: str
    """As the event declares it: ``nvarchar(50)``."""
    index: int
    """The 0-based place in the table."""
    column: SourceColumn
    """The same in Floodmark's terms."""


@dataclass(frozen=True, slots=True)
class EventTransaction:
    """The place of a change in the log."""

    commit_lsn: Lsn
    begin_lsn: Lsn | None
    """None where the event has no transaction, as in the first generation."""
    sequence: int
    """The place in the transaction, across its tables."""


@dataclass(frozen=True, slots=True)
class ChangeEvent:
    """A change of one row."""

    database: str
    schema: str
    table: str
    columns: tuple[EventColumn, ...]
    key: Mapping[str, str]
    """The values of the primary key; empty for a table without one."""
    transaction: EventTransaction
    committed_at: datetime
    operation: EventOperation
    old: Image
    current: Image
    absent_values: int
    """The number of values that are NULL because an image leaves them out."""
    suspected_cuts: frozenset[str]
    """The columns with a value of exactly the length at which the server cuts."""
    guid: str
    """The identifier in ``logicalid``."""


def parse_change(envelope: Envelope) -> ChangeEvent:
    """Return the change that a whole event describes. Raises PoisonError."""
    data = read_data(envelope.data)
    source, row = read_object(data, "eventsource"), read_object(data, "eventrow")
    columns = read_event_columns(source.get("cols"))
    old, current = read_image(row.get("old"), "old"), read_image(row.get("current"), "current")
    key = read_key(source.get("pkkey"))
    check_images(envelope.operation, columns, key, old, current)
    old, absent_old = complete_old(columns, old)
    current, absent = complete_image(columns, current)
    return ChangeEvent(
        database=read_name(source, "db"),
        schema=read_name(source, "schema"),
        table=read_name(source, "tbl"),
        columns=columns,
        key=key,
        transaction=read_transaction(source.get("transaction"), envelope.logical_id),
        committed_at=envelope.time,
        operation=envelope.operation,
        old=old,
        current=current,
        absent_values=absent + absent_old,
        suspected_cuts=find_cuts(columns, old, current),
        guid=envelope.logical_id.guid,
    )


def read_data(data: Data) -> Mapping[str, Any]:
    """Return the decoded data of a whole event. Raises PoisonError."""
    if isinstance(data, Mapping):
        return data
    # A datum cannot begin with this byte: it would be the length of a name, and negative.
    if isinstance(data, bytes) and data[:1] != b"{":
        return read_avro_data(data)
    found = load_json(data, "the data")
    if not isinstance(found, dict):
        raise PoisonError("the data is not a JSON object")
    return found


def read_object(data: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return a part of the data. Raises PoisonError."""
    found = data.get(name)
    if not isinstance(found, dict):
        raise PoisonError(f"the data has no object {name}")
    return found


def read_event_columns(found: Any) -> tuple[EventColumn, ...]:
    """Return the columns that an event carries. Raises PoisonError."""
    if not isinstance(found, list) or not found:
        raise PoisonError("the data has no list cols, or an empty one")
    return _build_columns(tuple([_read_column(each) for each in found]))


@lru_cache(maxsize=1024)
def _build_columns(found: tuple[tuple[str, str, int], ...]) -> tuple[EventColumn, ...]:
    if len({name for name, _, _ in found}) < len(found):
        raise PoisonError("cols has a column twice")
    return tuple(EventColumn(name, kind, index, parse_column(name, kind, index)) for name, kind, index in found)


def _read_column(found: Any) -> tuple[str, str, int]:
    if isinstance(found, dict):
        name, kind, index = found.get("name"), found.get("type"), found.get("index")
        if type(name) is type(kind) is str and name and type(index) is int and 0 <= index <= _HIGHEST_INDEX:
            return name, str(kind), index
    raise PoisonError("cols has a column without a name, a type or an index")


def read_key(found: Any) -> Mapping[str, str]:
    """Return the values of the key. Raises PoisonError."""
    if found is None:
        return {}
    if not isinstance(found, list):
        raise PoisonError("pkkey is not a list")
    key: dict[str, str] = {}
    for each in found:
        match each:
            case {"columnname": str(name), "value": str(value)} if name not in key:
                key[name] = value
            case {"columnname": str(name), "value": bool() | int() as number} if name not in key:
                key[name] = str(int(number))
            case _:
                raise PoisonError("pkkey has a column twice, or without a name or a text as its value")
    return key


def read_transaction(found: Any, logical_id: LogicalId) -> EventTransaction:
    """Return the transaction of an event, from its identity where the data has none.

    Raises PoisonError, also where the two disagree: the order of changes depends on them.
    """
    if found is None:
        return EventTransaction(logical_id.commit_lsn, None, logical_id.sequence)
    match found:
        case {"commitlsn": str(commit), "beginlsn": str(begin), "sequencenumber": int(sequence)}:
            commit_lsn = parse_lsn(commit, "commitlsn")
        case _:
            raise PoisonError("the transaction has no commitlsn, beginlsn or sequencenumber")
    if commit_lsn != logical_id.commit_lsn or sequence != logical_id.sequence:
        raise PoisonError("the transaction is not the one that logicalid names")
    return EventTransaction(commit_lsn, parse_lsn(begin, "beginlsn"), int(sequence))


def read_image(found: Any, noun: str) -> Image:
    """Return the values of an image, {} where it is null. Raises PoisonError."""
    if found is None:
        return {}
    if isinstance(found, str):
        image = load_json(found, f"the image {noun}")
        if isinstance(image, dict) and not _has_texts_only(image):
            image = load_exact_json(found, f"the image {noun}")
    else:
        image = found
    if not isinstance(image, dict):
        raise PoisonError(f"the image {noun} is not a JSON object")
    return image if _has_texts_only(image) else {name: _read_text(value, noun) for name, value in image.items()}


def _has_texts_only(image: Mapping[str, Any]) -> bool:
    return all(value is None or type(value) is str for value in image.values())


def _read_text(value: Any, noun: str) -> str | None:
    """Return a value as text. All values are texts in every example; a number has the same digits as its text."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, int):
        return str(int(value))
    raise PoisonError(f"the image {noun} has a value that is no text")


def check_images(
    operation: EventOperation, columns: tuple[EventColumn, ...], key: Mapping[str, str], old: Image, current: Image
) -> None:
    """Raise PoisonError for images that the operation cannot have, or that have columns which the event has not."""
    names = {column.name for column in columns}
    if not (names.issuperset(old) and names.issuperset(current)):
        raise PoisonError("an image has a value of a column that cols does not list")
    if operation is EventOperation.DELETE:
        if not old and not key:
            raise PoisonError("a delete has neither values nor a key")
    elif not current:
        raise PoisonError("an insert or an update has no values")
    elif any(name in names and current.get(name) is None for name in key):
        raise PoisonError("a column of the key has no value")


def complete_image(columns: tuple[EventColumn, ...], image: Image) -> tuple[Image, int]:
    """Return an image with NULL for each column that it leaves out, and the number of these."""
    absent = len(columns) - len(image)
    if not image or not absent:
        return image, 0
    return {column.name: image.get(column.name) for column in columns}, absent


def complete_old(columns: tuple[EventColumn, ...], image: Image) -> tuple[Image, int]:
    """Return the image before a change, as ``complete_image``, without the LOBs that it leaves out.

    By default the server sends no old values of LOBs: their absence does not mean NULL.
    """
    present = tuple(each for each in columns if each.name in image or not each.column.is_lob)
    return complete_image(present, image)


def find_cuts(columns: tuple[EventColumn, ...], *images: Image) -> frozenset[str]:
    """Return the LOB columns with a value of exactly the length at which the server cuts.

    The unit of that length is not documented: bytes of UTF-8 or of UTF-16, characters, and bytes of a binary value are
    tried.
    """
    lobs = [each.name for each in columns if each.column.is_lob]
    return frozenset(name for name in lobs for image in images if _is_suspected(image.get(name)))


def _is_suspected(value: str | None) -> bool:
    if value is None or len(value) * 4 < CUT_LENGTH:
        return False
    octets, units = len(value.encode(errors="surrogatepass")), len(value.encode("utf-16-le", "surrogatepass"))
    hex_bytes = (len(value) - len(HEX_PREFIX)) // 2 if value[: len(HEX_PREFIX)].lower() == HEX_PREFIX else 0
    return CUT_LENGTH in (len(value), octets, units, units // 2, hex_bytes)


def find_names(data: object) -> tuple[str, str, str] | None:
    """Return the database, the schema and the table that data names, None if it does not show them.

    The data may be the first part of an event, or have an unknown version. Nothing inside a value is taken for a name:
    the quotes of a text within a text are escaped.
    """
    try:
        if isinstance(data, str):
            found = _NAMES.search(data)
            source = load_json(f"{{{found[0]}}}", "eventsource") if found else {}
        else:
            source = read_object(data, "eventsource") if isinstance(data, dict) else {}
        return read_name(source, "db"), read_name(source, "schema"), read_name(source, "tbl")
    except PoisonError:
        return None


def read_name(source: Mapping[str, Any], name: str) -> str:
    """Return the name of the database, the schema or the table. Raises PoisonError."""
    found = source.get(name)
    if not isinstance(found, str) or not found:
        raise PoisonError(f"eventsource has no {name}")
    return found


# --------------------------------------------------------------------------------------------------------------------
# Changes as rows of their tables, for many events at once.


Values = tuple[str | None, ...]
"""The values of an image in the order of the table's columns."""


@dataclass(frozen=True, slots=True)
class TableForm:
    """A table as its events describe it. Another set of columns is another form."""

    database: str
    schema: str
    table: str
    columns: tuple[EventColumn, ...]


class EventRow(NamedTuple):
    """A change, as one of the rows of its table. A tuple, because there is one for every event."""

    place: int
    """The place of its message in the batch."""
    committed_at: datetime
    commit_lsn: bytes
    sequence: int
    operation: EventOperation
    key: tuple[tuple[str, str], ...]
    old: Values | None
    """None where the event has no such image."""
    current: Values | None
    """None where the event has no such image."""
    unknown: frozenset[str]
    """The columns of ``old`` whose values the server left out. They are None there, but not NULL."""
    suspected_cuts: frozenset[str]
    absent_values: int
    guid: str
    """The identifier in ``logicalid``."""


def table_form(change: ChangeEvent) -> TableForm:
    """Return the table of a change."""
    return TableForm(change.database, change.schema, change.table, change.columns)


def event_row(place: int, change: ChangeEvent) -> EventRow:
    """Return a change as a row."""
    names = [each.name for each in change.columns]
    return EventRow(
        place,
        change.committed_at,
        change.transaction.commit_lsn.value,
        change.transaction.sequence,
        change.operation,
        tuple(change.key.items()),
        _values(names, change.old),
        _values(names, change.current),
        frozenset(name for name in names if name not in change.old) if change.old else frozenset(),
        change.suspected_cuts,
        change.absent_values,
        change.guid,
    )


def _values(names: list[str], image: Image) -> Values | None:
    return tuple(image.get(name) for name in names) if image else None


# --------------------------------------------------------------------------------------------------------------------
# The positions of changes in an event stream: the commit LSN, and behind it the place in the transaction.
#
# A window of a stream may end inside a transaction, even between two changes of one row. With the place, a change that
# arrives late, again or in another order never wins over a newer one. The positions of windows are moments, as those of
# a fleet (ADR 65): they are never compared with the positions of changes.


_SEQUENCE_BYTES = 4
HIGHEST_SEQUENCE = (1 << 8 * _SEQUENCE_BYTES) - 1
LOWEST = bytes(POSITION_BYTES - 1) + b"\1" + bytes(_SEQUENCE_BYTES)
"""Below every change."""


def change_position(commit_lsn: bytes, sequence: int) -> bytes:
    """Return the position of a change. Raises OverflowError for a place beyond four bytes.

    commit_lsn: ten bytes. sequence: the place of the change in its transaction.
    """
    return commit_lsn + sequence.to_bytes(_SEQUENCE_BYTES)


def end_of_commit(commit_lsn: bytes) -> bytes:
    """Return the position of the last change that a transaction may have."""
    return change_position(commit_lsn, HIGHEST_SEQUENCE)
