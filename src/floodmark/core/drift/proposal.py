"""The second capture instance that a table needs to have more of its columns captured, and the T-SQL that makes it.

What the first instance was made with (gating role, index, filegroup, net changes) is taken over, so that nothing else
changes with it. Floodmark runs the text when somebody has approved it (see ``sync.switch``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from floodmark.core.drift.ddl import Explained
from floodmark.core.schema import TableName
from floodmark.core.source.scripts import literal, quote
from floodmark.core.source.snapshot import InstanceIdentity

MOST_INSTANCES = 2
"""Of one table (error 22962)."""
_NAME_LENGTH = 100
_LINE_LENGTH = 72


@dataclass(frozen=True, slots=True)
class LivingInstance:
    """A capture instance as the server lists it. table: as it is called now. role, index, filegroup: None for none."""

    identity: InstanceIdentity
    table: TableName
    supports_net_changes: bool = False
    role: str | None = None
    index: str | None = None
    filegroup: str | None = None


@dataclass(frozen=True, slots=True)
class Proposal:
    """old: the instance that is read. name: of the second one. added: the columns that it has more. columns: all that
    it captures, in their order. drops: the instance that has its place now. is_there: it needs not be made. explained:
    how each of ``added`` came."""

    old: LivingInstance
    name: str
    added: tuple[str, ...]
    columns: tuple[str, ...]
    drops: LivingInstance | None = None
    is_there: bool = False
    explained: tuple[Explained, ...] = ()

    @property
    def enabling(self) -> str:
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
        """All of it, for a person."""
        lines = [f"-- {self.name} is there and captures them." if self.is_there else self.enabling]
        if self.drops is not None:
            lines = [
                "-- A table has at most two capture instances: the other one goes first. See that nobody reads it.",
                _dropping(self.drops),
                *lines,
            ]
        lines += [
            f"-- When every pipeline of Floodmark reads {self.name}, {self.old.identity.name} goes:",
            _dropping(self.old),
        ]
        return "\n".join(lines)


def takes_along(proposal: str, column: str) -> bool:
    """Whether a second instance that somebody has read the T-SQL of captures the column. proposal: not of one that is
    there already."""
    return literal(quote(column))[2:-1] in proposal


def spelled_by_server(name: TableName, living: Sequence[LivingInstance]) -> TableName:
    """The table of a configuration as the server has it: the exact name before one that differs in case, as when a
    snapshot is taken; the name itself where no such table has a capture instance."""
    tables = [each.table for each in living]
    alike = [table for table in tables if table.folded == name.folded]
    return name if name in tables or not alike else alike[0]


def _broken(columns: Sequence[str]) -> list[str]:
    """The list of the columns in pieces that fit on a line, so that all of it is in sight. A variable takes them
    together: one literal over several lines would have line breaks, which are not known to be allowed in this list."""
    lines = [""]
    for number, column in enumerate(columns, 1):
        text = quote(column) + (", " if number < len(columns) else "")
        if lines[-1] and len(lines[-1]) + len(text) > _LINE_LENGTH:
            lines.append("")
        lines[-1] += text
    return lines


def _dropping(instance: LivingInstance) -> str:
    """An argument a line, so that all of it is in sight where it is shown."""
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
    """captured: the columns to go on with, in their order. added: those to take along. living: of the database. able:
    one of them that captures all of these."""
    names = {other.identity.name.casefold() for other in living}
    siblings = [other for other in living if other.table == instance.table and other != instance]
    more = tuple(name for name in added if name not in captured)
    columns = (*captured, *more)
    if able is not None:
        return Proposal(instance, able.identity.name, more, columns, is_there=True)
    drops = siblings[0] if len(siblings) + 1 >= MOST_INSTANCES else None
    return Proposal(instance, _new_name(instance.table, names), more, columns, drops)


def _new_name(table: TableName, taken: set[str]) -> str:
    """The server's own name for it with the first number that is free."""
    number = 2
    while True:
        ending = f"_{number}"
        name = f"{table.schema}_{table.name}"[: _NAME_LENGTH - len(ending)] + ending
        if name.casefold() not in taken:
            return name
        number += 1
