"""Messages of PostgreSQL's logical replication plugin ``pgoutput``, protocol version 1: bytes in, values out. Pure.

Rows stay encoded: a column value is kept as its four-byte length and its binary form, which is exactly how COPY BINARY
wants it, so a captured value travels from the log into a change table without being decoded. NULL is the length -1.
Transactions, order and meaning are ``capture``'s; the connection is ``log``'s.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct

BEGIN = ord("B")
COMMIT = ord("C")
RELATION = ord("R")
INSERT = ord("I")
UPDATE = ord("U")
DELETE = ord("D")
TRUNCATE = ord("T")
MESSAGE = ord("M")
TYPE = ord("Y")
ORIGIN = ord("O")

NULL_FIELD = b"\xff\xff\xff\xff"
"""A NULL as COPY BINARY writes it: the length -1."""

UNCHANGED_FIELD = b""
"""A value out of line that the update left alone; the old row has it."""

Fields = list[bytes]

# The layouts of PostgreSQL's manual, "Logical Replication Message Formats". `_COMMIT` skips the unused byte of flags.
_BEGIN = Struct(">QqI")
_COMMIT = Struct(">xQQq")
_INT32 = Struct(">i")
_UINT32 = Struct(">I")
_INT16 = Struct(">h")
_COLUMN_TYPE = Struct(">Ii")
_MESSAGE_HEAD = Struct(">?Q")

_NULL = ord("n")
_UNCHANGED = ord("u")
_NEW_ROW = ord("N")
# PostgreSQL counts from 2000-01-01; this is that moment in microseconds since 1970.
_POSTGRES_EPOCH_MICROSECONDS = 946_684_800_000_000


@dataclass(frozen=True, slots=True)
class Begin:
    """A transaction starts. commit_position: where its commit record begins. commit_time: microseconds since 1970."""

    commit_position: int
    commit_time: int
    transaction_id: int


@dataclass(frozen=True, slots=True)
class Commit:
    """A transaction ends. end_position: the first byte after its commit record."""

    commit_position: int
    end_position: int


@dataclass(frozen=True, slots=True)
class RelationColumn:
    """A column of a table as logged."""

    name: str
    type_oid: int
    type_modifier: int


@dataclass(frozen=True, slots=True)
class Relation:
    """A table as it was at this place of the log. Generated columns are not in it."""

    object_id: int
    schema: str
    name: str
    columns: tuple[RelationColumn, ...]


@dataclass(frozen=True, slots=True)
class LogicalMessage:
    """A message that ``pg_logical_emit_message`` wrote."""

    transactional: bool
    position: int
    prefix: str
    content: bytes


def read_begin(data: bytes, at: int) -> Begin:
    """Return the BEGIN at ``at``."""
    position, time, transaction_id = _BEGIN.unpack_from(data, at + 1)
    return Begin(position, time + _POSTGRES_EPOCH_MICROSECONDS, transaction_id)


def read_commit(data: bytes, at: int) -> Commit:
    """Return the COMMIT at ``at``."""
    position, end, _ = _COMMIT.unpack_from(data, at + 1)
    return Commit(position, end)


def read_relation(data: bytes, at: int) -> Relation:
    """Return the description of a table at ``at``."""
    (object_id,) = _UINT32.unpack_from(data, at + 1)
    schema, at = _text(data, at + 5)
    name, at = _text(data, at)
    (count,) = _INT16.unpack_from(data, at + 1)  # one byte of replica identity before it
    at += 3
    columns = []
    for _ in range(count):
        column_name, at = _text(data, at + 1)  # one byte of flags before the name
        columns.append(RelationColumn(column_name, *_COLUMN_TYPE.unpack_from(data, at)))
        at += _COLUMN_TYPE.size
    return Relation(object_id, schema, name, tuple(columns))


def read_message(data: bytes, at: int) -> LogicalMessage:
    """Return the logical message at ``at``."""
    transactional, position = _MESSAGE_HEAD.unpack_from(data, at + 1)
    prefix, at = _text(data, at + 1 + _MESSAGE_HEAD.size)
    (length,) = _INT32.unpack_from(data, at)
    return LogicalMessage(transactional, position, prefix, data[at + 4 : at + 4 + length])


def read_truncate(data: bytes, at: int) -> tuple[int, ...]:
    """Return the ids of the tables that were truncated."""
    (count,) = _INT32.unpack_from(data, at + 1)
    # One byte of options (CASCADE, RESTART IDENTITY) is between the count and the ids.
    return tuple(_UINT32.unpack_from(data, at + 6 + 4 * i)[0] for i in range(count))


def row_object_id(data: bytes, at: int) -> int:
    """Return the table of an INSERT, UPDATE or DELETE message."""
    object_id: int = _UINT32.unpack_from(data, at + 1)[0]
    return object_id


def read_row(data: bytes, at: int) -> Fields:
    """Return the row of an INSERT (the new one) or of a DELETE (the old one)."""
    # The row follows the kind (1 byte), the table's id (4) and a letter that says which image it is (1).
    return _fields(data, at + 6)[0]


def read_row_pair(data: bytes, at: int) -> tuple[Fields, Fields]:
    """Return the old and the new row of an UPDATE of a table with REPLICA IDENTITY FULL.

    Raises ValueError when the old row is missing, which no tracked table's log may hold.
    """
    # Only REPLICA IDENTITY FULL logs the whole old row; without it the image before the update would be lost.
    if data[at + 5] == _NEW_ROW:
        raise ValueError(f"update of table {row_object_id(data, at)} was logged without its old row")
    old, at = _fields(data, at + 6)
    new, _ = _fields(data, at + 1)
    # PostgreSQL does not log a large value again that is stored out of line and was not assigned.
    if UNCHANGED_FIELD in new:
        new = [before if after == UNCHANGED_FIELD else after for before, after in zip(old, new, strict=True)]
    return old, new


def _fields(data: bytes, at: int) -> tuple[Fields, int]:
    """Return the values of a row whose column count is at ``at``, and the place after them. The hot loop."""
    (count,) = _INT16.unpack_from(data, at)
    at += 2
    unpack_length = _INT32.unpack_from
    fields: Fields = []
    for _ in range(count):
        kind = data[at]
        at += 1
        if kind == _NULL:
            fields.append(NULL_FIELD)
        elif kind == _UNCHANGED:
            fields.append(UNCHANGED_FIELD)
        else:
            end = at + 4 + unpack_length(data, at)[0]
            # With its four bytes of length: COPY BINARY wants them too.
            fields.append(data[at:end])
            at = end
    return fields, at


def _text(data: bytes, at: int) -> tuple[str, int]:
    end = data.index(b"\0", at)
    return data[at:end].decode(), end + 1
