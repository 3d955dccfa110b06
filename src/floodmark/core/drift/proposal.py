"""The second capture instance that a table needs to capture more columns, and the T-SQL that creates it.

The options of the first instance (gating role, index, filegroup, net changes) are kept, so that nothing else changes
with it. Floodmark runs the text when the operator has approved it (see ``sync.drift.switch``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from floodmark.core.drift.ddl import Explained
from floodmark.core.schema import TableName
from floodmark.core.source.feed import InstanceIdentity
from floodmark.core.source.scripts import bracket, literal

MOST_INSTANCES = 2
"""The most instances that a table can have (error 22962)."""
_NAME_LENGTH = 100
_LINE_LENGTH = 72


@dataclass(frozen=True, slots=True)
class LivingInstance:
    """A capture instance as the server lists it."""

    identity: InstanceIdentity
    table: TableName
    """The current name of the table."""
    supports_net_changes: bool = False
    role: str | None = None
    """None for none."""
    index: str | None = None
    """None for none."""
    filegroup: str | None = None
    """None for none."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """A second capture instance for a table."""

    old: LivingInstance
    """The instance that is read."""
    name: str
    """The name of the second instance."""
    added: tuple[str, ...]
    """The columns that it captures in addition."""
    columns: tuple[str, ...]
    """All columns that it captures, in order."""
    drops: LivingInstance | None = None
    """The instance that must be dropped first to make room; None for none."""
    is_there: bool = False
    """Whether the instance exists already."""
    explained: tuple[Explained, ...] = ()
    """How each column of ``added`` was added."""

    @property
    def enabling(self) -> str:
        """Return the T-SQL that creates the second instance."""
        table, old = self.old.table, self.old
        lines = _broken(self.columns)
        declared = [f"DECLARE @columns nvarchar(max) = {literal(lines[0])};"]
        declared += [f"SET @columns += {literal(line)};" for line in lines[1:]]
        return "\n".join(
            [
                *(declared if len(lines) > 1 else []),
                "EXEC sys.sp_cdc_enable_table",
                f"    @source_schema = {literal(table.schema)}, @source_name = {literal(table.name)},",
                f"    @capture_instance = {literal(self.name)},",
                f"    @supports_net_changes = {int(old.supports_net_changes)},",
                f"    @role_name = {literal(old.role) if old.role is not None else 'NULL'},",
                *([f"    @index_name = {literal(old.index)},"] if old.index else []),
                *([f"    @filegroup_name = {literal(old.filegroup)},"] if old.filegroup else []),
                f"    @captured_column_list = {'@columns' if len(lines) > 1 else literal(lines[0])};",
            ]
        )

    @property
    def text(self) -> str:
        """Return all statements, for a person to read."""
        lines = [f"-- {self.name} exists and captures them." if self.is_there else self.enabling]
        if self.drops is not None:
            lines = [
                "-- A table has at most two capture instances: the other one goes first. Check that no one reads it.",
                _dropping(self.drops),
                *lines,
            ]
        lines += [
            f"-- When every pipeline of Floodmark reads {self.name}, {self.old.identity.name} is dropped:",
            _dropping(self.old),
        ]
        return "\n".join(lines)


def takes_along(proposal: str, column: str) -> bool:
    """Return whether the second instance of a proposal captures the column.

    proposal: its T-SQL, for an instance that does not exist yet.
    """
    return literal(bracket(column))[2:-1] in proposal


def spelled_by_server(name: TableName, living: Sequence[LivingInstance]) -> TableName:
    """Return the name of a configured table as the server spells it.

    The exact name has precedence over one that differs in case, as in a snapshot; without a capture instance of such a
    table, the name is returned as it is.
    """
    tables = [each.table for each in living]
    alike = [table for table in tables if table.folded == name.folded]
    return name if name in tables or not alike else alike[0]


def _broken(columns: Sequence[str]) -> list[str]:
    """Return the list of columns in pieces that fit on a line, so that all of it is visible.

    A variable joins them: one literal over several lines would have line breaks, which are not known to be allowed in
    this list.
    """
    lines = [""]
    for number, column in enumerate(columns, 1):
        text = bracket(column) + (", " if number < len(columns) else "")
        if lines[-1] and len(lines[-1]) + len(text) > _LINE_LENGTH:
            lines.append("")
        lines[-1] += text
    return lines


def _dropping(instance: LivingInstance) -> str:
    """Return the statement that drops an instance, with an argument per line."""
    table = instance.table
    return "\n".join(
        [
            "EXEC sys.sp_cdc_disable_table",
            f"    @source_schema = {literal(table.schema)}, @source_name = {literal(table.name)},",
            f"    @capture_instance = {literal(instance.identity.name)};",
        ]
    )


def build_proposal(
    instance: LivingInstance,
    captured: Sequence[str],
    added: Sequence[str],
    living: Sequence[LivingInstance],
    able: LivingInstance | None = None,
) -> Proposal:
    """Return the proposal for a table.

    captured: the columns to keep, in order. added: the columns to include. living: the instances of the database. able:
    one of them that captures all of these.
    """
    names = {other.identity.name.casefold() for other in living}
    siblings = [other for other in living if other.table == instance.table and other != instance]
    more = tuple(name for name in added if name not in captured)
    columns = (*captured, *more)
    if able is not None:
        return Proposal(instance, able.identity.name, more, columns, is_there=True)
    drops = siblings[0] if len(siblings) + 1 >= MOST_INSTANCES else None
    return Proposal(instance, _new_name(instance.table, names), more, columns, drops)


def _new_name(table: TableName, taken: set[str]) -> str:
    """Return the server's default name with the first number that is free."""
    number = 2
    while True:
        ending = f"_{number}"
        name = f"{table.schema}_{table.name}"[: _NAME_LENGTH - len(ending)] + ending
        if name.casefold() not in taken:
            return name
        number += 1
