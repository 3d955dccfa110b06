"""What INSERT, UPDATE, DELETE and MERGE share: the target table, assigned values, and the OUTPUT clause."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from sqlserver_emulator.engine.translate.conversion import ASSIGN, convert
from sqlserver_emulator.engine.translate.emission import Emission
from sqlserver_emulator.engine.translate.expressions import ExpressionTranslator
from sqlserver_emulator.engine.translate.queries import (
    Query,
    QueryTranslator,
    finished,
    named_projection,
    output_columns,
    output_name,
    starred,
)
from sqlserver_emulator.engine.translate.scope import Scope, Source, invalid_column, quote
from sqlserver_emulator.engine.translate.sources import resolve_table, table_columns, table_parts
from sqlserver_emulator.engine.translate.values import Value
from sqlserver_emulator.engine.translation import CatalogColumn, CatalogObject
from sqlserver_emulator.errors import NotSupportedByEmulatorError, SqlServerError
from sqlserver_emulator.types import TsqlType

INSERTED = "inserted"
DELETED = "deleted"
_ROWVERSION = "rowversion"
_ACTION_TYPE = TsqlType("nvarchar", 10)


def qualified_name(table: CatalogObject) -> str:
    return f"{quote(table.postgres_schema)}.{quote(table.postgres_name)}"


def column_sql(column: CatalogColumn) -> str:
    return quote(column.postgres_name or column.name)


def find_column(table: CatalogObject, name: str) -> CatalogColumn:
    """Raises 207."""
    exact = next((column for column in table.columns if column.name == name), None)
    folded = name.lower()
    found = exact or next((column for column in table.columns if column.name.lower() == folded), None)
    if found is None:
        raise invalid_column(name)
    return found


def target_table(queries: QueryTranslator, node: exp.Expression, statement: str) -> CatalogObject:
    """The table that is written to."""
    if not isinstance(node, exp.Table) or not isinstance(node.this, (exp.Identifier, exp.Parameter)):
        raise NotSupportedByEmulatorError(f"{statement} on anything but a table")
    return writable(resolve_table(queries, table_parts(node)))


def writable(table: CatalogObject) -> CatalogObject:
    """Raises 259 for a system view."""
    if table.kind == "S":
        raise SqlServerError(259, "Ad hoc updates to system catalogs are not allowed.")
    return table


def is_default(node: exp.Expression) -> bool:
    return isinstance(node, exp.Var) and node.name.upper() == "DEFAULT"


def check_assignable(table: CatalogObject, column: CatalogColumn, *, insert: bool, default: bool = False) -> None:
    """Raises 271 (computed), 272 and 273 (rowversion), 8102 (identity in UPDATE)."""
    if column.computed:
        raise SqlServerError(
            271,
            f'The column "{column.name}" cannot be modified because it is either a computed column or is the result of a'
            " UNION operator.",
        )
    if column.type.name == _ROWVERSION and not default:
        if insert:
            raise SqlServerError(
                273,
                "Cannot insert an explicit value into a timestamp column. Use INSERT with a column list to exclude the"
                " timestamp column, or insert a DEFAULT into the timestamp column.",
            )
        raise SqlServerError(272, "Cannot update a timestamp column.")
    if column.identity and not insert:
        raise SqlServerError(8102, f"Cannot update identity column '{column.name}'.")


def assigned(value: Value, column: CatalogColumn) -> str:
    """The value as it is stored in the column."""
    if value.is_null:
        return "NULL"
    if value.direct and value.type == column.type:
        return value.sql
    return convert(value, column.type, ASSIGN).sql


class OutputClause:
    """OUTPUT inserted.x, deleted.y … as RETURNING. ``source``: of UPDATE … FROM and MERGE, whose columns it may name."""

    def __init__(self, queries: QueryTranslator, table: CatalogObject, scope: Scope, *, can: Sequence[str]) -> None:
        self._queries = queries
        self._table = table
        self._scope = scope
        self._can = can

    def returning(self, node: exp.Expression | None) -> Query | None:
        """None when there is no OUTPUT. Raises for OUTPUT … INTO."""
        if node is None:
            return None
        if node.args.get("into"):
            raise NotSupportedByEmulatorError("OUTPUT ... INTO")
        scope = Scope(self._scope.parent, [*self._row_images(), *self._scope.sources], self._scope.ctes)
        expressions = ExpressionTranslator(self._queries.emission, scope, self._queries)
        names: list[str] = []
        values: list[Value] = []
        for item in node.expressions:
            for name, value in self._items(item, scope, expressions):
                names.append(name)
                values.append(value)
        projected = ", ".join(
            f"{finished(value)} AS {quote(output_name(name, i))}"
            for i, (name, value) in enumerate(zip(names, values, strict=True))
        )
        return Query(
            f" RETURNING WITH (OLD AS deleted, NEW AS inserted) {projected}", output_columns(names, values), values
        )

    def _items(self, item: exp.Expression, scope: Scope, expressions: ExpressionTranslator) -> list[tuple[str, Value]]:
        star = starred(item)
        if star is not None:
            return self._queries.expand_star(star, scope)
        name, expression = named_projection(item)
        if isinstance(expression, exp.Column) and expression.name.lower() == "$action":
            return [(name or "$action", Value("merge_action()::text", _ACTION_TYPE))]
        return [(name, expressions.value(expression))]

    def _row_images(self) -> list[Source]:
        columns = table_columns(self._table)
        return [Source(image, image, columns, optional=len(self._can) > 1) for image in self._can]


def note_identity(emission: Emission, table: CatalogObject) -> None:
    if any(column.identity for column in table.columns):
        emission.identity_of = table
