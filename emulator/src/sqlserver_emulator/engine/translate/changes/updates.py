"""UPDATE and DELETE, with FROM, TOP and OUTPUT.

`UPDATE o SET … FROM Orders o JOIN …` names its target among the sources; PostgreSQL wants it outside. With inner joins
only, the target is taken out and the join conditions become part of WHERE, so that a row which another transaction
changes meanwhile is checked again and not missed. With outer joins the target is joined to itself by its row address.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from sqlglot import exp

from sqlserver_emulator.engine.translate.changes import modifying
from sqlserver_emulator.engine.translate.changes.assignments import assigned_type
from sqlserver_emulator.engine.translate.changes.derived_targets import ADDRESS, DerivedTarget, find_derived_target
from sqlserver_emulator.engine.translate.expressions.clauses import (
    is_default,
    is_percent,
    refuse_clauses,
    select_from,
    top_with_ties,
)
from sqlserver_emulator.engine.translate.expressions.emission import Emission
from sqlserver_emulator.engine.translate.expressions.expression_translator import ExpressionTranslator, variable_name
from sqlserver_emulator.engine.translate.expressions.scope import Scope, Source, SourceColumn, invalid_column, quote
from sqlserver_emulator.engine.translate.lexical.dialect import ASSIGN as COMPOUND
from sqlserver_emulator.engine.translate.lexical.dialect import WRITE
from sqlserver_emulator.engine.translate.queries.query_translator import QueryTranslator, row_count
from sqlserver_emulator.engine.translate.queries.sources import (
    SourceTranslator,
    resolve_table,
    source_column,
    table_columns,
    table_parts,
)
from sqlserver_emulator.engine.translate.values.conversion import ASSIGN as ASSIGNED
from sqlserver_emulator.engine.translate.values.conversion import EXPLICIT, convert
from sqlserver_emulator.engine.translate.values.operators import binary
from sqlserver_emulator.engine.translate.values.value import Value
from sqlserver_emulator.engine.translation import FILTERED_ROW, CatalogColumn, CatalogObject
from sqlserver_emulator.errors import NotSupportedByEmulatorError, SqlServerError
from sqlserver_emulator.types import BIGINT

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
    derived: DerivedTarget | None = None

    def column(self, name: str) -> CatalogColumn:
        """The column of the table that SET means by ``name``. Raises 207."""
        if self.derived is None:
            return modifying.find_column(self.table, name)
        origin = self.derived.origins.get(name.lower())
        if origin is None:
            raise invalid_column(name)
        return modifying.find_column(self.table, origin)


def translate_update(queries: QueryTranslator, node: exp.Update) -> modifying.Modification:
    """Translate an UPDATE."""
    refuse_clauses(node, _UPDATE_CLAUSES, "UPDATE")
    scope = Scope()
    assigned = [item.this.name for item in node.expressions if isinstance(item.this, exp.Column)]
    derived = find_derived_target(node, "from_", assigned, partial(resolve_table, queries))
    # After the target is exposed: the WITH clause is translated with the added address column.
    with_ = queries.with_clause(node, scope)
    if derived is not None:
        target = _through(queries, derived, node.args["from_"], scope)
    else:
        target = _target(queries, node.this, node.args.get("from_"), scope, "UPDATE")
    expressions = ExpressionTranslator(queries.emission, target.scope, queries)
    variables: list[tuple[str, str]] = []
    assignments = [_assignment(expressions, target, item, variables) for item in node.expressions]
    sources = f"FROM {target.sources}" if target.sources else ""
    parts = (
        f"UPDATE {modifying.qualified_name(target.table)} AS {target.alias}",
        f"SET {', '.join(item for item in assignments if item)}",
        sources,
        _where(queries, node, target, expressions),
    )
    body = " ".join(part for part in parts if part)
    if variables:
        return _assigning(with_, body, node, assignments, variables)
    images = (modifying.INSERTED, modifying.DELETED)
    output = modifying.OutputClause(queries, target.table, target.scope, can=images)
    return output.complete(with_, body, node.args.get("returning"))


def translate_delete(queries: QueryTranslator, node: exp.Delete) -> modifying.Modification:
    """Translate a DELETE."""
    refuse_clauses(node, _DELETE_CLAUSES, "DELETE")
    scope = Scope()
    derived = find_derived_target(node, "using", (), partial(resolve_table, queries))
    with_ = queries.with_clause(node, scope)
    if derived is not None:
        target = _through(queries, derived, node.args["using"], scope)
    else:
        target = _target(queries, node.this, node.args.get("using"), scope, "DELETE")
    expressions = ExpressionTranslator(queries.emission, target.scope, queries)
    parts = (
        "DELETE FROM",
        f"{modifying.qualified_name(target.table)} AS {target.alias}",
        f"USING {target.sources}" if target.sources else "",
        _where(queries, node, target, expressions),
    )
    output = modifying.OutputClause(queries, target.table, target.scope, can=(modifying.DELETED,))
    return output.complete(with_, " ".join(part for part in parts if part), node.args.get("returning"))


def _assigning(
    with_: str, body: str, node: exp.Update, assignments: list[str], variables: list[tuple[str, str]]
) -> modifying.Modification:
    """UPDATE … SET @x = …: the variables come back as the row that was changed."""
    if node.args.get("returning") or not any(assignments):
        raise NotSupportedByEmulatorError("UPDATE that assigns variables, with OUTPUT or without a column")
    # RETURNING gives the values as columns named like the variables.
    returned = ", ".join(f"{sql} AS {quote(name)}" for name, sql in variables)
    names = tuple(name for name, _ in variables)
    columns = [SourceColumn(name, quote(name), None) for name in names]
    return modifying.Modification(f"{with_}{body} {modifying.IMAGES} {returned}", columns, names)


def _assignment(
    expressions: ExpressionTranslator, target: _Target, item: exp.Expression, variables: list[tuple[str, str]]
) -> str:
    """One item of SET; '' for `@x = …`, which goes to ``variables`` with what RETURNING gives for it."""
    if isinstance(item.this, exp.Parameter):
        return _variable(expressions, target, item, variables)
    if not isinstance(item, exp.EQ) or not isinstance(item.this, exp.Column):
        raise NotSupportedByEmulatorError("this kind of assignment in UPDATE ... SET")
    column = target.column(item.this.name)
    default = is_default(item.expression)
    # An assignment of DEFAULT is allowed where a value is not (rowversion).
    modifying.check_assignable(target.table, column, insert=False, default=default)
    note_key_assignment(expressions.emission, target.table, column)
    if default:
        return f"{modifying.column_sql(column)} = DEFAULT"
    value = assigned_value(expressions, item, target.alias, target.table, column)
    return f"{modifying.column_sql(column)} = {modifying.assigned(value, column)}"


def assigned_value(
    expressions: ExpressionTranslator, item: exp.Expression, alias: str, table: CatalogObject, column: CatalogColumn
) -> Value:
    """The right side of `column = value`, or of `column += value` together with the column."""
    if isinstance(item.expression, exp.Anonymous) and item.expression.name.upper() == WRITE:
        return _written(expressions, item.expression, alias, table, column)
    operator = item.meta.get(COMPOUND)
    value = expressions.value(item.expression)
    current = Source(alias, "", table_columns(table)).column(column.name)
    if not operator or current is None:
        return value
    return binary(operator, Source(alias, "", None).value(current), value)


def _written(
    expressions: ExpressionTranslator, call: exp.Anonymous, alias: str, table: CatalogObject, column: CatalogColumn
) -> Value:
    """`column.WRITE(value, offset, length)`: the column with a part of it replaced. Raises 8137 for other columns."""
    if not column.type.is_max:
        message = f"Incorrect use of the WRITE method on the column '{column.name}' of type {column.type.name}."
        raise SqlServerError(8137, message)
    if len(call.expressions) != 3:
        raise SqlServerError(102, "Incorrect syntax near ')'.", severity=15)
    current = Source(alias, "", table_columns(table)).value(source_column(column))
    value = convert(expressions.value(call.expressions[0]), column.type, ASSIGNED)
    offset, length = (expressions.converted(node, BIGINT) for node in call.expressions[1:])
    return Value(f"tsql.write_part({current.sql}, {value.sql}, {offset}, {length})", column.type)


def _variable(
    expressions: ExpressionTranslator, target: _Target, item: exp.Expression, variables: list[tuple[str, str]]
) -> str:
    name = variable_name(item.this)
    type = assigned_type(expressions.emission, name)
    if item.meta.get(COMPOUND):
        raise NotSupportedByEmulatorError("a compound assignment of a variable in UPDATE ... SET")
    inner = item.expression
    if isinstance(inner, exp.EQ):  # @x = column = value: the new value
        sql = _assignment(expressions, target, inner, variables)
        column = modifying.find_column(target.table, inner.this.name)
        value = Source(modifying.INSERTED, "", table_columns(target.table)).value(source_column(column))
        variables.append((name, convert(value, type, EXPLICIT).sql))
        return sql
    # @x = expression: over the values before the change
    sources = [
        # PostgreSQL's ``old`` in RETURNING: the target's own alias would give the values after the change.
        Source(modifying.DELETED, s.name, s.columns, s.schema, s.database, s.table) if s.alias == target.alias else s
        for s in target.scope.sources
    ]
    before = ExpressionTranslator(
        expressions.emission, Scope(target.scope.parent, sources, target.scope.ctes), expressions.queries
    )
    variables.append((name, convert(before.value(inner), type, EXPLICIT).sql))
    return ""


def note_key_assignment(emission: Emission, table: CatalogObject, column: CatalogColumn) -> None:
    """Note an assigned column, and that the update is a deferred one where it is a key column."""
    emission.assigned_columns.add(column.name.lower())
    if table.is_tracked:
        emission.assigned_ids.append(column.column_id)
    # Changed key columns are what makes SQL Server log an update as delete and insert (``session.deferred``).
    if column.name in table.key_columns:
        emission.deferred_update_of = table


def _target(
    queries: QueryTranslator, node: exp.Expression, from_: exp.Expression | None, scope: Scope, statement: str
) -> _Target:
    if not isinstance(node, exp.Table):
        raise NotSupportedByEmulatorError(f"{statement} on anything but a table")
    refuse_clauses(node, {"this", "db", "catalog", "hints", "alias"}, statement)
    parts = table_parts(node)
    if from_ is None:
        return _alone(queries, parts, scope)
    items = _flatten(from_)
    inner = all(_is_inner(join) for join in items[1:])
    position = _position(queries, parts, items, scope)
    if position is None:
        # FROM does not name the target: the sources are joined to it without a condition, as T-SQL does.
        target = _alone(queries, parts, scope)
        target.sources = SourceTranslator(queries, target.scope).joined(from_.this, [])
        return target
    if inner:
        return _taken_out(queries, items, position, scope)
    return _joined_to_itself(queries, from_, items, position, scope)


def _through(queries: QueryTranslator, derived: DerivedTarget, from_: exp.Expression, scope: Scope) -> _Target:
    """The table below the query, joined to it by the row's address; the statement speaks of the query's columns."""
    sources = SourceTranslator(queries, scope).joined(from_.this, [])
    inner = next(source for source in scope.sources if source.name.lower() == derived.name.lower())
    alias = queries.emission.new_name()
    # ctid addresses the row version that the query has read; both parts share one snapshot.
    condition = f"{alias}.ctid = {inner.alias}.{quote(ADDRESS)}"
    return _Target(modifying.writable(derived.table), alias, sources, [condition], scope, derived)


def _alone(queries: QueryTranslator, parts: tuple[str, ...], scope: Scope) -> _Target:
    table = modifying.writable(resolve_table(queries, parts))
    source = Source(quote(table.name), table.name, table_columns(table), table.schema, table.database, table)
    scope.sources.append(source)
    return _Target(table, source.alias, "", [], scope)


def _flatten(from_: exp.Expression) -> list[exp.Expression]:
    """The first source and the joins of a FROM clause."""
    return [from_.this, *(from_.this.args.get("joins") or [])]


def _is_inner(join: exp.Expression) -> bool:
    # What APPLY reads of the target has to be with it in FROM: PostgreSQL's UPDATE does not offer its own row there.
    return not join.args.get("side") and not join.this.args.get("joins") and not isinstance(join.this, exp.Lateral)


def _source_node(item: exp.Expression) -> exp.Expression:
    source: exp.Expression = item.this if isinstance(item, exp.Join) else item
    return source


def _position(
    queries: QueryTranslator, parts: tuple[str, ...], items: list[exp.Expression], scope: Scope
) -> int | None:
    """Which source of FROM is the target: by its alias, else the first that is the same table without an alias, else
    the only one that is the same table with one. Raises 8154."""
    by_table: int | None = None
    by_alias: list[int] = []
    for i, item in enumerate(items):
        node = _source_node(item)
        if not isinstance(node, exp.Table) or not isinstance(node.this, (exp.Identifier, exp.Parameter)):
            continue
        alias = node.args.get("alias")
        if alias is not None and len(parts) == 1 and alias.name.lower() == parts[0].lower():
            return i
        # A one-part name that is a CTE of the statement is no table.
        if by_table is None and not (len(table_parts(node)) == 1 and scope.cte(node.name)):
            found = resolve_table(queries, table_parts(node))
            if found.name.lower() != parts[-1].lower() or found != resolve_table(queries, parts):
                continue
            if alias is None:
                by_table = i
            else:
                by_alias.append(i)
    if by_table is None and len(by_alias) > 1:
        raise SqlServerError(8154, f"The table '{'.'.join(parts)}' is ambiguous.")
    return by_alias[0] if by_table is None and by_alias else by_table


def _taken_out(queries: QueryTranslator, items: list[exp.Expression], position: int, scope: Scope) -> _Target:
    node = _source_node(items[position])
    refuse_clauses(node, {"this", "db", "catalog", "alias", "hints", "joins"}, "FROM")
    table = modifying.writable(resolve_table(queries, table_parts(node)))
    alias = node.args["alias"].name if node.args.get("alias") else table.name
    source = Source(quote(alias), alias, table_columns(table), table=table)
    if not node.args.get("alias"):
        # Without an alias the target can also be named by its schema and table.
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
    # What a filter predicate hides is neither updated nor deleted.
    conditions += [condition.replace(FILTERED_ROW, target.alias) for condition in target.table.filters]
    joined = f"WHERE {' AND '.join(conditions)}" if conditions else ""
    limit = node.args.get("limit")
    if limit is None:
        return joined
    if is_percent(limit):
        raise NotSupportedByEmulatorError("TOP (n) PERCENT in UPDATE or DELETE")
    if top_with_ties(limit):
        raise SqlServerError(102, "Incorrect syntax near 'TIES'.", severity=15)
    if target.derived is not None:
        return _first_rows(target, conditions, row_count(expressions, limit.expression))
    if target.sources:
        joint = f"{modifying.qualified_name(target.table)} AS {target.alias}, {target.sources} {joined}"
        # No FOR UPDATE with DISTINCT: PostgreSQL refuses the two together.
        rows = f"{joint} LIMIT {row_count(expressions, limit.expression)}"
        chosen = f"{target.alias}.ctid = ANY (ARRAY({select_from(f'DISTINCT {target.alias}.ctid', rows)}))"
        return f"WHERE {' AND '.join([*conditions, chosen])}"
    # The rows are chosen and locked first; which ones is as undefined as in SQL Server.
    source = f"{modifying.qualified_name(target.table)} AS {target.alias} {joined}"
    rows = f"{source} LIMIT {row_count(expressions, limit.expression)} FOR UPDATE"
    return f"WHERE {target.alias}.ctid = ANY (ARRAY({select_from(f'{target.alias}.ctid', rows)}))"


def _first_rows(target: _Target, conditions: list[str], count: str) -> str:
    """TOP of a change through a query: the addresses of that many of its rows."""
    chosen = f"{target.sources} WHERE {' AND '.join(conditions[1:] or ['TRUE'])} LIMIT {count}"
    address = conditions[0].partition(" = ")[2]
    return f"WHERE {conditions[0]} AND {target.alias}.ctid = ANY (ARRAY({select_from(address, chosen)}))"
