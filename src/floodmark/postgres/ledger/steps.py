"""The steps of a window in the ledger, each in the caller's transaction: openings, loads, verdicts."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.rows import DictRow, dict_row
from psycopg.types.json import Jsonb

from floodmark.core.errors import FloodmarkBugError, OperatorError, WatermarkConflictError
from floodmark.core.plan import (
    LoadChunk,
    LoadProgress,
    MemberRead,
    StoredChunk,
    TableCounts,
    TablePlan,
    WindowPlan,
    WindowState,
    bound_from_json,
    bound_to_json,
    is_load_lane,
    is_replay_lane,
)
from floodmark.core.plan_json import plan_to_json
from floodmark.core.planning import NO_MEASURES, PlanMeasures
from floodmark.core.position import Position, read_position
from floodmark.core.recovery import Gap, WholeLoad
from floodmark.core.schema import TableName
from floodmark.core.snapshot import LogEntry, Validity, Verdict
from floodmark.core.verdicts import LEFT_OUT
from floodmark.postgres.ledger.schema import (
    advance_members,
    claim_table,
    describe_watermark,
    one_window,
    record_members,
    refuse_left_instances,
    refuse_loads,
    refuse_other_lanes,
)
from floodmark.postgres.session import open_transaction, query, source_arrays, source_parameters
from floodmark.postgres.sql import read_sql
from floodmark.sync.ports import StagedPart

if TYPE_CHECKING:
    from floodmark.postgres.session import WarehouseConnection

# --------------------------------------------------------------------------------------------------------------------
# The first and the last step of a window in the ledger, each in the caller's transaction.


def insert_window(
    session: psycopg.Connection,
    pipeline: str,
    lane: str,
    end: LogEntry,
    tables: Sequence[TablePlan],
    *,
    measures: PlanMeasures = NO_MEASURES,
) -> WindowPlan:
    """Claim the tables and write the plan of a new window. Raises as ``PostgresLedger.open_window``."""
    # All runs lock tables in the same order, so that two runs queue up instead of deadlocking.
    for table in sorted(tables, key=lambda table: table.source):
        claim_table(session, pipeline, table)
    refuse_left_instances(session, pipeline, {table.source: table.feed.identity for table in tables})
    refuse = refuse_loads if is_replay_lane(lane) else refuse_other_lanes
    refuse(session, pipeline, lane, [table.source for table in tables])
    window_id = _insert_window(session, pipeline, lane, end, measures.lag_seconds)
    plan = WindowPlan(window_id, pipeline, end.position, tuple(tables), lane=lane, to_at=end.committed_at)
    query(session, "store_plan", window_id=window_id, plan=Jsonb(plan_to_json(plan)))
    for table in tables:
        query(
            session,
            "open_window_table",
            window_id=window_id,
            **source_parameters(table.source),
            kind=table.kind.value,
            after_lsn=_bytes(table.interval.after if table.interval else None),
            margin_seconds=measures.margin_seconds.get(table.source),
        )
    return plan


def finish_table(session: psycopg.Connection, plan: WindowPlan, table: TablePlan) -> None:
    """Move the watermark of a table of a checked window, where the window moves it.

    Raises WatermarkConflictError where it is neither the planned one nor the end of the window.
    """
    named = {"pipeline": plan.pipeline, "window_id": plan.window_id, **source_parameters(table.source)}
    if plan.moves_watermark(table):
        _advance_table(session, plan, table)
        if is_load_lane(plan.lane):
            query(session, "close_gap", **named)
    elif table.where:
        query(session, "settle_table", **named)


def _insert_window(
    session: psycopg.Connection, pipeline: str, lane: str, end: LogEntry, lag_seconds: float | None
) -> int:
    named = {"to_lsn": end.position.value, "to_lsn_at": end.committed_at, "lag_seconds": lag_seconds}
    try:
        row = query(session, "open_window", pipeline=pipeline, lane=lane, **named)[0]
    except psycopg.errors.UniqueViolation:
        raise WatermarkConflictError(
            pipeline, "another run has an unfinished window.", "Let it finish; the next run continues with that window."
        ) from None
    return int(row["window_id"])


def _advance_table(session: psycopg.Connection, plan: WindowPlan, table: TablePlan) -> None:
    identity = table.feed.identity
    moved = session.execute(
        read_sql("advance_table"),
        {
            "window_id": plan.window_id,
            **source_parameters(table.source),
            "watermark": _bytes(table.watermark),
            "instance_name": identity.name,
            "instance_object_id": identity.object_id,
            "instance_created_at": identity.created_at,
            "instance_store_id": identity.store_id,
        },
    )
    if moved.rowcount == 1:
        if table.feed.has_members:
            advance_members(session, plan, table)
        return
    found = query(session, "lock_table", pipeline=plan.pipeline, **source_parameters(table.source))
    if not found or found[0]["watermark"] != plan.to.value:
        raise WatermarkConflictError(
            str(table.source),
            f"its watermark is {describe_watermark(found[0]['watermark'] if found else None)}; "
            f"window {plan.window_id} was planned on {table.watermark or 'none'}.",
            "No watermark was moved. Find out what else writes to the ledger.",
        )


def _bytes(position: Position | None) -> bytes | None:
    return position.value if position else None


# --------------------------------------------------------------------------------------------------------------------
# ``LoadRecords``: the reads of loads, the chunks of first loads, and gaps, in the ledger. Part of ``PostgresLedger``.
#
# The staging sink records a staged chunk itself, in one transaction with the chunk's rows (``warehouse.sink``).


class LoadRecords:
    """The part of ``PostgresLedger`` for loads. It holds no session: each method is one transaction of its own."""

    _at: WarehouseConnection

    def list_chunks(self, window_id: int, source: TableName) -> Sequence[StoredChunk]:
        """Return the chunks of a first load by number; [] where none are planned."""
        with open_transaction(self._at, str(source)) as session:
            return _list_chunks(session, window_id, source)

    def store_chunks(
        self, plan: WindowPlan, source: TableName, chunks: Sequence[LoadChunk], *, hides_bounds: bool = False
    ) -> Sequence[StoredChunk]:
        """Store the chunks of a first load, once per window: existing chunks are kept and returned.

        hides_bounds: store none, in place of those that any load of the table has stored. Refuses all attempts but the
        latest.
        """
        with open_transaction(self._at, str(source)) as session:
            fence(session, plan)
            if hides_bounds:
                named = {"pipeline": plan.pipeline, "window_id": plan.window_id, **source_parameters(source)}
                query(session, "delete_load_chunks", **named)
                query(session, "clear_bounds", **named)
            elif stored := _list_chunks(session, plan.window_id, source):
                return stored
            rows = [
                {
                    "window_id": plan.window_id,
                    **source_parameters(source),
                    "chunk_no": chunk.number,
                    "after_bound": None if hides_bounds else _dump(bound_to_json(chunk.after)),
                    "to_bound": None if hides_bounds else _dump(bound_to_json(chunk.to)),
                }
                for chunk in chunks
            ]
            session.cursor().executemany(read_sql("insert_load_chunk"), rows)
            return [StoredChunk(chunk) for chunk in chunks]

    def reset_chunks(self, plan: WindowPlan, source: TableName, numbers: Collection[int]) -> None:
        """Mark chunks to be read again. Refuses all attempts but the latest."""
        with open_transaction(self._at, str(source)) as session:
            fence(session, plan)
            session.execute(
                read_sql("reset_load_chunks"),
                {"window_id": plan.window_id, **source_parameters(source), "numbers": list(numbers)},
            )

    def extend_window(self, plan: WindowPlan, end: LogEntry) -> WindowPlan:
        """Move the end of a PLANNED window without first loads up to what its load has read. Return the plan.

        Refuses all attempts but the latest.
        """
        extended = plan.extended_to(end)
        with open_transaction(self._at, f"window {plan.window_id}") as session:
            fence(session, plan)
            query(
                session,
                "extend_window",
                window_id=plan.window_id,
                to_lsn=end.position.value,
                to_lsn_at=end.committed_at,
                plan=Jsonb(plan_to_json(extended)),
            )
        return extended

    def record_reads(
        self,
        plan: WindowPlan,
        read_rows: Mapping[TableName, int],
        read_finished_at: datetime | None = None,
        read_to: Position | None = None,
        read_to_at: datetime | None = None,
        *,
        members: Mapping[TableName, Sequence[MemberRead]] | None = None,
    ) -> None:
        """Record the rows read per table, before the merge. Refuses all attempts but the latest.

        members: the examined members of feeds that have some. Their verdicts count at once, their marks move when the
        window advances.

        read_finished_at: the server local time after which no row was committed that was read, for the consistency of
        first loads; None where no row is newer than ``read_to``. read_to: the newest position then. read_to_at: its
        commit time.
        """
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
                    read_lsn=read_to and read_to.value,
                    read_lsn_at=read_to_at,
                )

    def record_staged(self, plan: WindowPlan, source: TableName, parts: Sequence[StagedPart]) -> None:
        """Record chunks that are in staging, where the warehouse has not done so itself.

        Refuses all attempts but the latest.
        """
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
        """Set a window to MERGED, with its counts, where the warehouse has not done so itself.

        Return the counts with the recorded number of rows read. Refuses all attempts but the latest.
        """
        with open_transaction(self._at, f"window {plan.window_id}") as session:
            fence(session, plan)
            return mark_merged(session, plan, counts)

    def record_gap(self, pipeline: str, gap: Gap, watermark: Position | None) -> None:
        """Record a gap. It is kept until a load of the whole table has closed it. A table has one gap at a time.

        watermark: the watermark of the table at the check. Nothing is recorded where it has moved since.
        """
        with open_transaction(self._at, pipeline) as session:
            query(
                session,
                "record_gap",
                pipeline=pipeline,
                **source_parameters(gap.table),
                verdict=gap.verdict.value,
                cause=gap.cause,
                after_lsn=gap.after and gap.after.value,
                to_lsn=gap.to and gap.to.value,
                after_at=gap.after_at,
                to_at=gap.to_at,
                watermark=watermark and watermark.value,
            )

    def read_load_progress(self, window_id: int) -> Mapping[TableName, LoadProgress]:
        """Return the progress of the tables of a window whose chunks are planned."""
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


# --------------------------------------------------------------------------------------------------------------------
# ``ReplayQueries``: the queries of the ledger that only replays need. Part of ``PostgresLedger``.


class ReplayQueries:
    """The part of ``PostgresLedger`` for replays. It holds no session: each method is one transaction of its own."""

    _at: WarehouseConnection

    def list_whole_loads(self, pipeline: str) -> Mapping[TableName, WholeLoad]:
        """Return the newest published load of all rows of each table."""
        rows = self._replay_rows(pipeline, "list_whole_loads")
        return {
            _source(row): WholeLoad(row["window_id"], read_position(row["to_lsn"]), row["to_lsn_at"]) for row in rows
        }

    def list_forgotten(self, pipeline: str) -> Mapping[TableName, Position]:
        """Return up to where changes are not merged again, for each table of which a key was forgotten there."""
        return {_source(row): read_position(row["lsn"]) for row in self._replay_rows(pipeline, "list_forgotten")}

    def list_server_net_ends(self, pipeline: str, position: Position) -> Mapping[TableName, Position]:
        """Return the end of the window that ``position`` lies inside of, for each table whose net changes the server
        computed in it."""
        rows = self._replay_rows(pipeline, "list_server_net_ends", lsn=position.value)
        return {_source(row): read_position(row["to_lsn"]) for row in rows}

    def list_next_begins(self, pipeline: str, position: Position) -> Mapping[TableName, Position]:
        """Return the beginning of the next window, for each table without a window around ``position``."""
        rows = self._replay_rows(pipeline, "list_next_begins", lsn=position.value)
        return {_source(row): read_position(row["after_lsn"]) for row in rows}

    def _replay_rows(self, pipeline: str, statement: str, **parameters: Any) -> list[DictRow]:
        with open_transaction(self._at, pipeline) as session:
            cursor = session.cursor(row_factory=dict_row)
            return cursor.execute(read_sql(statement), {"pipeline": pipeline, **parameters}).fetchall()


def _source(row: DictRow) -> TableName:
    return TableName(row["source_schema"], row["source_name"])


# --------------------------------------------------------------------------------------------------------------------
# ``VerdictRecords``: the verdicts on tables, and tables that a load or a check refuses. Part of ``PostgresLedger``.


class VerdictRecords:
    """The part of ``PostgresLedger`` for verdicts. It holds no session: each method is one transaction of its own."""

    _at: WarehouseConnection

    def record_verdicts(self, pipeline: str, validities: Sequence[Validity]) -> None:
        """Record the verdict on each table, with its cause and its hint."""
        with open_transaction(self._at, pipeline) as session:
            _record(session, pipeline, validities)

    def refuse_merged(self, window_id: int, refused: Sequence[Validity]) -> WindowPlan | None:
        """Record the verdicts on tables that the checks refuse, and remove them from their MERGED window, in one
        transaction.

        Return the plan that is left; None where no other table is left: the window then stays as it is, so that it can
        be checked again. A window in another state is returned unchanged.
        """
        with open_transaction(self._at, f"window {window_id}") as session:
            window = one_window(session, "lock_window", window_id)
            if window.state is not WindowState.MERGED:
                return window.plan
            out = {validity.table for validity in refused}
            _record(session, window.plan.pipeline, refused)
            if out.issuperset(table.source for table in window.plan.tables):
                return None
            return _remove_merged(session, window.plan, out)

    def mark_refused(self, window_id: int) -> None:
        """Record that the checks refused a window of another lane than the main one, which is still MERGED."""
        with open_transaction(self._at, f"window {window_id}") as session:
            query(session, "mark_refused", window_id=window_id)

    def drop_merged(self, window_id: int) -> None:
        """Delete a window that is still MERGED and whose tables have all been refused; no watermark moves."""
        with open_transaction(self._at, f"window {window_id}") as session:
            window = one_window(session, "lock_window", window_id)
            if window.state is WindowState.MERGED:
                _remove_merged(session, window.plan, {table.source for table in window.plan.tables})
                query(session, "drop_merged_window", window_id=window_id)

    def refuse_tables(self, plan: WindowPlan, refused: Sequence[Validity]) -> WindowPlan | None:
        """Record the verdicts on tables that a load refuses, and remove them from its window, in one transaction.

        The attempt stays the same, so that what it has staged of the others is merged. Return the plan that is left;
        None where no other table is left: the window then stays as it is. Refuses all attempts but the latest.
        """
        out = {validity.table for validity in refused}
        kept = tuple(table for table in plan.tables if table.source not in out)
        with open_transaction(self._at, f"window {plan.window_id}") as session:
            fence(session, plan)
            _record(session, plan.pipeline, refused)
            if not kept:
                return None
            left = dataclasses.replace(plan, tables=kept)
            query(session, "store_plan", window_id=plan.window_id, plan=Jsonb(plan_to_json(left)))
            for name in out:
                query(session, "leave_out_table", window_id=plan.window_id, **source_parameters(name))
        return left

    def list_stopped(self, pipeline: str) -> Sequence[Validity]:
        """Return the recorded verdicts that leave a table out, without tables that are being reloaded or have been."""
        with open_transaction(self._at, pipeline) as session:
            rows = query(session, "list_stopped", pipeline=pipeline, stops=[verdict.value for verdict in LEFT_OUT])
        return [
            Validity(
                TableName(row["source_schema"], row["source_name"]),
                Verdict(row["verdict"]),
                row["cause"],
                row["hint"],
                _position(row["watermark"]),
                _position(row["min_lsn"]),
                _position(row["max_lsn"]),
            )
            for row in rows
        ]


def _remove_merged(session: psycopg.Connection, plan: WindowPlan, out: Collection[TableName]) -> WindowPlan:
    """Remove tables from a merged window. Return the plan without them.

    The target has the rows of a first load already. The next one must sweep those that the source has deleted since.
    """
    left = dataclasses.replace(plan, tables=tuple(table for table in plan.tables if table.source not in out))
    query(session, "store_plan", window_id=plan.window_id, plan=Jsonb(plan_to_json(left)))
    for name in out:
        query(session, "record_unpublished_load", window_id=plan.window_id, **source_parameters(name))
        query(session, "leave_out_table", window_id=plan.window_id, **source_parameters(name))
    return left


def _record(session: psycopg.Connection, pipeline: str, validities: Sequence[Validity]) -> None:
    """Record verdicts by one statement: every run has one for each table of its pipeline."""
    ordered = sorted(validities, key=lambda validity: validity.table)
    query(
        session,
        "record_verdicts",
        pipeline=pipeline,
        **source_arrays([each.table for each in ordered]),
        verdicts=[each.verdict.value for each in ordered],
        causes=[each.cause for each in ordered],
        hints=[each.hint for each in ordered],
        watermarks=[_bytes(each.watermark) for each in ordered],
        min_lsns=[_bytes(each.oldest) for each in ordered],
        max_lsns=[_bytes(each.newest) for each in ordered],
    )


def _position(value: bytes | None) -> Position | None:
    return None if value is None else read_position(bytes(value))
