"""The columns of a source that can reach a target, and the reason why others never can."""

from __future__ import annotations

from floodmark.core.errors import ConfigError
from floodmark.core.naming import IDENTIFIER_MAX_BYTES, KEEP_PREFIX, PART_COLUMN, TARGET_COLUMNS
from floodmark.core.policies import TemporalPolicy
from floodmark.core.schema import SourceColumn, SourceTable, TableName
from floodmark.core.types import warehouse_type

_KEPT_NAMES = frozenset({*TARGET_COLUMNS, PART_COLUMN})
_SYSTEM_COLUMNS = frozenset({"tableoid", "xmin", "cmin", "xmax", "cmax", "ctid"})
"""The names of PostgreSQL's system columns."""
_NOWHERE = SourceTable(TableName("-", "-"), (), ())


def unsupported_reason(column: SourceColumn) -> str:
    """Return a clause about the column, "" for one that can be loaded."""
    if column.is_computed:
        return "it is computed, and values of computed columns are not read"
    if why := why_not_named(column.name):
        return f"it {why}"
    try:
        # Whether there is a type at all does not depend on the policy.
        warehouse_type(_NOWHERE, column, TemporalPolicy.TRUNCATE)
    except ConfigError:
        return f"it has type {column.type_name}, which no warehouse can hold"
    return ""


def why_not_named(name: str) -> str:
    """Return a clause about a name that no column of a target can have; "" for any other."""
    if len(name.encode()) > IDENTIFIER_MAX_BYTES:
        return f"has a name longer than the {IDENTIFIER_MAX_BYTES} bytes that PostgreSQL allows"
    if name in _KEPT_NAMES or name.startswith(KEEP_PREFIX) or name.lower() in _SYSTEM_COLUMNS:
        return "has a name that is reserved in the warehouse"
    return ""
