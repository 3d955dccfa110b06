"""The Spark SQL of a lake: the tables, and the statements of the merge and the checks, which are rendered for Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlglot import exp

from floodmark.core.plan import TablePlan, value_columns
from floodmark.core.schema import (
    DELETED_COLUMN,
    LOADED_AT_COLUMN,
    OPERATION_COLUMN,
    POSITION_COLUMN,
    STAGING_SCHEMA,
    WINDOW_COLUMN,
    TableName,
)
from floodmark.core.types import Kind, WarehouseType
from floodmark.iceberg.lake import UNPUBLISHED

_SPARK_TYPES = {
    Kind.BOOLEAN: "boolean",
    Kind.INT16: "int",  # Iceberg has none of 16 bits
    Kind.INT32: "int",
    Kind.INT64: "bigint",
    Kind.FLOAT32: "float",
    Kind.FLOAT64: "double",
    Kind.TEXT: "string",
    Kind.DATE: "date",
    Kind.TIME: "string",
    Kind.TIMESTAMP: "timestamp_ntz",
    Kind.TIMESTAMP_TZ: "timestamp",
    Kind.UUID: "string",
    Kind.BYTES: "binary",
}
_OWN_TYPES = {
    POSITION_COLUMN: "binary",
    OPERATION_COLUMN: "int",
    WINDOW_COLUMN: "bigint",
    LOADED_AT_COLUMN: "timestamp",
    DELETED_COLUMN: "boolean",
}
_PROPERTIES = {
    "format-version": "2",
    # Changes are a small part of a table: position deletes write 1/47 of the bytes of copy-on-write.
    "write.merge.mode": "merge-on-read",
    "write.update.mode": "merge-on-read",
    "write.delete.mode": "merge-on-read",
    # The metadata that readers see is one of the previous ones of what is being merged.
    "write.metadata.delete-after-commit.enabled": "false",
}


def lake_type(of: WarehouseType) -> str:
    """Return Spark's name of a type. A time of day and a UUID are text."""
    return f"decimal({of.precision},{of.scale})" if of.kind is Kind.DECIMAL else _SPARK_TYPES[of.kind]


def lake_columns(table: TablePlan) -> Mapping[str, str]:
    """Return the columns of a target with Spark's names of their types, in order."""
    values = value_columns(table.in_target, table.settings.temporal)
    return {column.name: lake_type(column.type) for column in values} | _OWN_TYPES


def spark_name(*parts: str) -> str:
    """Return a name of several parts, quoted for Spark."""
    return ".".join(f"`{part.replace('`', '``')}`" for part in parts)


def unpublished(target: TableName) -> str:
    """Return the name of the table in which a window is merged and checked."""
    return spark_name(UNPUBLISHED, target.schema, target.name)


def create_table(table: TablePlan) -> str:
    """Return the statement that creates an empty target."""
    columns = ", ".join(f"{spark_name(name)} {kind}" for name, kind in lake_columns(table).items())
    properties = ", ".join(f"'{name}'='{value}'" for name, value in _PROPERTIES.items())
    name = unpublished(table.target)
    return f"CREATE TABLE IF NOT EXISTS {name} ({columns}) USING iceberg TBLPROPERTIES ({properties})"


def add_columns(table: TablePlan, names: Sequence[str]) -> str:
    """Return the statement that adds columns at the end of a target."""
    types = lake_columns(table)
    columns = ", ".join(f"{spark_name(name)} {types[name]}" for name in names)
    return f"ALTER TABLE {unpublished(table.target)} ADD COLUMNS ({columns})"


def in_spark(tree: exp.Expression) -> str:
    """Return a statement over targets and staging tables in Spark's SQL.

    Targets are those of the unpublished catalog. A staging table is a view of the session with its name.
    """
    tree = tree.copy()
    for table in tree.find_all(exp.Table):
        if table.db == STAGING_SCHEMA:
            table.set("db", None)
        elif table.db:
            table.set("catalog", exp.to_identifier(UNPUBLISHED, quoted=True))
    return str(tree.sql(dialect="spark"))
