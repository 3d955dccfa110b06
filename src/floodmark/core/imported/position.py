"""The position up to which another tool has loaded tables: what the states of all tools have in common."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from floodmark.core.errors import ConfigError
from floodmark.core.lsn import Lsn
from floodmark.core.schema import TableName


@dataclass(frozen=True, slots=True)
class ImportedPosition:
    """The position of a tool in the log of one database."""

    tool: str
    after_lsn: Lsn
    """The watermark to set: the tool has applied every change up to it, and maybe later ones."""
    log_lsn: Lsn
    """A commit LSN that the tool has read from the log, so that the log of the same database has it."""
    tables: Mapping[tuple[str, str], str] | None = None
    """By the folded name of each table that the state lists, why its rows are not complete; "" where they are. None:
    the state is about every table."""

    def explain_refusal(self, table: TableName) -> str:
        """Return why the state is of no use for a table; "" where it is."""
        if self.tables is None:
            return ""
        return self.tables.get(table.folded, f"the state of {self.tool} does not list the table.")


class ToolState(Protocol):
    """The state of a tool, as it was read."""

    def position_in(self, database: str) -> ImportedPosition:
        """Return the position in the log of a database.

        Raises OperatorError where the state does not say that the rows up to a position are complete.
        """


def unreadable(tool: str, problem: str, hint: str) -> ConfigError:
    """Return the error about a text that is no state of a tool. No part of the text may be in it: it may have keys of
    rows."""
    return ConfigError(f"state of {tool}", problem, hint)


def parse_log_lsn(text: str) -> Lsn | None:
    """Return the LSN that a text spells, None where it spells none that has an LSN before it."""
    try:
        found = Lsn.parse(text)
        found.previous()
    except ValueError:
        return None
    return found
