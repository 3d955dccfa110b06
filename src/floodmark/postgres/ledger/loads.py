"""``LoadRecords``: the reads of loads, the chunks of first loads, and gaps, in the ledger. Part of ``PostgresLedger``.

The staging sink records a staged chunk itself, in one transaction with the chunk's rows (``warehouse.sink``).
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

import psycopg
from psycopg.types.json import Jsonb

from floodmark.core.errors import FloodmarkBugError, OperatorError, WatermarkConflictError
from floodmark.core.position import Position
from floodmark.core.recovery.gap import Gap
from floodmark.core.schema import TableName
from floodmark.core.source.history import LogEntry
from floodmark.core.window.chunks import LoadChunk, LoadProgress, StoredChunk, bound_from_json, bound_to_json
from floodmark.core.window.members import MemberRead
from floodmark.core.window.plan import TableCounts, WindowPlan, WindowState
from floodmark.core.window.plan_json import plan_to_json
from floodmark.postgres.ledger.members import record_members
from floodmark.postgres.session import Reachable, open_transaction
from floodmark.postgres.sql import read_sql
from floodmark.postgres.statements import query, source_parameters
from floodmark.sync.ports.staging import StagedPart


class LoadRecords:
    """The part of ``PostgresLedger`` for loads. It holds no session: each method is one transaction of its own."""

    _at: Reachable

    def list_chunks(self, window_id: int, source: TableName) -> Sequence[StoredChunk]:
        with open_transaction(self._at, str(source)) as session:
            return _list_chunks(session, window_id, source)

    def store_chunks(self, plan: WindowPlan, source: TableName, chunks: Sequence[LoadChunk]) -> Sequence[StoredChunk]:
        with open_transaction(self._at, str(source)) as session:
            fence(session, plan)
            if stored := _list_chunks(session, plan.window_id, source):
                return stored
            rows = [
                {
                    "window_id": plan.window_id,
                    **source_parameters(source),
                    "chunk_no": chunk.number,
                    "after_bound": _dump(bound_to_json(chunk.after)),
                    "to_bound": _dump(bound_to_json(chunk.to)),
                }
                for chunk in chunks
            ]
            session.cursor().executemany(read_sql("insert_load_chunk"), rows)
            return [StoredChunk(chunk) for chunk in chunks]

    def reset_chunks(self, plan: WindowPlan, source: TableName, numbers: Collection[int]) -> None:
        with open_transaction(self._at, str(source)) as session:
            fence(session, plan)
            session.execute(
                read_sql("reset_load_chunks"),
                {"window_id": plan.window_id, **source_parameters(source), "numbers": list(numbers)},
            )

    def extend_window(self, plan: WindowPlan, end: LogEntry) -> WindowPlan:
        extended = plan.extended_to(end)
        with open_transaction(self._at, f"window {plan.window_id}") as session:
            fence(session, plan)
            query(
                session,
                "extend_window",
                window_id=plan.window_id,
                to_lsn=end.lsn.value,
                to_lsn_at=end.committed_at,
                plan=Jsonb(plan_to_json(extended)),
            )
        return extended

    def record_reads(
        self,
        plan: WindowPlan,
        read_rows: Mapping[TableName, int],
        read_finished_at: datetime | None = None,
        read_lsn: Position | None = None,
        read_lsn_at: datetime | None = None,
        *,
        members: Mapping[TableName, Sequence[MemberRead]] | None = None,
    ) -> None:
        with open_transaction(self._at, f"window {plan.window_id}") as session:
            fence(session, plan)
            record_members(session, plan, members or {})
            for source, rows in read_rows.items():
                query(
                    session,
                    "record_reads",
                    window_id=plan.window_id,
                    **source_parameters(source),
                    read_rows=rows,
                    read_finished_at=read_finished_at,
                    read_lsn=read_lsn and read_lsn.value,
                    read_lsn_at=read_lsn_at,
                )

    def record_staged(self, plan: WindowPlan, source: TableName, parts: Sequence[StagedPart]) -> None:
        with open_transaction(self._at, str(source)) as session:
            fence(session, plan)
            for part in parts:
                values = {
                    "window_id": plan.window_id,
                    "attempt": plan.attempt,
                    "chunk_no": part.part,
                    "rows": part.rows,
                }
                session.execute(read_sql("record_load_chunk"), values | source_parameters(source))

    def record_merge(
        self, plan: WindowPlan, counts: Mapping[TableName, TableCounts]
    ) -> Mapping[TableName, TableCounts]:
        with open_transaction(self._at, f"window {plan.window_id}") as session:
            fence(session, plan)
            return mark_merged(session, plan, counts)

    def record_gap(self, pipeline: str, gap: Gap, watermark: Position | None) -> None:
        with open_transaction(self._at, pipeline) as session:
            query(
                session,
                "record_gap",
                pipeline=pipeline,
                **source_parameters(gap.table),
                verdict=gap.verdict.value,
                cause=gap.cause,
                after_lsn=gap.after_lsn and gap.after_lsn.value,
                to_lsn=gap.to_lsn and gap.to_lsn.value,
                after_at=gap.after_at,
                to_at=gap.to_at,
                watermark=watermark and watermark.value,
            )

    def read_load_progress(self, window_id: int) -> Mapping[TableName, LoadProgress]:
        with open_transaction(self._at, f"window {window_id}") as session:
            rows = query(session, "read_load_progress", window_id=window_id)
        return {
            TableName(row["source_schema"], row["source_name"]): LoadProgress(
                row["chunks"], row["staged_chunks"], row["rows"]
            )
            for row in rows
        }


def mark_merged(
    session: psycopg.Connection, plan: WindowPlan, counts: Mapping[TableName, TableCounts]
) -> Mapping[TableName, TableCounts]:
    """Store the counts of a merge and set the window to MERGED, in the caller's transaction.

    The returned counts include what the ledger has recorded about the read.
    """
    recorded = {source: _record_counts(session, plan, source, rows) for source, rows in counts.items()}
    session.execute(read_sql("mark_merged"), {"window_id": plan.window_id})
    return recorded


def _record_counts(
    session: psycopg.Connection, plan: WindowPlan, source: TableName, counts: TableCounts
) -> TableCounts:
    named: dict[str, Any] = dataclasses.asdict(counts) | {"window_id": plan.window_id, **source_parameters(source)}
    row = session.execute(read_sql("record_counts"), named).fetchone()
    if row is None:
        raise FloodmarkBugError(str(source), f"window {plan.window_id} does not contain this table.")
    return dataclasses.replace(counts, read_rows=row[0])


def refuse_stale(plan: WindowPlan, attempt: int, state: str) -> None:
    """Raise WatermarkConflictError if a later attempt has begun, or the window is merged."""
    subject = f"{plan.pipeline}, window {plan.window_id}"
    if state != WindowState.PLANNED.value:
        raise WatermarkConflictError(
            subject, f"another load has already merged this window (state {state}).", "No action is needed."
        )
    if attempt != plan.attempt:
        raise WatermarkConflictError(
            subject,
            f"this load is attempt {plan.attempt}, and attempt {attempt} has begun since.",
            "The later attempt loads the window.",
        )


def fence(session: psycopg.Connection, plan: WindowPlan) -> None:
    """Lock the window's row. Raise WatermarkConflictError for a load that a later attempt has replaced."""
    rows = query(session, "lock_window", window_id=plan.window_id)
    if not rows:
        raise OperatorError(f"window {plan.window_id}", "the ledger has no such window.")
    refuse_stale(plan, rows[0]["attempt"], rows[0]["state"])


def _list_chunks(session: psycopg.Connection, window_id: int, source: TableName) -> list[StoredChunk]:
    rows = query(session, "list_load_chunks", window_id=window_id, **source_parameters(source))
    return [
        StoredChunk(
            LoadChunk(row["chunk_no"], bound_from_json(row["after_bound"]), bound_from_json(row["to_bound"])),
            row["staged_rows"],
        )
        for row in rows
    ]


def _dump(document: object) -> str | None:
    # In ASCII: a text key may contain characters that PostgreSQL's texts cannot.
    return None if document is None else json.dumps(document)
