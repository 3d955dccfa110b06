"""Measures of a pipeline's progress from the ledger, for alerts and metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from psycopg.rows import dict_row

from floodmark.core.positions import read_position
from floodmark.core.schema import TableName
from floodmark.core.source.snapshot import Verdict
from floodmark.core.status.measures import TableMark
from floodmark.postgres.session import Reachable, open_transaction
from floodmark.postgres.sql import read_sql
from floodmark.postgres.statements import query, source_arrays


def list_table_marks(at: Reachable, pipeline: str) -> Sequence[TableMark]:
    """Return the marks of the tables that a run has included. The ledger must exist."""
    with open_transaction(at, pipeline) as session:
        cursor = session.cursor(row_factory=dict_row)
        rows = cursor.execute(read_sql("list_table_marks"), {"pipeline": pipeline}).fetchall()
    return [
        TableMark(
            TableName(row["source_schema"], row["source_name"]),
            read_position(bytes(row["watermark"])) if row["watermark"] else None,
            row["watermark_at"],
            Verdict(row["verdict"]) if row["verdict"] else None,
        )
        for row in rows
    ]


def record_sizes(at: Reachable, pipeline: str, sizes: Mapping[TableName, tuple[int | None, int | None]]) -> None:
    """Record rows and bytes of the change tables in the newest window of each table, for its history."""
    measured = [sizes[table] for table in sorted(sizes)]
    with open_transaction(at, pipeline) as session:
        query(
            session,
            "record_sizes",
            pipeline=pipeline,
            **source_arrays(sizes),
            change_rows=[rows for rows, _ in measured],
            change_bytes=[size_bytes for _, size_bytes in measured],
        )


def read_window_seconds(at: Reachable, window_id: int) -> float | None:
    """Return the time from planning to publication, failed runs included; None while the window is unfinished."""
    with open_transaction(at) as session:
        row = session.execute(read_sql("read_window_seconds"), {"window_id": window_id}).fetchone()
    return float(row[0]) if row else None
