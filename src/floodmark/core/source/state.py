"""The ledger's state of a table."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from floodmark.core.position import Position
from floodmark.core.schema import TableName
from floodmark.core.source.database import DatabaseIdentity
from floodmark.core.source.feed import InstanceIdentity


@dataclass(frozen=True, slots=True)
class TableState:
    """The ledger's state of a table of a pipeline."""

    source: TableName
    watermark: Position | None
    """None: the first load has not been published."""
    identity: InstanceIdentity | None
    consistent: bool
    """Whether a window has been merged whose end was committed after the first load's read."""
    watermark_at: datetime | None = None
    """The commit time of the watermark, local time of the source."""
    read_lsn: Position | None = None
    """The source's newest LSN when the newest load had been read. Its rows may be as new, so that until the table is
    consistent the log must still have that position. Without a watermark: of a first load that was merged, and that
    the checks refused."""
    read_lsn_at: datetime | None = None
    """The commit time of read_lsn."""
    database: DatabaseIdentity | None = None
    """The database that the pipeline follows; None where none is recorded."""
    target_fault: str = ""
    """Why the target is not the one that the ledger means; "" where it is, or where it was never loaded."""
