"""Parts that INSERT, UPDATE, DELETE and MERGE share: the target table, assigned values, and the OUTPUT clause."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from sqlserver_emulator.engine.translate.expressions.clauses import named_projection, select_from, starred
from sqlserver_emulator.engine.translate.expressions.emission import Emission
from sqlserver_emulator.engine.translate.expressions.expression_translator import ExpressionTranslator
from sqlserver_emulator.engine.translate.expressions.rows import Query, output_columns, projected
from sqlserver_emulator.engine.translate.expressions.scope import Scope, Source, SourceColumn, invalid_column, quote
from sqlserver_emulator.engine.translate.queries.query_translator import QueryTranslator
from sqlserver_emulator.engine.translate.queries.sources import resolve_table, table_columns, table_parts
from sqlserver_emulator.engine.translate.values.conversion import ASSIGN, convert
from sqlserver_emulator.engine.translate.values.value import Value, null, suggest
from sqlserver_emulator.engine.translation import READ_ONLY, SYSTEM, CatalogColumn, CatalogObject
from sqlserver_emulator.errors import NotSupportedByEmulatorError, SqlServerError
from sqlserver_emulator.types import TsqlType

INSERTED = "inserted"
DELETED = "deleted"
IMAGES = "RETURNING WITH (OLD AS deleted, NEW AS inserted)"
_ROWVERSION = "rowversion"
_ACTION_TYPE = TsqlType("nvarchar", 10)


@dataclass(frozen=True, slots=True)
class Modification:
    """A translated INSERT, UPDATE, DELETE or MERGE. output: the columns it returns, None when it returns none."""

    sql: str
    output: list[SourceColumn] | None = None
    assigned_variables: tuple[str, ...] = ()


def qualified_name(table: CatalogObject) -> str:
    """Return the table's quoted PostgreSQL name with its schema."""
    return f"{quote(table.postgres_schema)}.{quote(table.postgres_name)}"


def column_sql(column: CatalogColumn) -> str:
    """Return the column's quoted PostgreSQL name."""
    return quote(column.postgres_name or column.name)


def find_column(table: CatalogObject, name: str) -> CatalogColumn:
    """Raises 207."""
    exact = next((column for column in table.columns if column.name == name), None)
    folded = name.lower()
    found = exact or next((column for column in table.columns if column.name.lower() == folded), None)
    if found is None:
        raise invalid_column(name)
    return found


def check_distinct(columns: Sequence[CatalogColumn]) -> None:
    """Raises 264."""
    seen: set[int] = set()
    for column in columns:
        if column.column_id in seen:
            raise SqlServerError(
                264,
                f"The column name '{column.name}' is specified more than once in the SET clause or column list of an"
                " INSERT. A column cannot be assigned more than one value in the same clause.",
            )
        seen.add(column.column_id)


def target_table(queries: QueryTranslator, node: exp.Expression, statement: str) -> CatalogObject:
    """The table that is written to."""
    if not isinstance(node, exp.Table) or not isinstance(node.this, (exp.Identifier, exp.Parameter)):
        raise NotSupportedByEmulatorError(f"{statement} on anything but a table")
    return writable(resolve_table(queries, table_parts(node)))


def writable(table: CatalogObject) -> CatalogObject:
    """Raises 259 for a system view, 10700 for a table-valued parameter."""
    if table.kind == READ_ONLY:
        message = f'The table-valued parameter "{table.name}" is READONLY and cannot be modified.'
        raise SqlServerError(10700, message)
    if table.kind == SYSTEM:
        raise SqlServerError(259, "Ad hoc updates to system catalogs are not allowed.")
    return table


def check_assignable(table: CatalogObject, column: CatalogColumn, *, insert: bool, default: bool = False) -> None:
    """Raises 271 (computed), 272 and 273 (rowversion), 8102 (identity in UPDATE)."""
    if column.computed:
        message = f'The column "{column.name}" cannot be modified because it is either a computed column'
        raise SqlServerError(271, f"{message} or is the result of a UNION operator.")
    # DEFAULT may be given: the trigger stamps the row in any case.
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
        suggest(value, column.type)
        return "NULL"
    # A plain column of the same type has been checked when it was stored.
    if value.direct and value.type == column.type:
        return value.sql
    return convert(value, column.type, ASSIGN).sql


def assigned_column(own: SourceColumn, alias: str, column: CatalogColumn) -> str:
    """A query's column as it is stored in a table's column."""
    value = null() if own.untyped else Value(f"{alias}.{own.sql}", own.type, direct=own.direct)
    return assigned(value, column)


class OutputClause:
    """OUTPUT inserted.x, deleted.y … as RETURNING; INTO sends the rows to a table. ``can``: which images there are."""

    def __init__(self, queries: QueryTranslator, table: CatalogObject, scope: Scope, *, can: Sequence[str]) -> None:
        self._queries = queries
        self._table = table
        self._scope = scope
        self._can = can

    def complete(self, with_: str, body: str, node: exp.Expression | None) -> Modification:
        """The whole statement: ``body`` with its WITH clause and with OUTPUT, if there is one."""
        if node is None:
            return Modification(with_ + body)
        read = [column.mask for source in self._scope.sources for column in source.columns or ()]
        if any(read) or any(column.mask for column in self._table.columns):
            raise NotSupportedByEmulatorError("OUTPUT from tables with masked columns, for a login without UNMASK")
        output = self._returning(node)
        body = f"{body} {output.sql}"
        if not node.args.get("into"):
            return Modification(with_ + body, output.columns)
        name = self._queries.emission.new_name()
        # RETURNING cannot write to a table; a CTE that modifies can feed an INSERT.
        head = f"{with_.rstrip()}, " if with_ else "WITH "
        return Modification(f"{head}{name} AS ({body}) {self._insert(node.args['into'], name, output)}")

    def _returning(self, node: exp.Expression) -> Query:
        scope = Scope(self._scope.parent, [*self._row_images(), *self._scope.sources], self._scope.ctes)
        expressions = ExpressionTranslator(self._queries.emission, scope, self._queries)
        names: list[str] = []
        values: list[Value] = []
        for item in node.expressions:
            for name, value in self._items(item, scope, expressions):
                names.append(name)
                values.append(value)
        columns = output_columns(names, values)
        return Query(f"{IMAGES} {projected(columns, values)}", columns, values)

    def _insert(self, into: exp.Expression, name: str, output: Query) -> str:
        listed = [item.name for item in into.expressions] if isinstance(into, exp.Schema) else []
        table = target_table(self._queries, into.this if listed else into, "OUTPUT ... INTO")
        # Without a column list the identity column of the target is left out, as in INSERT.
        columns = [find_column(table, item) for item in listed] or [c for c in table.columns if not c.identity]
        check_distinct(columns)
        if len(columns) != len(output.columns):
            raise SqlServerError(213, "Column name or number of supplied values does not match table definition.")
        cells = [assigned_column(own, name, column) for own, column in zip(output.columns, columns, strict=True)]
        names = ", ".join(column_sql(column) for column in columns)
        return f"INSERT INTO {qualified_name(table)} ({names}) {select_from(', '.join(cells), name)}"

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
        # Where there are two images (MERGE), one may be missing, so its columns can be NULL.
        return [Source(image, image, columns, optional=len(self._can) > 1) for image in self._can]


def note_identity(emission: Emission, table: CatalogObject) -> None:
    """Note that the statement inserts into a table with an identity column."""
    if any(column.identity for column in table.columns):
        emission.identity_of = table
