"""UPDATE and DELETE, with FROM, TOP and OUTPUT.

`UPDATE o SET … FROM Orders o JOIN …` names its target among the sources; PostgreSQL wants it outside. With inner joins
only, the target is taken out and the join conditions become part of WHERE, so that a row which another transaction
changes meanwhile is checked again and not missed. With outer joins the target is joined to itself by its row address.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from sqlserver_emulator.engine.translate import modifying
from sqlserver_emulator.engine.translate.dialect import ASSIGN as COMPOUND
from sqlserver_emulator.engine.translate.expressions import ExpressionTranslator
from sqlserver_emulator.engine.translate.operators import binary
from sqlserver_emulator.engine.translate.queries import (
    Query,
    QueryTranslator,
    refuse_clauses,
    row_count,
    top_with_ties,
)
from sqlserver_emulator.engine.translate.scope import Scope, Source, quote
from sqlserver_emulator.engine.translate.sources import SourceTranslator, resolve_table, table_columns, table_parts
from sqlserver_emulator.engine.translation import CatalogColumn, CatalogObject
from sqlserver_emulator.errors import NotSupportedByEmulatorError, SqlServerError

_UPDATE_CLAUSES = {"this", "expressions", "from_", "where", "returning", "with_", "limit", "options"}
_DELETE_CLAUSES = {"this", "using", "where", "returning", "with_", "limit", "options"}


@dataclass(slots=True)
class _Target:
    """The table to change, its alias, the other sources (SQL of FROM/USING or '') and what joins them to the target."""

    table: CatalogObject
    alias: str
    sources: str
    conditions: list[str]
    scope: Scope


def translate_update(queries: QueryTranslator, node: exp.Update) -> tuple[str, Query | None]:
    refuse_clauses(node, _UPDATE_CLAUSES, "UPDATE")
    scope = Scope()
    with_ = queries.with_clause(node, scope)
    target = _target(queries, node.this, node.args.get("from_"), scope, "UPDATE")
    expressions = ExpressionTranslator(queries.emission, target.scope, queries)
    assignments = [_assignment(expressions, target, item, queries) for item in node.expressions]
    where = _where(queries, node, target, expressions)
    output = modifying.OutputClause(
        queries, target.table, target.scope, can=(modifying.INSERTED, modifying.DELETED)
    ).returning(node.args.get("returning"))
    sources = f" FROM {target.sources}" if target.sources else ""
    sql = (
        f"{with_}UPDATE {modifying.qualified_name(target.table)} AS {target.alias} SET {', '.join(assignments)}"
        f"{sources}{where}{output.sql if output is not None else ''}"
    )
    return sql, output


def translate_delete(queries: QueryTranslator, node: exp.Delete) -> tuple[str, Query | None]:
    refuse_clauses(node, _DELETE_CLAUSES, "DELETE")
    scope = Scope()
    with_ = queries.with_clause(node, scope)
    target = _target(queries, node.this, node.args.get("using"), scope, "DELETE")
    expressions = ExpressionTranslator(queries.emission, target.scope, queries)
    where = _where(queries, node, target, expressions)
    output = modifying.OutputClause(queries, target.table, target.scope, can=(modifying.DELETED,)).returning(
        node.args.get("returning")
    )
    sources = f" USING {target.sources}" if target.sources else ""
    sql = (
        f"{with_}DELETE FROM {modifying.qualified_name(target.table)} AS {target.alias}{sources}{where}"
        f"{output.sql if output is not None else ''}"
    )
    return sql, output


def _assignment(
    expressions: ExpressionTranslator, target: _Target, item: exp.Expression, queries: QueryTranslator
) -> str:
    if not isinstance(item, exp.EQ) or not isinstance(item.this, exp.Column):
        raise NotSupportedByEmulatorError("assigning a variable in UPDATE ... SET")
    column = modifying.find_column(target.table, item.this.name)
    default = modifying.is_default(item.expression)
    modifying.check_assignable(target.table, column, insert=False, default=default)
    note_key_assignment(queries, target.table, column)
    if default:
        return f"{modifying.column_sql(column)} = DEFAULT"
    value = expressions.value(item.expression)
    operator = item.meta.get(COMPOUND)
    if operator:
        own = Source(target.alias, "", table_columns(target.table))
        current = own.column(column.name)
        assert current is not None
        value = binary(operator, own.value(current), value)
    return f"{modifying.column_sql(column)} = {modifying.assigned(value, column)}"


def note_key_assignment(queries: QueryTranslator, table: CatalogObject, column: CatalogColumn) -> None:
    if column.name in table.key_columns:
        queries.emission.deferred_update_of = table


def _target(
    queries: QueryTranslator, node: exp.Expression, from_: exp.Expression | None, scope: Scope, statement: str
) -> _Target:
    if not isinstance(node, exp.Table):
        raise NotSupportedByEmulatorError(f"{statement} on anything but a table")
    refuse_clauses(node, {"this", "db", "catalog", "hints", "alias"}, statement)
    parts = table_parts(node)
    if scope.cte(parts[0]) is not None and len(parts) == 1 and from_ is None:
        raise NotSupportedByEmulatorError(f"{statement} through a common table expression")
    if from_ is None:
        return _alone(queries, parts, scope)
    items = _flatten(from_)
    inner = all(_is_inner(join) for join in items[1:])
    position = _position(queries, parts, items, scope)
    if position is None:
        target = _alone(queries, parts, scope)
        target.sources = SourceTranslator(queries, target.scope).joined(from_.this, [])
        return target
    if inner:
        return _taken_out(queries, items, position, scope)
    return _joined_to_itself(queries, from_, items, position, scope)


def _alone(queries: QueryTranslator, parts: tuple[str, ...], scope: Scope) -> _Target:
    table = modifying.writable(resolve_table(queries, parts))
    source = Source(quote(table.name), table.name, table_columns(table), table.schema, table.database, table)
    scope.sources.append(source)
    return _Target(table, source.alias, "", [], scope)


def _flatten(from_: exp.Expression) -> list[exp.Expression]:
    """The first source and the joins of a FROM clause."""
    return [from_.this, *(from_.this.args.get("joins") or [])]


def _is_inner(join: exp.Expression) -> bool:
    lateral = isinstance(join.this, exp.Lateral) and not join.this.args.get("cross_apply")
    return not join.args.get("side") and not join.this.args.get("joins") and not lateral


def _source_node(item: exp.Expression) -> exp.Expression:
    source: exp.Expression = item.this if isinstance(item, exp.Join) else item
    return source


def _position(
    queries: QueryTranslator, parts: tuple[str, ...], items: list[exp.Expression], scope: Scope
) -> int | None:
    """Which source of FROM is the target: by its alias, else the first that is the same table without an alias."""
    by_table: int | None = None
    for i, item in enumerate(items):
        node = _source_node(item)
        if not isinstance(node, exp.Table) or not isinstance(node.this, (exp.Identifier, exp.Parameter)):
            continue
        alias = node.args.get("alias")
        if alias is not None and len(parts) == 1 and alias.name.lower() == parts[0].lower():
            return i
        if by_table is None and alias is None and not (len(table_parts(node)) == 1 and scope.cte(node.name)):
            found = resolve_table(queries, table_parts(node))
            if found.name.lower() == parts[-1].lower() and found == resolve_table(queries, parts):
                by_table = i
    return by_table


def _taken_out(queries: QueryTranslator, items: list[exp.Expression], position: int, scope: Scope) -> _Target:
    node = _source_node(items[position])
    table = modifying.writable(resolve_table(queries, table_parts(node)))
    alias = node.args["alias"].name if node.args.get("alias") else table.name
    source = Source(quote(alias), alias, table_columns(table), table=table)
    if not node.args.get("alias"):
        source.schema, source.database = table.schema, table.database
    scope.sources.append(source)
    translator = SourceTranslator(queries, scope)
    others = [translator.item(_source_node(item)) for i, item in enumerate(items) if i != position]
    expressions = ExpressionTranslator(queries.emission, scope, queries)
    conditions = [
        expressions.condition(item.args["on"]) for item in items if isinstance(item, exp.Join) and item.args.get("on")
    ]
    return _Target(table, source.alias, ", ".join(others), conditions, scope)


def _joined_to_itself(
    queries: QueryTranslator, from_: exp.Expression, items: list[exp.Expression], position: int, scope: Scope
) -> _Target:
    node = _source_node(items[position])
    table = modifying.writable(resolve_table(queries, table_parts(node)))
    sources = SourceTranslator(queries, scope).joined(from_.this, [])
    name = (node.args["alias"].name if node.args.get("alias") else table.name).lower()
    inner = next(source for source in scope.sources if source.name.lower() == name)
    alias = queries.emission.new_name()
    return _Target(table, alias, sources, [f"{alias}.ctid = {inner.alias}.ctid"], scope)


def _where(queries: QueryTranslator, node: exp.Expression, target: _Target, expressions: ExpressionTranslator) -> str:
    where = node.args.get("where")
    conditions = [*target.conditions, *([expressions.condition(where.this)] if where else [])]
    limit = node.args.get("limit")
    if limit is None:
        return f" WHERE {' AND '.join(conditions)}" if conditions else ""
    if target.sources:
        raise NotSupportedByEmulatorError("TOP in UPDATE or DELETE with FROM")
    if top_with_ties(limit):
        raise SqlServerError(102, "Incorrect syntax near 'TIES'.", severity=15)
    inner = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    rows = (
        f"SELECT {target.alias}.ctid FROM {modifying.qualified_name(target.table)} AS {target.alias}{inner}"
        f" LIMIT {row_count(expressions, limit.expression)} FOR UPDATE"
    )
    return f" WHERE {target.alias}.ctid = ANY (ARRAY({rows}))"
