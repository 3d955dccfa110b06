"""CHANGETABLE: the changes of a tracked table, or the newest change of one row, as functions made with the table."""

from __future__ import annotations

from sqlglot import exp

from sqlserver_emulator.collations import implicit
from sqlserver_emulator.engine.translate.expressions.expression_translator import ExpressionTranslator
from sqlserver_emulator.engine.translate.expressions.scope import SourceColumn
from sqlserver_emulator.engine.translate.lexical.dialect import ChangeTable, syntax_error
from sqlserver_emulator.engine.translate.values.conversion import ASSIGN, IMPLICIT, convert
from sqlserver_emulator.engine.translate.values.type_rules import storage_type
from sqlserver_emulator.engine.translate.values.value import Value
from sqlserver_emulator.engine.translation import CatalogColumn, CatalogObject
from sqlserver_emulator.errors import SqlServerError, not_tracked
from sqlserver_emulator.system_types import names_where
from sqlserver_emulator.system_types.record import TEMPORAL
from sqlserver_emulator.types import BIGINT, TsqlType

_MOMENTS = names_where(lambda type: type.family == TEMPORAL)
_VERSION = SourceColumn("SYS_CHANGE_VERSION", "version", BIGINT)
_CONTEXT = SourceColumn("SYS_CHANGE_CONTEXT", "context", TsqlType("varbinary", 128))
_CHANGES = (
    _VERSION,
    SourceColumn("SYS_CHANGE_CREATION_VERSION", "creation", BIGINT),
    SourceColumn("SYS_CHANGE_OPERATION", "operation", TsqlType("nchar", 1)),
    SourceColumn("SYS_CHANGE_COLUMNS", "columns", TsqlType("varbinary", 4100)),
    _CONTEXT,
)


def changetable_rows(
    expressions: ExpressionTranslator, node: ChangeTable, table: CatalogObject, written: str
) -> tuple[str, tuple[SourceColumn, ...]]:
    """The SQL that is behind LATERAL, and its columns. ``written``: the table as the statement names it.

    Raises 22103, 22105, 22107, 22110 to 22112.
    """
    _check(table, written)
    keys = _key_columns(table)
    columns = tuple(_key_source(column, i) for i, column in enumerate(keys, 1))
    if node.args.get("versions") is None:
        after = convert(_after(expressions, node.args["after"]), BIGINT, IMPLICIT).sql
        return f"emulator.tracking_changes_{table.object_id}(({after})::bigint)", (*_CHANGES, *columns)
    arguments = ", ".join(_row(expressions, node, table, keys))
    return f"emulator.tracking_version_{table.object_id}({arguments})", (_VERSION, _CONTEXT, *columns)


def _check(table: CatalogObject, written: str) -> None:
    if table.kind != "U" or table.name.startswith(("#", "@")):
        raise SqlServerError(
            22107,
            f"Object '{written}' is of a data type that is not supported by the CHANGETABLE function. The object must"
            " be a user-defined table.",
        )
    if not table.is_tracked:
        raise not_tracked(written)


def _key_columns(table: CatalogObject) -> list[CatalogColumn]:
    by_name = {column.name: column for column in table.columns}
    return [by_name[name] for name in table.key_columns]


def _key_source(column: CatalogColumn, number: int) -> SourceColumn:
    return SourceColumn(column.name, f"k{number}", column.type, nullable=False, collated=implicit(column.collation))


def _row(
    expressions: ExpressionTranslator, node: ChangeTable, table: CatalogObject, keys: list[CatalogColumn]
) -> list[str]:
    """The values of the key's columns in the order of the key."""
    names = [name.name.lower() for name in node.args["versions"]]
    if len(names) != len(keys):
        raise SqlServerError(
            22110,
            "The number of columns specified in the CHANGETABLE(VERSION ...) function does not match the number of"
            f" primary key columns for table '{table.name}'.",
        )
    by_name = {column.name.lower(): column for column in keys}
    for name in names:
        if name not in by_name:
            raise SqlServerError(
                22111,
                f"The column '{name}' specified in the CHANGETABLE(VERSION ...) function is not part of the primary"
                f" key for table '{table.name}'.",
            )
        if names.count(name) > 1:
            raise SqlServerError(
                22112,
                "Each primary key column must be specified once in the CHANGETABLE(VERSION ...) function. The column"
                f" '{name}' is specified more than once.",
            )
    values = node.args["values"]
    if len(values) != len(names):
        message = "The arguments supplied are not valid for the VERSION option of the CHANGETABLE function."
        raise SqlServerError(22103, message)
    given = dict(zip(names, values, strict=True))
    return [_value(expressions, given[column.name.lower()], column) for column in keys]


def _value(expressions: ExpressionTranslator, node: exp.Expression, column: CatalogColumn) -> str:
    return f"({convert(expressions.value(node), column.type, ASSIGN).sql})::{storage_type(column.type)}"


def _after(expressions: ExpressionTranslator, node: exp.Expression) -> Value:
    """The version that CHANGES begins after: a whole number, NULL or a variable. Raises 102, and 257 for a date."""
    plain = node.this if isinstance(node, exp.Neg) else node
    is_number = isinstance(plain, exp.Literal) and not plain.is_string and plain.name.isdigit()
    if not is_number and not isinstance(plain, (exp.Null, exp.Parameter)):
        raise syntax_error(node.sql(dialect="tsql"))
    value = expressions.value(node)
    if value.type is not None and value.type.name in _MOMENTS:
        raise SqlServerError(
            257,
            f"Implicit conversion from data type {value.type.name} to bigint is not allowed. Use the CONVERT function"
            " to run this query.",
            state=3,
        )
    return value
