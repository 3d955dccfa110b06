"""INSERT: VALUES (also many rows folded into arrays), SELECT, DEFAULT VALUES, with OUTPUT."""

from __future__ import annotations

from sqlglot import exp

from sqlserver_emulator.engine.translate import modifying
from sqlserver_emulator.engine.translate.emission import FOLDED_ROWS
from sqlserver_emulator.engine.translate.expressions import ExpressionTranslator
from sqlserver_emulator.engine.translate.queries import Query, QueryTranslator, refuse_clauses
from sqlserver_emulator.engine.translate.scope import Scope
from sqlserver_emulator.engine.translate.type_rules import family
from sqlserver_emulator.engine.translate.values import Value
from sqlserver_emulator.engine.translation import CatalogColumn, CatalogObject
from sqlserver_emulator.errors import SqlServerError

_KNOWN = {"this", "expression", "returning", "with_", "default", "hint", "options"}


def translate_insert(queries: QueryTranslator, node: exp.Insert) -> tuple[str, Query | None]:
    """The statement, and the columns of its OUTPUT."""
    refuse_clauses(node, _KNOWN, "INSERT")
    scope = Scope()
    with_ = queries.with_clause(node, scope)
    schema = node.this
    target = schema.this if isinstance(schema, exp.Schema) else schema
    table = modifying.target_table(queries, target, "INSERT")
    modifying.note_identity(queries.emission, table)
    listed = schema.expressions if isinstance(schema, exp.Schema) else None
    columns = [modifying.find_column(table, item.name) for item in listed] if listed else _implied_columns(table)
    output = modifying.OutputClause(queries, table, Scope(), can=(modifying.INSERTED,)).returning(
        node.args.get("returning")
    )
    head = f"{with_}INSERT INTO {modifying.qualified_name(table)}"
    tail = output.sql if output is not None else ""
    if node.args.get("default"):
        return f"{head} DEFAULT VALUES{tail}", output
    source = node.expression
    if source is None:
        raise SqlServerError(102, "Incorrect syntax near 'INSERT'.", severity=15)
    columns, rows = _source(queries, source, table, columns, bool(listed), scope)
    overriding = " OVERRIDING SYSTEM VALUE" if any(column.identity for column in columns) else ""
    names = ", ".join(modifying.column_sql(column) for column in columns)
    return f"{head} ({names}){overriding} {rows}{tail}", output


def _implied_columns(table: CatalogObject) -> list[CatalogColumn]:
    return [column for column in table.columns if not column.identity and not column.computed]


def _source(
    queries: QueryTranslator,
    source: exp.Expression,
    table: CatalogObject,
    columns: list[CatalogColumn],
    listed: bool,
    scope: Scope,
) -> tuple[list[CatalogColumn], str]:
    """The columns that get a value, and the VALUES or SELECT that gives it."""
    if isinstance(source, exp.Values):
        return _values(queries, source, table, columns, listed, scope)
    query = queries.subquery(source, scope)
    _check_count(len(query.columns), len(columns), listed, "SELECT")
    for column in columns:
        modifying.check_assignable(table, column, insert=True)
    cells: list[str] = []
    for own, column in zip(query.columns, columns, strict=True):
        kind = family(own.type) if own.type is not None else None
        value = Value(f"s.{own.sql}", own.type, kind=kind, direct=own.direct)
        cells.append(modifying.assigned(value, column))
    plain = all(cell == f"s.{own.sql}" for cell, own in zip(cells, query.columns, strict=True))
    if plain:
        return columns, query.sql
    return columns, f"SELECT {', '.join(cells)} FROM ({query.sql}) AS s"


def _values(
    queries: QueryTranslator,
    source: exp.Values,
    table: CatalogObject,
    columns: list[CatalogColumn],
    listed: bool,
    scope: Scope,
) -> tuple[list[CatalogColumn], str]:
    expressions = ExpressionTranslator(queries.emission, scope, queries)
    rows: list[str] = []
    for row in source.expressions:
        items = row.expressions
        _check_count(len(items), len(columns), listed, "VALUES")
        cells = [_cell(expressions, item, table, column) for item, column in zip(items, columns, strict=True)]
        rows.append(", ".join(cells))
    if queries.emission.is_folded:
        return columns, f"SELECT {rows[0]} FROM {folded_rows(queries)}"
    # A rowversion column is given DEFAULT or nothing; the trigger fills it.
    return columns, "VALUES " + ", ".join(f"({row})" for row in rows)


def _cell(expressions: ExpressionTranslator, item: exp.Expression, table: CatalogObject, column: CatalogColumn) -> str:
    default = modifying.is_default(item)
    blank = default or isinstance(item, exp.Null)
    modifying.check_assignable(table, column, insert=True, default=blank)
    if default or (blank and column.type.name == "rowversion"):
        return "DEFAULT"
    return modifying.assigned(expressions.value(item), column)


def folded_rows(queries: QueryTranslator) -> str:
    """The rows of a folded INSERT: one array a column."""
    emission = queries.emission
    arrays = ", ".join(
        f"${i + 1}::{emission.folded_cast(ordinal)}[]" for i, ordinal in enumerate(emission.folded_ordinals)
    )
    names = ", ".join(f"l{ordinal}" for ordinal in emission.folded_ordinals)
    return f"unnest({arrays}) AS {FOLDED_ROWS}({names})"


def _check_count(given: int, wanted: int, listed: bool, clause: str) -> None:
    if given == wanted:
        return
    if not listed:
        raise SqlServerError(213, "Column name or number of supplied values does not match table definition.")
    number, more = ((110, "fewer"), (109, "more"))[given < wanted]
    if clause == "SELECT":
        number, words = (120, "The select list for the INSERT statement contains fewer items than the insert list.") if given < wanted else (
            121, "The select list for the INSERT statement contains more items than the insert list."
        )  # fmt: skip
        raise SqlServerError(
            number, f"{words} The number of SELECT values must match the number of INSERT columns.", severity=15
        )
    raise SqlServerError(
        number,
        f"There are {more} columns in the INSERT statement than values specified in the VALUES clause. The number of values"
        " in the VALUES clause must match the number of columns specified in the INSERT statement.",
        severity=15,
    )
