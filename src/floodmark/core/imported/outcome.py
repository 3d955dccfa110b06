"""The outcome of an import for one table."""

from __future__ import annotations

from dataclasses import dataclass

from floodmark.core.position import Position
from floodmark.core.schema import TableName


@dataclass(frozen=True, slots=True)
class TableImport:
    """The outcome for one table: the watermark that was set, or why none was."""

    source: TableName
    target: TableName
    after_lsn: Position
    """The position of the state. It is the watermark now, unless the table was refused."""
    verdict: str = ""
    """The verdict on the position at the source; "" where it was not asked for."""
    window_id: int | None = None
    """The window that records the import; None in a dry run, and for a refused table."""
    refusal: str = ""
    """Why the table was refused; "" where it was not."""
    hint: str = ""
    """What to do about the refusal."""
