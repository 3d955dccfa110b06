"""Schema drift: the shape of a table, how two shapes differ, and which statement explains a difference."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from enum import Enum
from typing import Any

from floodmark.core.errors import ConfigError
from floodmark.core.naming import why_not_named
from floodmark.core.position import Position, parse_position
from floodmark.core.schema import (
    MAX_LENGTH,
    SourceColumn,
    SourceTable,
    TableName,
)
from floodmark.core.settings import DriftClass, DriftPolicies, DriftPolicy, Naming, TemporalPolicy
from floodmark.core.snapshot import CDC_WORDS, FeedIdentity, SourceWords, TableSnapshot
from floodmark.core.types import Kind, WarehouseType, warehouse_type

# --------------------------------------------------------------------------------------------------------------------
# The comparison of a column's old and new type: which one can hold the values of the other in a warehouse.


_INTEGER_DIGITS = {Kind.INT16: 5, Kind.INT32: 10, Kind.INT64: 19}
_INTEGER_BITS = {"bit": 1, "tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
_UNICODE = frozenset({"nchar", "nvarchar", "ntext", "sysname", "xml", "json"})
_OF_ONE_CODE_PAGE = frozenset({"char", "varchar", "text"})
_NO_NAME = TableName("-", "-")


class TypeChange(Enum):
    """The relation between the values of a new type and those of the old one."""

    WIDENED = "widened"
    """Every old value is a value of the new type."""
    NARROWED = "narrowed"
    """Every new value is a value of the old type."""
    CHANGED = "changed"
    """Neither."""


def classify_type(
    before: SourceColumn, after: SourceColumn, temporal: TemporalPolicy, key: tuple[str, ...] = ()
) -> TypeChange | None:
    """Return how a type changed, None where the declared types are the same. key: the columns of the table's key."""
    if before.declared_type == after.declared_type:
        return None
    try:
        old, new = (warehouse_type(SourceTable(_NO_NAME, (), key), column, temporal) for column in (before, after))
    except ConfigError:  # a type that Floodmark does not support
        return TypeChange.CHANGED
    grows, shrinks = holds(new, old), holds(old, new)
    if grows and before.type_name in _UNICODE and after.type_name in _OF_ONE_CODE_PAGE:
        # The source has written a question mark for each character that the code page lacks.
        return TypeChange.NARROWED
    if grows and shrinks:
        # It is one type in the warehouse. Values of a smaller type may have been truncated at the source.
        return TypeChange.NARROWED if _size(after) < _size(before) else TypeChange.WIDENED
    if grows:
        return TypeChange.WIDENED
    return TypeChange.NARROWED if shrinks else TypeChange.CHANGED


def holds(wide: WarehouseType, narrow: WarehouseType) -> bool:
    """Return whether every value of ``narrow`` is a value of ``wide``, as a target's column may be changed to it."""
    if wide.kind is narrow.kind is Kind.TEXT:
        return not wide.length or 0 < narrow.length <= wide.length
    if wide.kind is Kind.DECIMAL:
        return _decimal_holds(wide, narrow)
    if wide.kind in _INTEGER_DIGITS and narrow.kind in _INTEGER_DIGITS:
        return _INTEGER_DIGITS[wide.kind] >= _INTEGER_DIGITS[narrow.kind]
    if wide.kind is Kind.FLOAT64 and narrow.kind is Kind.FLOAT32:
        return True
    return wide.kind is narrow.kind


def _decimal_holds(wide: WarehouseType, narrow: WarehouseType) -> bool:
    if narrow.kind is Kind.DECIMAL:
        digits, scale = narrow.precision - narrow.scale, narrow.scale
    elif narrow.kind in _INTEGER_DIGITS:
        digits, scale = _INTEGER_DIGITS[narrow.kind], 0
    else:
        return False
    return wide.precision - wide.scale >= digits and wide.scale >= scale


def _size(column: SourceColumn) -> tuple[float, int]:
    """Return a size that orders two types that are one in the warehouse."""
    if column.type_name in _INTEGER_BITS:
        return (_INTEGER_BITS[column.type_name], 0)
    length = float("inf") if column.max_length == MAX_LENGTH or column.is_lob else float(column.max_length)
    return (length, column.scale)


# --------------------------------------------------------------------------------------------------------------------
# The columns of a source that can reach a target, and the reason why others never can.


_NO_TABLE = SourceTable(TableName("-", "-"), (), ())


