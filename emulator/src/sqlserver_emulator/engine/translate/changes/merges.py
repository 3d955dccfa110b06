"""MERGE, which PostgreSQL has too: conditions, actions and OUTPUT are translated one by one."""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from sqlserver_emulator.engine.translate.changes import modifying
from sqlserver_emulator.engine.translate.changes.updates import assigned_value, note_key_assignment
from sqlserver_emulator.engine.translate.expressions.clauses import is_default, refuse_clauses
from sqlserver_emulator.engine.translate.expressions.expression_translator import ExpressionTranslator
from sqlserver_emulator.engine.translate.expressions.scope import Scope, Source, quote
from sqlserver_emulator.engine.translate.queries.query_translator import QueryTranslator
from sqlserver_emulator.engine.translate.queries.sources import (
    SourceTranslator,
    resolve_table,
    table_columns,
    table_parts,
)
from sqlserver_emulator.engine.translation import CatalogObject
from sqlserver_emulator.errors import NotSupportedByEmulatorError, SqlServerError

_CLAUSES = {"this", "using", "on", "whens", "returning", "with_", "options"}


def translate_merge(queries: QueryTranslator, node: exp.Merge) -> modifying.Modification:
    """Translate a MERGE."""
    refuse_clauses(node, _CLAUSES, "MERGE")
    scope = Scope()
    with_ = queries.with_clause(node, scope)
    target = node.this
    if not isinstance(target, exp.Table):
        raise NotSupportedByEmulatorError("MERGE into anything but a table")
    refuse_clauses(target, {"this", "db", "catalog", "alias", "hints"}, "MERGE")
    table = modifying.writable(resolve_table(queries, table_parts(target)))
    if table.filters:
        raise NotSupportedByEmulatorError("MERGE into a table with a filter predicate")
    alias = target.args["alias"].name if target.args.get("alias") else table.name
    own = Source(quote(alias), alias, table_columns(table), table=table)
    if not target.args.get("alias"):
        own.schema, own.database = table.schema, table.database
    using = SourceTranslator(queries, scope).item(node.args["using"])
    # The target comes first among the sources, but only after USING was translated, which must not see it.
    scope.sources.insert(0, own)
    expressions = ExpressionTranslator(queries.emission, scope, queries)
    on = expressions.condition(node.args["on"])
    visible = _Visible(expressions, _seeing(queries, scope, [own]), _seeing(queries, scope, scope.sources[1:]))
    whens = " ".join(_when(queries, when, table, own, visible) for when in node.args["whens"].expressions)
    images = (modifying.INSERTED, modifying.DELETED)
    output = modifying.OutputClause(queries, table, scope, can=images)
    body = f"MERGE INTO {modifying.qualified_name(table)} AS {own.alias} USING {using} ON {on} {whens}"
    return output.complete(with_, body, node.args.get("returning"))


@dataclass(frozen=True, slots=True)
class _Visible:
    """The rows that an action sees: both rows where they match, else the one that there is."""

    both: ExpressionTranslator
    target: ExpressionTranslator
    source: ExpressionTranslator


def _seeing(queries: QueryTranslator, scope: Scope, sources: list[Source]) -> ExpressionTranslator:
    return ExpressionTranslator(queries.emission, Scope(scope.parent, sources, scope.ctes), queries)


def _when(queries: QueryTranslator, when: exp.Expression, table: CatalogObject, own: Source, visible: _Visible) -> str:
    if when.args.get("matched"):
        head, expressions = "WHEN MATCHED", visible.both
    elif when.args.get("source"):
        head, expressions = "WHEN NOT MATCHED BY SOURCE", visible.target
    else:
        head, expressions = "WHEN NOT MATCHED BY TARGET", visible.source
    condition = when.args.get("condition")
    if condition is not None:
        head += f" AND {expressions.condition(condition)}"
    then = when.args["then"]
    if isinstance(then, exp.Update):
        return f"{head} THEN UPDATE SET {_assignments(queries, then, table, own, expressions)}"
    if isinstance(then, exp.Insert):
        return f"{head} THEN {_insert(queries, then, table, expressions)}"
    if then.name.upper() == "DELETE":
        return f"{head} THEN DELETE"
    raise SqlServerError(102, f"Incorrect syntax near '{then.name}'.", severity=15)


def _assignments(
    queries: QueryTranslator, update: exp.Update, table: CatalogObject, own: Source, expressions: ExpressionTranslator
) -> str:
    refuse_clauses(update, {"expressions"}, "MERGE ... UPDATE")
    assignments: list[str] = []
    for item in update.expressions:
        if not isinstance(item, exp.EQ) or not isinstance(item.this, exp.Column):
            raise NotSupportedByEmulatorError("assigning a variable in MERGE")
        column = modifying.find_column(table, item.this.name)
        default = is_default(item.expression)
        modifying.check_assignable(table, column, insert=False, default=default)
        note_key_assignment(queries.emission, table, column)
        if default:
            assignments.append(f"{modifying.column_sql(column)} = DEFAULT")
            continue
        value = assigned_value(expressions, item, own.alias, table, column)
        assignments.append(f"{modifying.column_sql(column)} = {modifying.assigned(value, column)}")
    return ", ".join(assignments)


def _insert(
    queries: QueryTranslator, insert: exp.Insert, table: CatalogObject, expressions: ExpressionTranslator
) -> str:
    refuse_clauses(insert, {"this", "expression"}, "MERGE ... INSERT")
    modifying.note_identity(queries.emission, table)
    # An INSERT without a column list fills all columns but identity and computed ones.
    named = insert.this.expressions if isinstance(insert.this, exp.Tuple) else []
    columns = [modifying.find_column(table, item.name) for item in named]
    if not columns:
        columns = [column for column in table.columns if not column.identity and not column.computed]
    values = insert.expression
    if not values:
        return "INSERT DEFAULT VALUES"
    if len(values.expressions) != len(columns):
        raise SqlServerError(10709, "The number of columns for each row in a table value constructor must be the same.")
    cells: list[str] = []
    for item, column in zip(values.expressions, columns, strict=True):
        default = is_default(item)
        modifying.check_assignable(table, column, insert=True, default=default)
        cells.append("DEFAULT" if default else modifying.assigned(expressions.value(item), column))
    overriding = " OVERRIDING SYSTEM VALUE" if any(column.identity for column in columns) else ""
    names = ", ".join(modifying.column_sql(column) for column in columns)
    return " ".join((f"INSERT ({names}){overriding}", f"VALUES ({', '.join(cells)})"))
