"""What the ledger says of a pipeline, for people and for programs. Reads the warehouse, and the source if asked."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

import psycopg
from psycopg.rows import dict_row

from floodmark.core.capture import SourceSnapshot
from floodmark.core.lsn import Lsn
from floodmark.core.settings import PipelineSettings, TableSettings
from floodmark.postgres import Reachable, open_transaction
from floodmark.sqlfiles import read_sql
from floodmark.sync.ports import Ledger

NEVER_RUN = "never_run"


@dataclass(frozen=True, slots=True)
class TableStatus:
    """watermark_at: its commit time, local time of the source. verdict: of the last look at the source.

    windows and rows: of all published windows. lag_seconds: age of the watermark by the source's clock, 0 when the
    source has nothing newer, None when the source was not asked.
    """

    source: str
    target: str
    watermark: str | None
    watermark_at: datetime | None
    consistent: bool
    verdict: str
    cause: str
    windows: int = 0
    read_rows: int = 0
    inserted_rows: int = 0
    updated_rows: int = 0
    deleted_rows: int = 0
    quarantined_rows: int = 0
    advanced_at: datetime | None = None
    lag_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class PipelineStatus:
    """unfinished: id and state of the window that the next run finishes."""

    pipeline: str
    unfinished_window_id: int | None
    unfinished_state: str | None
    tables: tuple[TableStatus, ...]


def read_status(
    settings: PipelineSettings, ledger: Ledger, warehouse: Reachable, snapshot: SourceSnapshot | None = None
) -> PipelineStatus:
    """snapshot: of the source, for the lag."""
    with open_transaction(warehouse, settings.name) as session:
        rows = _read_rows(session, settings.name)
    unfinished = ledger.unfinished_window(settings.name) if rows else None
    by_source = {(row["source_schema"], row["source_name"]): row for row in rows}
    tables = []
    for table in settings.tables:
        row = by_source.get((table.source.schema, table.source.name))
        tables.append(_table_status(table, row, snapshot) if row else _never_run(table))
    return PipelineStatus(
        settings.name,
        unfinished.plan.window_id if unfinished else None,
        unfinished.state.value if unfinished else None,
        tuple(tables),
    )


def _read_rows(session: psycopg.Connection, pipeline: str) -> list[dict[str, Any]]:
    """None at all where no run has made the ledger yet."""
    made = session.execute("SELECT to_regclass('floodmark.window_tables') IS NOT NULL").fetchone()
    if made is None or not made[0]:
        return []
    cursor = session.cursor(row_factory=dict_row)
    return cursor.execute(read_sql("warehouse", "read_status"), {"pipeline": pipeline}).fetchall()


def _never_run(table: TableSettings) -> TableStatus:
    return TableStatus(str(table.source), str(table.target), None, None, False, NEVER_RUN, "")


def _table_status(table: TableSettings, row: dict[str, Any], snapshot: SourceSnapshot | None) -> TableStatus:
    watermark = Lsn(bytes(row["watermark"])) if row["watermark"] is not None else None
    return TableStatus(
        source=str(table.source),
        target=str(table.target),
        watermark=str(watermark) if watermark else None,
        watermark_at=row["watermark_at"],
        consistent=row["consistent"],
        verdict=row["verdict"] or NEVER_RUN,
        cause=row["cause"] or "",
        windows=row["windows"],
        read_rows=row["read_rows"],
        inserted_rows=row["inserted_rows"],
        updated_rows=row["updated_rows"],
        deleted_rows=row["deleted_rows"],
        quarantined_rows=row["quarantined_rows"],
        advanced_at=row["advanced_at"],
        lag_seconds=_lag_seconds(watermark, row["watermark_at"], snapshot),
    )


def _lag_seconds(
    watermark: Lsn | None, watermark_at: datetime | None, snapshot: SourceSnapshot | None
) -> float | None:  # fmt: skip
    if snapshot is None or watermark is None or watermark_at is None:
        return None
    if isinstance(snapshot.max_lsn, Lsn) and snapshot.max_lsn <= watermark:
        return 0.0
    return max((snapshot.taken_at - watermark_at).total_seconds(), 0.0)