def unsupported_reason(column: SourceColumn, naming: Naming = Naming.KEEP) -> str:
    """Return a clause about the column, "" for one that can be loaded."""
    if column.is_computed:
        return "it is computed, and values of computed columns are not read"
    if naming is Naming.KEEP and (why := why_not_named(column.name)):
        return f"it {why}"
    try:
        # Whether there is a type at all does not depend on the policy.
        warehouse_type(_NO_TABLE, column, TemporalPolicy.TRUNCATE)
    except ConfigError:
        return f"it has type {column.type_name}, which no warehouse can hold"
    return ""


# --------------------------------------------------------------------------------------------------------------------
# Schema drift: how a tracked table differs from its last known shape, and which policy applies.
#
# The module owns the comparison of two shapes. Which type can hold which is in ``types``, the DDL behind a difference
# in ``ddl``, the sentences for people in ``messages``.


@dataclass(frozen=True, slots=True)
class TableShape:
    """A table and its capture instance at one moment."""

    name: TableName
    """Of the source table."""
    identity: FeedIdentity
    captured: tuple[SourceColumn, ...]
    """The columns that reach the target."""
    lost: tuple[str, ...]
    """Captured columns that the source has dropped, also when a column of the same name has been added since."""
    uncaptured: tuple[SourceColumn, ...]
    """Columns of the source that the instance does not capture; their ordinal is the source's column_id."""
    key: tuple[str, ...]
    """The server's."""
    max_column_id: int
    last_ddl: Position | None = None
    """Up to where the DDL history has been read; None for not at all."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that changed."""

    kind: DriftClass
    column: str | None = None
    """None: the table as a whole."""
    before: str = ""
    """In words, "" where there is none."""
    after: str = ""
    """In words, "" where there is none."""
    is_captured: bool = True
    """False: the column has never reached the target, so that nothing has to be held."""
    obstacle: str = ""
    """Why an added column can never reach the target, "" where it can."""


@dataclass(frozen=True, slots=True)
class Absence:
    """The reason why a known table could not be found."""

    cdc_enabled: bool
    exists: bool
    renamed_to: TableName | None = None
    """The table that its capture instance belongs to now."""


def stored(table: SourceTable, lost: tuple[str, ...]) -> SourceTable:
    """Return the table without the columns it has lost: their NULLs must not overwrite values of the target."""
    if not lost:
        return table
    columns = tuple(column for column in table.columns if column.name not in lost)
    return SourceTable(table.name, columns, table.key)


def is_as_known(table_snapshot: TableSnapshot, shape: TableShape) -> bool:
    """Return whether a snapshot shows the table as it is known, so that no closer check is needed.

    The highest column_id distinguishes a column that was dropped and added again from one that stayed: ids are never
    reused.
    """
    instance = table_snapshot.feed
    if instance is None or instance.identity != shape.identity:
        return False
    table = stored(instance.table, shape.lost)
    return (table.columns, table.key, table.name, table_snapshot.max_column_id) == (
        shape.captured,
        shape.key,
        shape.name,
        shape.max_column_id,
    )


def compare_shapes(
    known: TableShape,
    seen: TableShape,
    temporal: TemporalPolicy,
    words: SourceWords = CDC_WORDS,
    naming: Naming = Naming.KEEP,
) -> tuple[Difference, ...]:
    """Return all differences, in the order in which the operator should read them."""
    if known.identity != seen.identity:
        before, after = words.describe_feed(known.identity), words.describe_feed(seen.identity)
        return (Difference(DriftClass.INSTANCE_REPLACED, None, before, after),)
    return (
        *_table_differences(known, seen),
        *_captured(known, seen, temporal, naming),
        *_uncaptured(known, seen, temporal, naming),
    )


def added_column(column: SourceColumn, naming: Naming = Naming.KEEP, *, is_captured: bool = False) -> Difference:
    """Return the difference for a column that was added.

    is_captured: whether its values are read; a capture instance does not capture it.
    """
    return Difference(
        DriftClass.COLUMN_ADDED,
        column.name,
        "",
        column.declared_type,
        is_captured=is_captured,
        obstacle=unsupported_reason(column, naming),
    )


def as_captured_by(seen: TableShape, elsewhere: TableShape) -> TableShape:
    """Return a shape whose columns are those of the other instance, as far as both capture them.

    The rest is as it is now.
    """
    before = {column.name: column for column in elsewhere.captured}
    captured = tuple(
        replace(before[column.name], ordinal=column.ordinal) if column.name in before else column
        for column in seen.captured
    )
    return replace(seen, captured=captured, key=elsewhere.key)


def classify_absence(known: TableShape, absence: Absence, words: SourceWords = CDC_WORDS) -> Difference:
    """Return why a table can no longer be found.

    A right that was revoked is no drift; the caller handles it.
    """
    if not absence.cdc_enabled or (absence.exists and absence.renamed_to is None):
        return Difference(DriftClass.CDC_DISABLED, None, words.describe_feed(known.identity), "none")
    if absence.renamed_to is not None:
        return Difference(DriftClass.TABLE_RENAMED, None, str(known.name), str(absence.renamed_to))
    return Difference(DriftClass.TABLE_DROPPED, None, str(known.name), "no such table that the login may see")


