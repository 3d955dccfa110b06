"""What the ledger knows of a table."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from floodmark.core.lsn import Lsn
from floodmark.core.schema import TableName
from floodmark.core.source.snapshot import InstanceIdentity


@dataclass(frozen=True, slots=True)
class TableState:
    """What the ledger knows of a table of a pipeline. ``watermark`` None: the first load has not been published.

    watermark_at: its commit time, local time of the source. consistent: a window whose end was committed after
    the first load's read has been merged. read_lsn: the source's newest, committed at read_lsn_at, when the newest load
    had been read. Its rows may be as new, so that until the table is consistent the log must still have that position.
    """

    source: TableName
    watermark: Lsn | None
    identity: InstanceIdentity | None
    consistent: bool
    watermark_at: datetime | None = None
    read_lsn: Lsn | None = None
    read_lsn_at: datetime | None = None
