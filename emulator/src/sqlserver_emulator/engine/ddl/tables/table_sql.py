"""A declared table as PostgreSQL's CREATE TABLE and ALTER TABLE clauses, and as a catalog object.

Owns what T-SQL types ask of their columns beyond the storage type: ranges, lengths, identity counters.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import sqlglot
from sqlglot import exp

from sqlserver_emulator.engine.ddl.reading.declarations import ColumnDeclaration, KeyDeclaration
from sqlserver_emulator.engine.ddl.scope import DdlScope
from sqlserver_emulator.engine.ddl.tables.counters import counter_of
from sqlserver_emulator.engine.ddl.tables.limits import check_limits
from sqlserver_emulator.engine.names import LENGTH_SUFFIX, RANGE_SUFFIX, postgres_name, quote
from sqlserver_emulator.engine.translation import CatalogColumn, CatalogObject
from sqlserver_emulator.errors import ConstraintError, NotSupportedByEmulatorError, SqlServerError
from sqlserver_emulator.system_types import BY_NAME
from sqlserver_emulator.system_types.others import SQL_VARIANT, VARIANT_VALUES
from sqlserver_emulator.system_types.record import BINARY
from sqlserver_emulator.types import TsqlType

_SYSTEM_COLUMNS = frozenset(("ctid", "xmin", "xmax", "cmin", "cmax", "tableoid"))
_ISNULL_OF_CONSTANT = re.compile(r"ISNULL\s*\([^()]+,\s*(?:N?'[^']*'|[-+]?[\d.]+|0x[0-9a-f]*)\s*\)$", re.IGNORECASE)
_FROM_TEXT = frozenset(
    f"to_{name}" for name in ("date", "time", "datetime", "datetime2", "smalldatetime", "datetimeoffset")
)
# The page of CAST and CONVERT: styles from 101 on are deterministic, but for these; of the others, 20 and 21 are.
_LANGUAGE_STYLES = frozenset((106, 107, 109, 113))
_SETTLED_STYLES = frozenset((20, 21))
NVARCHAR_FALLBACK = TsqlType("nvarchar", 4000)


@dataclass(frozen=True, slots=True)
class PlannedColumn:
    """A column on its way into a table. ``sql`` is its clause in CREATE TABLE or ADD COLUMN."""

    declaration: ColumnDeclaration
    column: CatalogColumn
    sql: str
    default_sql: str = ""
    sql_without_default: str = ""
    counter: str = ""
    """The sequence that a decimal identity column needs, as CREATE SEQUENCE says it."""


def column_name(name: str) -> str:
    """The PostgreSQL name: names of system columns are taken."""
    # Every PostgreSQL table has these columns, so no other column can have such a name.
    return f"{name}~" if name in _SYSTEM_COLUMNS else postgres_name(name)


def plan_columns(
    scope: DdlScope,
    table: CatalogObject,
    columns: Sequence[ColumnDeclaration],
    keys: Sequence[KeyDeclaration],
    first_id: int = 1,
) -> list[PlannedColumn]:
    """``table`` has the columns that exist already; the new ones are numbered from ``first_id`` on."""
    _refuse_repeated_names(table, columns)
    in_key = {c.name.lower() for key in keys if key.primary for c in key.columns}
    plain = [_catalog_column(scope, table, column, first_id + i, in_key) for i, column in enumerate(columns)]
    # Computed columns may use any column of the statement, so all plain ones are known first.
    declared = with_columns(table, [*table.columns, *plain])
    check_limits("CREATE TABLE" if first_id == 1 else "ALTER TABLE", table.name, declared.columns)
    return [_plan(scope, declared, declaration, column) for declaration, column in zip(columns, plain, strict=True)]


def with_columns(table: CatalogObject, columns: Sequence[CatalogColumn], key: Sequence[str] = ()) -> CatalogObject:
    """Return the table with these columns, and with this key where one is given."""
    return CatalogObject(
        table.object_id,
        table.database,
        table.schema,
        table.name,
        table.kind,
        table.postgres_schema,
        table.postgres_name,
        tuple(columns),
        tuple(key) or table.key_columns,
    )


def _refuse_repeated_names(table: CatalogObject, columns: Sequence[ColumnDeclaration]) -> None:
    seen = {c.name.lower() for c in table.columns}
    for column in columns:
        if column.name.lower() in seen:
            raise SqlServerError(
                2705,
                f"Column names in each table must be unique. Column name '{column.name}' in table '{table.name}' is "
                "specified more than once.",
                state=3,
            )
        seen.add(column.name.lower())


def _catalog_column(
    scope: DdlScope, table: CatalogObject, declaration: ColumnDeclaration, column_id: int, in_key: set[str]
) -> CatalogColumn:
    type_ = declaration.type or NVARCHAR_FALLBACK
    has_collation = BY_NAME[type_.name].has_collation
    if declaration.collation and not has_collation:
        raise SqlServerError(447, f"Expression type {type_.name} is invalid for COLLATE clause.", state=0)
    nullable = declaration.nullable if declaration.nullable is not None else True
    # These columns are NOT NULL without saying so.
    if declaration.identity or type_.name == "rowversion" or declaration.name.lower() in in_key:
        if declaration.nullable and declaration.name.lower() in in_key:
            message = f"Cannot define PRIMARY KEY constraint on nullable column in table '{table.name}'."
            raise ConstraintError(SqlServerError(8111, message))
        nullable = False
    return CatalogColumn(
        name=declaration.name,
        column_id=column_id,
        type=type_,
        nullable=nullable,
        identity=declaration.identity is not None,
        computed=bool(declaration.computed),
        has_default=declaration.default is not None,
        postgres_name=column_name(declaration.name),
        collation=scope.collation(declaration.collation, table) if has_collation else None,
    )


def _plan(
    scope: DdlScope, table: CatalogObject, declaration: ColumnDeclaration, column: CatalogColumn
) -> PlannedColumn:
    if declaration.computed:
        return _plan_computed(scope, table, declaration, column)
    head = [quote(column.postgres_name), scope.postgres_type(column.type)]
    tail = [] if column.nullable else ["NOT NULL"]
    tail += limit_clauses(column)
    identity, counter = counter_of(declaration, column, table)
    if identity:
        head.append(identity)
    default_sql = ""
    if declaration.default is not None:
        default_sql = scope.scalar(declaration.default.expression, column.type)
    default = [f"DEFAULT {default_sql}"] if default_sql else []
    with_default, without = " ".join([*head, *default, *tail]), " ".join([*head, *tail])
    return PlannedColumn(declaration, column, with_default, default_sql, without, counter)


def _plan_computed(
    scope: DdlScope, table: CatalogObject, declaration: ColumnDeclaration, column: CatalogColumn
) -> PlannedColumn:
    sql, type_, collation = scope.over_table(declaration.computed, table)
    if type_ is None:
        raise NotSupportedByEmulatorError(f"the computed column {declaration.name} AS ({declaration.computed})")
    if type_.name == SQL_VARIANT.name:
        raise NotSupportedByEmulatorError(VARIANT_VALUES)
    sql = _deterministic(sql, table)
    nullable = declaration.nullable is not False and not _is_never_null(declaration.computed, table)
    typed = CatalogColumn(
        column.name,
        column.column_id,
        type_,
        nullable,
        computed=True,
        postgres_name=column.postgres_name,
        collation=collation,
    )
    storage = scope.postgres_type(type_)
    clause = f"{quote(column.postgres_name)} {storage} GENERATED ALWAYS AS (CAST({sql} AS {storage})) STORED"
    return PlannedColumn(declaration, typed, clause)


def _deterministic(sql: str, table: CatalogObject) -> str:
    """Return the expression with conversions that PostgreSQL keeps, where their style settles them.

    Raises 1759 for one over another computed column.
    """
    tree = sqlglot.parse_one(sql, read="postgres")
    used = {column.name for column in tree.find_all(exp.Column)}
    for column in table.columns:
        if column.computed and column.postgres_name in used:
            message = f"Computed column '{column.name}' in table '{table.name}' is not allowed to be used in another"
            raise SqlServerError(1759, f"{message} computed-column definition.", state=0)
    settled = [call for call in tree.find_all(exp.Anonymous) if _settles(call)]
    for call in settled:
        call.set("this", f"fixed_{call.name}")
    return str(tree.sql(dialect="postgres")) if settled else sql


def _settles(call: exp.Anonymous) -> bool:
    """Whether it converts a string to a date or time in a style that does not depend on the language."""
    is_own = isinstance(call.parent, exp.Dot) and call.parent.this.name == "tsql"
    style = call.expressions[-1] if call.expressions else None
    if not is_own or call.name.removeprefix("try_") not in _FROM_TEXT or not isinstance(style, exp.Literal):
        return False
    number = int(style.name)
    return number in _SETTLED_STYLES or (number > 100 and number not in _LANGUAGE_STYLES)


def _is_never_null(expression: str, table: CatalogObject) -> bool:
    """A column that is not, or ISNULL with a constant; anything else may overflow, says the documentation."""
    text = expression.strip()
    while text.startswith("(") and text.endswith(")"):
        text = text[1:-1].strip()
    if _ISNULL_OF_CONSTANT.match(text):
        return True
    name = text.strip("[]").lower()
    return any(column.name.lower() == name and not column.nullable for column in table.columns)


def limit_clauses(column: CatalogColumn) -> list[str]:
    """Limits of the T-SQL type that its storage type does not have."""
    name = quote(column.postgres_name)
    if column.type.name == "tinyint":
        return [f"CONSTRAINT {quote(limit_name(column, RANGE_SUFFIX))} CHECK ({name} BETWEEN 0 AND 255)"]
    if BY_NAME[column.type.name].family == BINARY and column.type.length > 0:
        limit = f"octet_length({name}) <= {column.type.length}"
        return [f"CONSTRAINT {quote(limit_name(column, LENGTH_SUFFIX))} CHECK ({limit})"]
    return []


def limit_name(column: CatalogColumn, suffix: str) -> str:
    """Return the name of the CHECK constraint that limits a column."""
    # The suffix is how an error report is recognised (``errors_map``), so it must survive the cut to 63 bytes.
    return postgres_name(f"{column.column_id}~{column.name}")[:50] + suffix
