"""Where every table stands, for people and programs that look: read from the ledger alone, changing nothing."""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import datetime

from psycopg.rows import DictRow, dict_row

from floodmark.core.lsn import Lsn
from floodmark.core.schema import TableName
from floodmark.core.window import TableCounts, WindowState
from floodmark.postgres import SUBJECT, Reachable, open_transaction
from floodmark.sqlfiles import read_sql


@dataclass(frozen=True, slots=True)
class TableStatus:
    """One table of a pipeline.

    watermark_at: commit time of the watermark, local time of the source. published_at: when the watermark last moved.
    windows and counts: of all published windows. verdict, cause, seen_at: the last look at the source; None before it.
    open_window_id: the pipeline's unfinished window, if there is one.
    """

    pipeline: str
    source: TableName
    target: TableName
    watermark: Lsn | None
    watermark_at: datetime | None
    consistent: bool
    published_at: datetime
    verdict: str | None
    cause: str | None
    seen_at: datetime | None
    open_window_id: int | None
    open_window_state: WindowState | None
    windows: int
    counts: TableCounts


def read_status(at: Reachable, pipeline: str | None = None) -> list[TableStatus]:
    """Of one pipeline, or of all; [] where the ledger knows of none, or does not exist yet."""
    with open_transaction(at, pipeline or SUBJECT) as session:
        ledger = session.execute("SELECT to_regclass('floodmark.ledger_version') IS NOT NULL").fetchone()
        if not ledger or not ledger[0]:
            return []
        cursor = session.cursor(row_factory=dict_row)
        return [
            _status(row) for row in cursor.execute(read_sql("warehouse", "read_status"), {"pipeline": pipeline})
        ]  # fmt: skip


def _status(row: DictRow) -> TableStatus:
    return TableStatus(
        pipeline=row["pipeline"],
        source=TableName(row["source_schema"], row["source_name"]),
        target=TableName(row["target_schema"], row["target_name"]),
        watermark=Lsn(row["watermark"]) if row["watermark"] else None,
        watermark_at=row["watermark_at"],
        consistent=row["consistent"],
        published_at=row["updated_at"],
        verdict=row["verdict"],
        cause=row["cause"],
        seen_at=row["seen_at"],
        open_window_id=row["open_window_id"],
        open_window_state=WindowState(row["open_window_state"]) if row["open_window_state"] else None,
        windows=row["windows"],
        counts=TableCounts(**{field.name: row[field.name] or 0 for field in fields(TableCounts)}),
    )
