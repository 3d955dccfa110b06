"""A translated query, and what its rows become in DISTINCT and in set operations: of one type, and distinguished as the
server distinguishes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from sqlserver_emulator import collations
from sqlserver_emulator.collations import as_column
from sqlserver_emulator.engine.masks import DEFAULT_MASK
from sqlserver_emulator.engine.translate.expressions.clauses import output_names, select_from
from sqlserver_emulator.engine.translate.expressions.comparisons import has_blanks_at_end, padded, unpadded
from sqlserver_emulator.engine.translate.expressions.scope import SourceColumn, quote
from sqlserver_emulator.engine.translate.values.collating import grouped_type, is_comparable_as_stored
from sqlserver_emulator.engine.translate.values.conversion import IMPLICIT, convert
from sqlserver_emulator.engine.translate.values.type_rules import is_text, storage_type, unify
from sqlserver_emulator.engine.translate.values.value import Value, VariantValue, is_column_of_nulls
from sqlserver_emulator.types import NVARCHAR_MAX


@dataclass(slots=True)
class Query:
    """A translated query. columns: of its result, named as T-SQL names them ('' for an unnamed expression)."""

    sql: str
    columns: list[SourceColumn]
    values: list[Value] = field(default_factory=list)
    has_depth: bool = False
    """It reads a recursive table within the recursion, whose hidden column it passes on as its last one."""
    around: tuple[str, str] | None = None
    """What is before SELECT and after its list, where the list may have other expressions (``sent_as_texts``)."""


def finished(value: Value) -> str:
    """The value as it leaves the query: of the storage of its type, so that PostgreSQL's own widening does not show."""
    if isinstance(value, VariantValue):
        return f"{value.sql}::{value.base}"
    if value.direct or (value.kind in (None, "text", "binary", "variant") and not value.is_null):
        return value.sql
    type = value.type
    if type is None or value.kind in ("text", "binary", "variant"):
        return value.sql
    storage = storage_type(type)
    # A conversion has ended with this very cast already.
    return value.sql if value.sql.endswith(f"::{storage}") else f"{value.sql}::{storage}"


def output_columns(names: Sequence[str], values: Sequence[Value]) -> list[SourceColumn]:
    """The columns a query offers to the one around it, or to the client."""
    return [
        SourceColumn(
            name,
            sql_name,
            value.type,
            value.nullable,
            value.direct,
            untyped=value.is_null,
            mask=value.mask,
            collated=as_column(value.collated),
            only_nulls=is_column_of_nulls(value),
        )
        for name, sql_name, value in zip(names, output_names(names), values, strict=True)
    ]


def projected(columns: Sequence[SourceColumn], values: Sequence[Value]) -> str:
    """A select list."""
    return ", ".join(f"{finished(value)} AS {column.sql}" for column, value in zip(columns, values, strict=True))


def sent_as_texts(query: Query) -> tuple[str, frozenset[int]]:
    """Return the query with texts for columns that are their code units, and these columns; '' where it has none."""
    texts = {i: value.units_of for i, value in enumerate(query.values) if value.units_of}
    if not texts or query.around is None:
        return "", frozenset()
    values = [Value(f"{texts[i]}::text", NVARCHAR_MAX) if i in texts else v for i, v in enumerate(query.values)]
    before, after = query.around
    return f"{before}SELECT {projected(query.columns, values)}{after}", frozenset(texts)


def distinct_query(with_: str, columns: list[SourceColumn], values: list[Value], rest: str) -> Query:
    """SELECT DISTINCT to which 'a' and 'a ' are one."""
    listed = ", ".join(
        f"{padded(value) if has_blanks_at_end(value) else finished(value)} AS {column.sql}"
        for column, value in zip(columns, values, strict=True)
    )
    return kept_blanks(f"{with_}SELECT DISTINCT {listed}{rest}", columns, [has_blanks_at_end(v) for v in values])


def kept_blanks(sql: str, columns: list[SourceColumn], is_padded: list[bool]) -> Query:
    """The result of ``sql`` with its strings as plain ones again."""
    alias = "~d"
    items = [
        f"{unpadded(f'{quote(alias)}.{column.sql}')} AS {column.sql}" if changed else f"{quote(alias)}.{column.sql}"
        for column, changed in zip(columns, is_padded, strict=True)
    ]
    columns = [replace(c, direct=c.direct and not changed) for c, changed in zip(columns, is_padded, strict=True)]
    values = [Value("", column.type, collated=column.collated) for column in columns]
    return Query(select_from(", ".join(items), f"({sql}) AS {quote(alias)}"), columns, values)


def ignores_blanks_at_end(column: SourceColumn) -> bool:
    """Return whether blanks at the end of the column's strings do not count in comparisons of rows."""
    return is_text(column.type) and not column.untyped and not is_comparable_as_stored(column.collated, column.type)


def merged(left: SourceColumn, right: SourceColumn) -> SourceColumn:
    """Return the column of a set operation that two columns make."""
    nullable = left.nullable or right.nullable
    mask = left.mask if left.mask == right.mask else DEFAULT_MASK
    if left.untyped or right.untyped:
        type = right.type if left.untyped else left.type
        collated = right.collated if left.untyped else left.collated
        untyped = left.untyped and right.untyped
        # A constant NULL on one side makes it int, as it is in a derived table.
        nulls = left.only_nulls and right.only_nulls
        return SourceColumn(
            left.name, left.sql, type, True, untyped=untyped, mask=mask, collated=collated, only_nulls=nulls
        )
    type = left.type if left.type == right.type else unify(left.type, right.type)
    # A column of a table has one declared type; the union has it only where both sides agree.
    direct = left.direct and right.direct and left.type == right.type
    collated = collations.merged(left.collated, right.collated)
    return SourceColumn(left.name, left.sql, type, nullable, direct, mask=mask, collated=collated)


def aligned(query: Query, columns: list[SourceColumn], is_distinct: bool) -> str:
    """One side of a set operation, converted where its types differ from the common ones.

    is_distinct: the operation compares rows, and blanks at the end of a string shall not count.
    """
    conversions = []
    changed = False
    for own, common in zip(query.columns, columns, strict=True):
        sql = f"u.{own.sql}"
        both = own.type is not None and common.type is not None
        # Strings of different lengths need no conversion: both are stored as varchar or text.
        if both and own.type != common.type and not (is_text(own.type) and is_text(common.type)):
            sql = _as_type(sql, own, common)
            changed = True
        if is_distinct and ignores_blanks_at_end(common):
            sql = f"{sql}::{grouped_type(common.collated)}"
            changed = True
        conversions.append(f"{sql} AS {common.sql}")
    if not changed:
        return f"({query.sql})"
    return f"({select_from(', '.join(conversions), f'({query.sql}) AS u')})"


def _as_type(sql: str, own: SourceColumn, common: SourceColumn) -> str:
    if own.type is None or common.type is None:
        return sql
    storage = storage_type(common.type)
    if own.untyped:
        # The other side's type decides; the untyped NULL has none to convert from.
        return f"NULL::{storage}"
    return f"{convert(Value(sql, own.type), common.type, IMPLICIT).sql}::{storage}"
