"""Limits that a filter predicate sets: nothing that it is made of is dropped, no view or function reads its table."""

from __future__ import annotations

from typing import Final

from sqlserver_emulator.engine.ddl.scope import DdlScope
from sqlserver_emulator.engine.translation import FILTERED_ROW
from sqlserver_emulator.errors import NotSupportedByEmulatorError, SqlServerError

_BOUND: Final = """
SELECT o.name FROM emulator.security_predicates p JOIN emulator.objects o ON o.object_id = p.object_id
WHERE $1::int IN (p.target_object_id, p.function_object_id)
"""


def refuse_filtered(sql: str) -> None:
    """Raise 49999 for the text of a view or function that reads a table with a filter predicate."""
    if FILTERED_ROW in sql:
        raise NotSupportedByEmulatorError("views and functions over tables with a filter predicate")


def refuse_bound(scope: DdlScope, object_id: int, name: object) -> None:
    """Raise 3729 where a policy filters this table, or by this function."""
    found = scope.fetch(_BOUND, [object_id])
    if found:
        message = f"Cannot DROP or ALTER '{name}' because it is being referenced by object '{found[0][0]}'."
        raise SqlServerError(3729, message)
