"""The mapping of SQL Server types to the types of a warehouse, in terms that no engine owns.

``warehouse`` renders a ``WarehouseType`` as DDL, ``spark`` as Arrow and Spark types. Where a value cannot be
represented exactly, ``WarehouseType.loss`` names what is lost, and the run reports it: nothing is lost silently.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from floodmark.core.errors import ConfigError
from floodmark.core.schema import MAX_LENGTH, SourceColumn, SourceTable
from floodmark.core.settings import TemporalPolicy

MICROSECOND_DIGITS = 6


class Kind(Enum):
    """A family of values. BYTES, TEXT, UUID and the temporal kinds are stored as such, never as their text."""

    BOOLEAN = "boolean"
    INT16 = "int16"
    INT32 = "int32"
    INT64 = "int64"
    DECIMAL = "decimal"
    FLOAT32 = "float32"
    FLOAT64 = "float64"
    TEXT = "text"
    DATE = "date"
    TIME = "time"
    TIMESTAMP = "timestamp"
    TIMESTAMP_TZ = "timestamp_tz"
    UUID = "uuid"
    BYTES = "bytes"


@dataclass(frozen=True, slots=True)
class WarehouseType:
    """A type of a warehouse."""

    kind: Kind
    precision: int = 0
    """Of DECIMAL."""
    scale: int = 0
    """Of DECIMAL."""
    length: int = 0
    """The most characters of a bounded TEXT, otherwise 0."""
    loss: str = ""
    """What is lost, "" when the type is exact."""


_PLAIN = {
    "bit": WarehouseType(Kind.BOOLEAN),
    "tinyint": WarehouseType(Kind.INT16),
    "smallint": WarehouseType(Kind.INT16),
    "int": WarehouseType(Kind.INT32),
    "bigint": WarehouseType(Kind.INT64),
    "money": WarehouseType(Kind.DECIMAL, 19, 4),
    "smallmoney": WarehouseType(Kind.DECIMAL, 10, 4),
    "float": WarehouseType(Kind.FLOAT64),
    "real": WarehouseType(Kind.FLOAT32),
    "text": WarehouseType(Kind.TEXT),
    "ntext": WarehouseType(Kind.TEXT),
    "xml": WarehouseType(Kind.TEXT),
    "json": WarehouseType(Kind.TEXT),
    "sysname": WarehouseType(Kind.TEXT, length=128),
    "date": WarehouseType(Kind.DATE),
    "datetime": WarehouseType(Kind.TIMESTAMP),
    "smalldatetime": WarehouseType(Kind.TIMESTAMP),
    "uniqueidentifier": WarehouseType(Kind.UUID),
    **dict.fromkeys(
        ("binary", "varbinary", "image", "rowversion", "timestamp", "hierarchyid", "geography", "geometry"),
        WarehouseType(Kind.BYTES),
    ),
}
_TEMPORAL = {"time": Kind.TIME, "datetime2": Kind.TIMESTAMP, "datetimeoffset": Kind.TIMESTAMP_TZ}
_BOUNDED_TEXT = frozenset({"char", "varchar", "nchar", "nvarchar"})


def warehouse_type(table: SourceTable, column: SourceColumn, temporal: TemporalPolicy) -> WarehouseType:
    """Return the type of a column in the warehouse.

    Raises ConfigError, naming table, column and type, for a type that no warehouse can hold (sql_variant).
    """
    name = column.type_name
    if name in _PLAIN:
        return _PLAIN[name]
    if name in ("decimal", "numeric"):
        return WarehouseType(Kind.DECIMAL, column.precision, column.scale)
    if name in _BOUNDED_TEXT:
        return WarehouseType(Kind.TEXT, length=0 if column.max_length == MAX_LENGTH else column.max_length)
    if name in _TEMPORAL:
        return _temporal_type(_TEMPORAL[name], column, temporal, in_key=column.name in table.key)
    raise ConfigError(
        str(table.name),
        f"column {column.name} has type {name}, which Floodmark does not support.",
        "Leave the column out of the capture instance (@captured_column_list), or, where there is none, of the table.",
    )


def _temporal_type(kind: Kind, column: SourceColumn, policy: TemporalPolicy, *, in_key: bool) -> WarehouseType:
    cut = "fractions below a microsecond are cut off" if column.scale > MICROSECOND_DIGITS else ""
    applied = "the offset is applied and not kept" if kind is Kind.TIMESTAMP_TZ else ""
    if policy is TemporalPolicy.TEXT and (cut or applied):
        return WarehouseType(Kind.TEXT)
    if in_key and cut:
        # Cut off, different keys would become one (docs/adr/0045-keys-finer-than-a-microsecond-are-exact-text.md).
        return WarehouseType(Kind.TEXT, loss=applied)
    return WarehouseType(kind, loss="; ".join(filter(None, (cut, applied))))


def list_losses(table: SourceTable, temporal: TemporalPolicy) -> tuple[str, ...]:
    """Return a sentence per column whose values do not arrive exactly, for the log of a run."""
    types = ((column, warehouse_type(table, column, temporal)) for column in table.stored_columns)
    return tuple(f"{column.name} {column.declared_type}: {kind.loss}" for column, kind in types if kind.loss)
