"""The stored columns of a source table as they travel to the warehouse."""

from __future__ import annotations

from dataclasses import dataclass

from floodmark.core.policies import TemporalPolicy
from floodmark.core.schema import SourceColumn, SourceTable
from floodmark.core.types import WarehouseType, warehouse_type

_WITHOUT_OLD_VALUES = frozenset({"text", "ntext", "image"})


@dataclass(frozen=True, slots=True)
class ValueColumn:
    """A stored column on its way."""

    name: str
    type: WarehouseType
    ordinal: int
    """Its place in the update mask."""
    is_lob: bool
    """Whether its values may be of any length."""
    is_optional: bool
    """Whether a change row may leave its value out."""
    is_nullable: bool
    """Whether NULL may be the last value of a deleted row. Servers have written it in deletes for bit NOT NULL."""
    keeps_value_on_delete: bool
    """Whether NULL in a delete row is the last value. With text, ntext and image it is not, nor in partial changes."""


def value_columns(table: SourceTable, temporal: TemporalPolicy) -> tuple[ValueColumn, ...]:
    """Return every stored column, in order. Raises ConfigError for a type that Floodmark does not support."""
    return tuple(_value_column(table, column, temporal) for column in table.stored_columns)


def _value_column(table: SourceTable, column: SourceColumn, temporal: TemporalPolicy) -> ValueColumn:
    return ValueColumn(
        name=column.name,
        type=warehouse_type(table, column, temporal),
        ordinal=column.ordinal,
        is_lob=column.is_lob,
        is_optional=table.may_leave_out(column),
        is_nullable=column.nullable,
        keeps_value_on_delete=column.nullable and column.type_name not in _WITHOUT_OLD_VALUES and not table.is_partial,
    )
