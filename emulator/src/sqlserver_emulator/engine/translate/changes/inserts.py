"""INSERT: VALUES (also many rows folded into arrays), SELECT, DEFAULT VALUES, with OUTPUT."""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from sqlserver_emulator.engine.translate.changes import modifying
from sqlserver_emulator.engine.translate.expressions.clauses import is_default, is_percent, refuse_clauses, select_from
from sqlserver_emulator.engine.translate.expressions.emission import FOLDED_ROWS
from sqlserver_emulator.engine.translate.expressions.expression_translator import ExpressionTranslator
from sqlserver_emulator.engine.translate.expressions.scope import Scope
from sqlserver_emulator.engine.translate.lexical.lexemes import check_row_count
from sqlserver_emulator.engine.translate.queries.masked_results import masked
from sqlserver_emulator.engine.translate.queries.query_translator import QueryTranslator, row_count
from sqlserver_emulator.engine.translation import CatalogColumn, CatalogObject
from sqlserver_emulator.errors import NotSupportedByEmulatorError, SqlServerError

_KNOWN = {"this", "expression", "returning", "with_", "default", "hint", "options", "limit"}


@dataclass(frozen=True, slots=True)
class _Insert:
    """The target of an INSERT; ``listed``: its columns were named in the statement."""

    queries: QueryTranslator
    table: CatalogObject
    columns: list[CatalogColumn]
    listed: bool
    scope: Scope


def translate_insert(queries: QueryTranslator, node: exp.Insert) -> modifying.Modification:
    """Translate an INSERT."""
    refuse_clauses(node, _KNOWN, "INSERT")
    scope = Scope()
    with_ = queries.with_clause(node, scope)
    target = node.this.this if isinstance(node.this, exp.Schema) else node.this
    table = modifying.target_table(queries, target, "INSERT")
    modifying.note_identity(queries.emission, table)
    listed = node.this.expressions if isinstance(node.this, exp.Schema) else []
    columns = [modifying.find_column(table, item.name) for item in listed] or _implied_columns(table)
    modifying.check_distinct(columns)
    insert = _Insert(queries, table, columns, bool(listed), scope)
    output = modifying.OutputClause(queries, table, Scope(), can=(modifying.INSERTED,))
    body = f"INSERT INTO {modifying.qualified_name(table)} {_rows(insert, node)}"
    return output.complete(with_, body, node.args.get("returning"))


# Identity and computed columns are left out where the statement names no columns.
def _implied_columns(table: CatalogObject) -> list[CatalogColumn]:
    return [column for column in table.columns if not column.identity and not column.computed]


def _rows(insert: _Insert, node: exp.Insert) -> str:
    """The column list, and the VALUES or SELECT that fills it."""
    if node.args.get("default"):
        return "DEFAULT VALUES"
    source = node.expression
    if not source:
        raise SqlServerError(102, "Incorrect syntax near 'INSERT'.", severity=15)
    rows = _values(insert, source) if isinstance(source, exp.Values) else _query(insert, source)
    rows = _first(insert, rows, node.args.get("limit"))
    # Without the clause PostgreSQL would refuse a value for the identity column; IDENTITY_INSERT is checked before the
    # run.
    overriding = " OVERRIDING SYSTEM VALUE" if any(column.identity for column in insert.columns) else ""
    names = ", ".join(modifying.column_sql(column) for column in insert.columns)
    return f"({names}){overriding} {rows}"


def _first(insert: _Insert, rows: str, limit: exp.Expression | None) -> str:
    """The rows of INSERT TOP (n): any n of them, as in SQL Server."""
    if limit is None:
        return rows
    if is_percent(limit):
        raise NotSupportedByEmulatorError("TOP (n) PERCENT in INSERT")
    expressions = ExpressionTranslator(insert.queries.emission, insert.scope, insert.queries)
    return f"{select_from('*', f'({rows}) AS t')} LIMIT {row_count(expressions, limit.expression)}"


def _query(insert: _Insert, source: exp.Expression) -> str:
    query = masked(insert.queries.subquery(source, insert.scope))
    _check_count(insert, len(query.columns), "SELECT")
    for column in insert.columns:
        modifying.check_assignable(insert.table, column, insert=True)
    pairs = list(zip(query.columns, insert.columns, strict=True))
    cells = [modifying.assigned_column(own, "s", column) for own, column in pairs]
    # No cell needs a conversion: the query can be inserted as it is.
    if all(cell == f"s.{own.sql}" for cell, (own, _) in zip(cells, pairs, strict=True)):
        return query.sql
    return select_from(", ".join(cells), f"({query.sql}) AS s")


def _values(insert: _Insert, source: exp.Values) -> str:
    expressions = ExpressionTranslator(insert.queries.emission, insert.scope, insert.queries)
    check_row_count(len(source.expressions))
    rows: list[str] = []
    for row in source.expressions:
        items = row.expressions
        _check_count(insert, len(items), "VALUES")
        cells = [_cell(expressions, item, insert.table, c) for item, c in zip(items, insert.columns, strict=True)]
        rows.append(", ".join(cells))
    # All rows are alike, so one row of expressions over unnest covers them.
    if insert.queries.emission.is_folded:
        return select_from(rows[0], _folded_rows(insert.queries))
    return "VALUES " + ", ".join(f"({row})" for row in rows)


def _cell(expressions: ExpressionTranslator, item: exp.Expression, table: CatalogObject, column: CatalogColumn) -> str:
    default = is_default(item)
    blank = default or isinstance(item, exp.Null)
    modifying.check_assignable(table, column, insert=True, default=blank)
    # A rowversion column takes DEFAULT or NULL; the trigger fills it either way.
    if default or (blank and column.type.name == "rowversion"):
        # The folded form is a SELECT, where DEFAULT is no expression.
        return "DEFAULT" if not expressions.emission.is_folded else "NULL"
    return modifying.assigned(expressions.value(item), column)


def _folded_rows(queries: QueryTranslator) -> str:
    """The rows of a folded INSERT: one array a column."""
    emission = queries.emission
    ordinals = emission.folded_ordinals
    arrays = ", ".join(f"${i + 1}::{emission.folded_cast(ordinal)}[]" for i, ordinal in enumerate(ordinals))
    names = ", ".join(f"l{ordinal}" for ordinal in ordinals)
    return f"unnest({arrays}) AS {FOLDED_ROWS}({names})"


def _check_count(insert: _Insert, given: int, clause: str) -> None:
    """Raises 213 without a column list, 109 or 110 for VALUES, 120 or 121 for SELECT."""
    wanted = len(insert.columns)
    if given == wanted:
        return
    if not insert.listed:
        raise SqlServerError(213, "Column name or number of supplied values does not match table definition.")
    if clause == "SELECT":
        number, more = (120, "fewer") if given < wanted else (121, "more")
        message = f"The select list for the INSERT statement contains {more} items than the insert list."
        rule = "The number of SELECT values must match the number of INSERT columns."
    else:
        number, more = (109, "more") if given < wanted else (110, "fewer")
        message = " ".join(
            ("There are", more, "columns in the INSERT statement than values specified in the VALUES clause.")
        )
        rule = (
            "The number of values in the VALUES clause must match the number of columns specified in the INSERT"
            " statement."
        )
    raise SqlServerError(number, f"{message} {rule}", severity=15)