def select_policy(policies: DriftPolicies, difference: Difference, *, declares_key: bool = False) -> DriftPolicy:
    """Return the policy for a difference.

    declares_key: the configuration names the key, so the server's does not matter.
    """
    policy = policies.of(difference.kind)
    harmless = not difference.is_captured or (difference.kind is DriftClass.KEY_CHANGED and declares_key)
    if harmless and policy in (DriftPolicy.HOLD, DriftPolicy.EVOLVE):
        return DriftPolicy.ALERT
    if difference.obstacle and policy is DriftPolicy.PROPOSE:
        return DriftPolicy.ALERT
    return policy


def _table_differences(known: TableShape, seen: TableShape) -> Iterator[Difference]:
    if known.name != seen.name:
        yield Difference(DriftClass.TABLE_RENAMED, None, str(known.name), str(seen.name))
    if known.key != seen.key:
        yield Difference(DriftClass.KEY_CHANGED, None, _key(known.key), _key(seen.key))


def _captured(known: TableShape, seen: TableShape, temporal: TemporalPolicy, naming: Naming) -> Iterator[Difference]:
    now = {(column.name, column.ordinal): column for column in seen.captured}
    for before in known.captured:
        after = now.pop((before.name, before.ordinal), None)
        if after is None:
            yield Difference(DriftClass.COLUMN_DROPPED, before.name, before.declared_type)
        else:
            yield from _column(before, after, temporal, seen.key, is_captured=not before.is_computed)
    # A capture instance keeps its columns; where the table itself is read, another column has another ordinal.
    for added in now.values():
        yield added_column(added, naming, is_captured=not added.is_computed)


def _uncaptured(known: TableShape, seen: TableShape, temporal: TemporalPolicy, naming: Naming) -> Iterator[Difference]:
    then = {(column.name, column.ordinal): column for column in known.uncaptured}
    now = {(column.name, column.ordinal): column for column in seen.uncaptured}
    for place, before in then.items():
        if place in now:
            yield from _column(before, now[place], temporal, seen.key, is_captured=False)
        else:
            yield Difference(DriftClass.COLUMN_DROPPED, before.name, before.declared_type, is_captured=False)
    for place, after in now.items():
        if place not in then:
            yield added_column(after, naming)


_OF_TYPE = {
    TypeChange.WIDENED: DriftClass.TYPE_WIDENED,
    TypeChange.NARROWED: DriftClass.TYPE_NARROWED,
    TypeChange.CHANGED: DriftClass.TYPE_CHANGED,
}


def _column(
    before: SourceColumn, after: SourceColumn, temporal: TemporalPolicy, key: tuple[str, ...], *, is_captured: bool
) -> Iterator[Difference]:
    change = classify_type(before, after, temporal, key)
    if change is not None:
        types = (before.declared_type, after.declared_type)
        yield Difference(_OF_TYPE[change], before.name, *types, is_captured=is_captured)
    if before.nullable != after.nullable:
        words = (_nullability(before), _nullability(after))
        yield Difference(DriftClass.NULLABILITY_CHANGED, before.name, *words, is_captured=is_captured)


def _nullability(column: SourceColumn) -> str:
    return "NULL" if column.nullable else "NOT NULL"


def _key(names: tuple[str, ...]) -> str:
    return f"({', '.join(names)})" if names else "no key"


# --------------------------------------------------------------------------------------------------------------------
# A table's shape as JSON, in which the ledger stores the last known one. Fields are only ever added.


def shape_to_json(shape: TableShape) -> dict[str, Any]:
    """Return a document of dicts, lists, strings, numbers, booleans and None only."""
    return {
        "name": [shape.name.schema, shape.name.name],
        "instance": {
            "name": shape.identity.name,
            "object_id": shape.identity.object_id,
            "created_at": shape.identity.created_at.isoformat(),
        },
        "captured": [asdict(column) for column in shape.captured],
        "lost": list(shape.lost),
        "uncaptured": [asdict(column) for column in shape.uncaptured],
        "key": list(shape.key),
        "max_column_id": shape.max_column_id,
        "ddl_lsn": str(shape.last_ddl) if shape.last_ddl else None,
    }


