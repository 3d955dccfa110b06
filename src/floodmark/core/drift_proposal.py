"""The T-SQL that makes a second capture instance with the columns that the first one lacks.

The text is for a person to read and run: Floodmark does not run it. What the first instance was made with (gating role,
index, filegroup, net changes) is taken over, so that nothing else changes with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from floodmark.core.capture import InstanceIdentity
from floodmark.core.schema import TableName

MOST_INSTANCES = 2
"""Of one table (error 22962)."""
_NAME_LENGTH = 100


@dataclass(frozen=True, slots=True)
class LivingInstance:
    """A capture instance as the server lists it. table: as it is called now. role, index, filegroup: None for none."""

    identity: InstanceIdentity
    table: TableName
    supports_net_changes: bool = False
    role: str | None = None
    index: str | None = None
    filegroup: str | None = None


def build_proposal(
    instance: LivingInstance, captured: Sequence[str], added: Sequence[str], living: Sequence[LivingInstance]
) -> str:
    """captured: the columns to go on with, in their order. added: those to take along. living: of the database."""
    names = {other.identity.name.casefold() for other in living}
    siblings = [other for other in living if other.table == instance.table and other != instance]
    lines = []
    if len(siblings) + 1 >= MOST_INSTANCES:
        other = siblings[0]
        lines += [
            "-- A table has at most two capture instances: the other one goes first. Make sure that nobody reads it.",
            "EXEC sys.sp_cdc_disable_table",
            f"    @source_schema = {_text(other.table.schema)}, @source_name = {_text(other.table.name)},",
            f"    @capture_instance = {_text(other.identity.name)};",
        ]
    columns = ", ".join(_bracketed(name) for name in (*captured, *(name for name in added if name not in captured)))
    lines += [
        "EXEC sys.sp_cdc_enable_table",
        f"    @source_schema = {_text(instance.table.schema)}, @source_name = {_text(instance.table.name)},",
        f"    @capture_instance = {_text(_new_name(instance.table, names))},",
        f"    @supports_net_changes = {int(instance.supports_net_changes)},",
        f"    @role_name = {_text(instance.role)},",
        *([f"    @index_name = {_text(instance.index)},"] if instance.index else []),
        *([f"    @filegroup_name = {_text(instance.filegroup)},"] if instance.filegroup else []),
        f"    @captured_column_list = {_text(columns)};",
    ]
    return "\n".join(lines)


def _new_name(table: TableName, taken: set[str]) -> str:
    """The server's own name for it with the first number that is free."""
    number = 2
    while True:
        ending = f"_{number}"
        name = f"{table.schema}_{table.name}"[: _NAME_LENGTH - len(ending)] + ending
        if name.casefold() not in taken:
            return name
        number += 1


def _text(value: str | None) -> str:
    return "NULL" if value is None else "N'" + value.replace("'", "''") + "'"


def _bracketed(name: str) -> str:
    return "[" + name.replace("]", "]]") + "]"
