"""Which columns of a source can reach a target, and why the others never can."""

from __future__ import annotations

from floodmark.core.errors import ConfigError
from floodmark.core.naming import IDENTIFIER_MAX_BYTES, KEEP_PREFIX, PART_COLUMN, TARGET_COLUMNS
from floodmark.core.policies import TemporalPolicy
from floodmark.core.schema import SourceColumn, SourceTable, TableName
from floodmark.core.types import warehouse_type

_KEPT_NAMES = frozenset({*TARGET_COLUMNS, PART_COLUMN})
_SYSTEM_COLUMNS = frozenset({"tableoid", "xmin", "cmin", "xmax", "cmax", "ctid"})
"""Of PostgreSQL."""
_NOWHERE = SourceTable(TableName("-", "-"), (), ())


def unsupported_reason(column: SourceColumn) -> str:
    """A clause about the column, "" for one that can be carried."""
    if column.is_computed:
        return "it is computed, and change tables hold no values of computed columns"
    if why := why_not_named(column.name):
        return f"it {why}"
    try:
        # Which policy makes no difference to whether there is a type at all.
        warehouse_type(_NOWHERE, column, TemporalPolicy.TRUNCATE)
    except ConfigError:
        return f"it has type {column.type_name}, which has no place in a warehouse"
    return ""


def why_not_named(name: str) -> str:
    """What is said of a column whose name no target can have; "" for any other."""
    if len(name.encode()) > IDENTIFIER_MAX_BYTES:
        return f"is longer than the {IDENTIFIER_MAX_BYTES} bytes of PostgreSQL's names"
    if name in _KEPT_NAMES or name.startswith(KEEP_PREFIX) or name.lower() in _SYSTEM_COLUMNS:
        return "has a name that the warehouse keeps for itself"
    return ""