def shape_from_json(document: Mapping[str, Any]) -> TableShape:
    """Return the shape of a document. Raises KeyError for a document that is not a shape."""
    instance = document["instance"]
    created_at = datetime.fromisoformat(instance["created_at"])
    return TableShape(
        name=TableName(*document["name"]),
        identity=FeedIdentity(instance["name"], instance["object_id"], created_at),
        captured=tuple(SourceColumn(**column) for column in document["captured"]),
        lost=tuple(document["lost"]),
        uncaptured=tuple(SourceColumn(**column) for column in document["uncaptured"]),
        key=tuple(document["key"]),
        max_column_id=document["max_column_id"],
        last_ddl=parse_position(document["ddl_lsn"]) if document["ddl_lsn"] else None,
    )


# --------------------------------------------------------------------------------------------------------------------
# One table under several spellings: ``dbo.Orders`` and ``DBO.orders`` are the same table on most servers.
#
# Whether they are depends on the collation, which is never asked for. The name that the server gives to the table it
# found by a name is enough: it prefers the exact name to one that differs in case.


def known_as(table_snapshot: TableSnapshot, known: Iterable[tuple[TableName, TableShape]]) -> TableName:
    """Return the name under which the drift of a table is stored.

    known: the stored shapes, by such a name. The name does not change once there is a shape under it. Where the server
    no longer has the table, all names that differ in case alone are gone: one of them would otherwise have found it.
    """
    instance, called = table_snapshot.feed, table_snapshot.server_name
    found = {
        name
        for name, shape in known
        if name.folded == table_snapshot.table.folded
        and (called in (None, shape.name) or (instance is not None and instance.identity == shape.identity))
    }
    for name in (called, table_snapshot.table if called is None else None):
        if name in found:
            return name
    return min(found, default=called or table_snapshot.table)


def is_named(name: TableName, table: TableName, called: TableName, others: Collection[TableName]) -> bool:
    """Return whether a pipeline that configures ``name`` means the table.

    called: the server's name of the table. others: its tracked tables, by the server's names.
    """
    return name in (table, called) or (name.folded == table.folded and name not in others)


# --------------------------------------------------------------------------------------------------------------------
# The DDL history of a capture instance, and the statements that explain a difference.
#
# The texts are written by users of the source. They are not parsed for their effect, which the shapes show: they are
# only searched for the words that connect a statement with a column. A statement without a connection is reported as
# such.


_COMMENT = re.compile(r"--[^\n]*|/\*.*?\*/", re.DOTALL)
_ACTIONS = {
    DriftClass.COLUMN_ADDED: re.compile(r"\bADD\b", re.IGNORECASE),
    DriftClass.COLUMN_DROPPED: re.compile(r"\bDROP\b", re.IGNORECASE),
    **dict.fromkeys(
        (
            DriftClass.TYPE_WIDENED,
            DriftClass.TYPE_NARROWED,
            DriftClass.TYPE_CHANGED,
            DriftClass.NULLABILITY_CHANGED,
        ),
        re.compile(r"\bALTER\s+COLUMN\b", re.IGNORECASE),
    ),
}


@dataclass(frozen=True, slots=True)
class DdlEntry:
    """A row of ``sys.sp_cdc_get_ddl_history``."""

    position: Position
    at: datetime
    """Local time of the server, in whole minutes on some versions."""
    text: str


@dataclass(frozen=True, slots=True)
class Explained:
    """A difference with the statements that explain it."""

    difference: Difference
    entries: tuple[DdlEntry, ...] = ()
    """Oldest first; () while the history has none."""


def explain(differences: Sequence[Difference], entries: Sequence[DdlEntry]) -> tuple[Explained, ...]:
    """Return each difference with its DDL, then one of class unknown for each statement that explains none."""
    ordered = sorted(entries, key=lambda entry: entry.position)
    explained = [
        Explained(difference, tuple(entry for entry in ordered if is_behind(entry, difference)))
        for difference in differences
    ]
    used = {entry for each in explained for entry in each.entries}
    rest = (Explained(Difference(DriftClass.UNKNOWN), (entry,)) for entry in ordered if entry not in used)
    return (*explained, *rest)


def is_behind(entry: DdlEntry, difference: Difference) -> bool:
    """Return whether the statement names the column and has the kind of action that was found."""
    action = _ACTIONS.get(difference.kind)
    if action is None or difference.column is None:
        return False
    text = _COMMENT.sub(" ", entry.text)
    return bool(action.search(text)) and mentions(text, difference.column)


def mentions(text: str, column: str) -> bool:
    """Return whether a statement names the column, in brackets, in quotation marks or as a word of its own."""
    name = re.escape(column)
    bracketed = re.escape(column.replace("]", "]]"))
    pattern = rf'\[{bracketed}\]|"{re.escape(column.replace(chr(34), chr(34) * 2))}"|(?<![\w@#$]){name}(?![\w@#$])'
    return re.search(pattern, text, re.IGNORECASE) is not None
