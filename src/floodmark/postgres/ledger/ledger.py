"""``PostgresLedger``: the ledger in the warehouse's own database, so that a merge and its record are one transaction.

This module decides which steps a window takes and when; the first and the last are in ``ledger.steps``. The tables are
in ``postgres/sql/schema/ensure_schema.sql``. The merge writes the step to MERGED (``ledger.loads.mark_merged``).
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime

import psycopg
from psycopg.rows import DictRow
from psycopg.types.json import Jsonb

from floodmark.core.errors import OperatorError, WatermarkConflictError, WindowBusyError
from floodmark.core.policies import Rule
from floodmark.core.position import Position
from floodmark.core.positions import read_position
from floodmark.core.schema import TableName
from floodmark.core.source.feed import InstanceIdentity
from floodmark.core.source.history import LogEntry
from floodmark.core.source.state import TableState
from floodmark.core.window.lane import MAIN_LANE, is_replay_lane
from floodmark.core.window.measures import NO_MEASURES, PlanMeasures
from floodmark.core.window.plan import TableCounts, TablePlan, WindowPlan, WindowState
from floodmark.core.window.plan_json import plan_to_json
from floodmark.postgres.ledger.claims import lock_watermarks, refuse_left_instances, refuse_other_lanes
from floodmark.postgres.ledger.databases import DatabaseRecords, database_of
from floodmark.postgres.ledger.loads import LoadRecords
from floodmark.postgres.ledger.members import MemberRecords, with_marks
from floodmark.postgres.ledger.opened import one_window, opened_window
from floodmark.postgres.ledger.replays import ReplayQueries
from floodmark.postgres.ledger.schema import ensure_schema
from floodmark.postgres.ledger.steps import finish_table, insert_window
from floodmark.postgres.ledger.target_marks import find_readable_fault
from floodmark.postgres.ledger.verdicts import VerdictRecords
from floodmark.postgres.session import Reachable, open_session, open_transaction
from floodmark.postgres.sql import read_sql
from floodmark.postgres.statements import query, source_arrays, source_parameters
from floodmark.sync.ports.ledger import OpenedWindow

# Separates Floodmark's advisory locks from those of other programs. Arbitrary, and fixed.
_LOAD_LOCK = 0x46_4C_4F_44


OF_A_PIPELINE = (
    "tables",
    "windows",
    "members",
    "quarantined_messages",
    "gaps",
    "verdicts",
    "quarantine",
    "switched_pipelines",
    "drift_holds",
    "followed_databases",
)
"""The tables of the ledger with a column ``pipeline``."""
OF_A_TARGET = ("tables", "tombstones", "quarantine")
"""The tables of the ledger with the name of a target."""


class PostgresLedger(LoadRecords, MemberRecords, VerdictRecords, ReplayQueries, DatabaseRecords):
    """``sync.ports.ledger.Ledger``. It holds no session: each method is one transaction of its own."""

    def __init__(self, connection: Reachable) -> None:
        self._at = connection

    def ensure_schema(self) -> None:
        ensure_schema(self._at)

    def read_tables(self, pipeline: str) -> Mapping[TableName, TableState]:
        with open_transaction(self._at, pipeline) as session:
            rows = query(session, "read_tables", pipeline=pipeline)
            states = [_table_state(row, find_readable_fault(session, pipeline, row)) for row in rows]
        return {state.source: state for state in states}

    def unfinished_window(self, pipeline: str, lane: str = MAIN_LANE) -> OpenedWindow | None:
        with open_transaction(self._at, pipeline) as session:
            rows = query(session, "unfinished_window", pipeline=pipeline, lane=lane)
        return opened_window(rows[0]) if rows else None

    def list_unfinished(self, pipeline: str) -> Sequence[OpenedWindow]:
        with open_transaction(self._at, pipeline) as session:
            return [opened_window(row) for row in query(session, "list_unfinished", pipeline=pipeline)]

    def open_window(
        self,
        pipeline: str,
        to_lsn: Position,
        tables: Sequence[TablePlan],
        to_lsn_at: datetime | None = None,
        lane: str = MAIN_LANE,
        *,
        measures: PlanMeasures = NO_MEASURES,
    ) -> WindowPlan:
        with open_transaction(self._at, pipeline) as session:
            return insert_window(session, pipeline, lane, LogEntry(to_lsn, to_lsn_at), tables, measures=measures)

    def record_run(self, window_id: int, dag_id: str, run_id: str) -> None:
        with open_transaction(self._at, f"window {window_id}") as session:
            query(session, "record_run", window_id=window_id, dag_id=dag_id, run_id=run_id)

    def read_window(self, window_id: int) -> OpenedWindow:
        with open_transaction(self._at, f"window {window_id}") as session:
            return one_window(session, "read_window", window_id)

    def replace_rules(self, window_id: int, rules: Mapping[TableName, tuple[Rule, ...]]) -> WindowPlan:
        with open_transaction(self._at, f"window {window_id}") as session:
            window = one_window(session, "lock_window", window_id)
            tables = tuple(
                dataclasses.replace(table, rules=rules.get(table.source, table.rules)) for table in window.plan.tables
            )
            plan = dataclasses.replace(window.plan, tables=tables)
            if window.state is not WindowState.PLANNED or plan == window.plan:
                return window.plan
            query(session, "store_plan", window_id=window_id, plan=Jsonb(plan_to_json(plan)))
        return plan

    def leave_out(self, window_id: int, tables: Collection[TableName]) -> WindowPlan | None:
        with open_transaction(self._at, f"window {window_id}") as session:
            window = one_window(session, "lock_window", window_id)
            kept = tuple(table for table in window.plan.tables if table.source not in tables)
            if window.state is not WindowState.PLANNED or len(kept) == len(window.plan.tables):
                return window.plan
            if not kept:
                query(session, "drop_window", window_id=window_id)
                return None
            # A new attempt fences off a load that has read with the old plan.
            attempt = query(session, "begin_load", window_id=window_id)[0]["attempt"]
            plan = dataclasses.replace(window.plan, tables=kept, attempt=attempt)
            query(session, "store_plan", window_id=window_id, plan=Jsonb(plan_to_json(plan)))
            for source in tables:
                query(session, "leave_out_table", window_id=window_id, **source_parameters(source))
        return plan

    @contextmanager
    def hold_load(self, window_id: int) -> Iterator[None]:
        """Hold a session's advisory lock, which the server releases as soon as this process ends."""
        subject = f"window {window_id}"
        with open_session(self._at, subject) as session:
            row = session.execute("SELECT pg_try_advisory_lock(%s, %s)", _load_lock(window_id)).fetchone()
            if not row or not row[0]:
                raise WindowBusyError(
                    subject,
                    f"another load of it is running{_holder(session, window_id)}.",
                    "When that load has ended, the window is merged or free again.",
                )
            try:
                yield
            finally:
                # The end of the session releases it too, but maybe after the next load has asked for it.
                with contextlib.suppress(psycopg.Error):
                    session.execute("SELECT pg_advisory_unlock(%s, %s)", _load_lock(window_id))

    def begin_load(self, window_id: int) -> OpenedWindow:
        with open_transaction(self._at, f"window {window_id}") as session:
            window = one_window(session, "lock_window", window_id)
            if window.state is not WindowState.PLANNED:
                return window
            attempt = query(session, "begin_load", window_id=window_id)[0]["attempt"]
            plan = with_marks(session, dataclasses.replace(window.plan, attempt=attempt))
        return OpenedWindow(plan, window.state)

    def read_counts(self, window_id: int) -> Mapping[TableName, TableCounts]:
        with open_transaction(self._at, f"window {window_id}") as session:
            return _counts(session, window_id)

    def mark_checked(self, window_id: int) -> None:
        with open_transaction(self._at, f"window {window_id}") as session:
            window = one_window(session, "lock_window", window_id)
            if window.state is WindowState.PLANNED:
                raise OperatorError(f"window {window_id}", "it has not been merged, so it cannot have been checked.")
            if window.state is WindowState.MERGED:
                query(session, "mark_checked", window_id=window_id)

    def advance(self, window_id: int) -> Mapping[TableName, TableCounts]:
        with open_transaction(self._at, f"window {window_id}") as session:
            window = one_window(session, "lock_window", window_id)
            if window.state in (WindowState.PLANNED, WindowState.MERGED):
                raise OperatorError(
                    window.plan.pipeline,
                    f"window {window_id} is {window.state.value}, not checked.",
                    "The watermark does not move until the checks have passed.",
                )
            if window.state is WindowState.CHECKED:
                if not is_replay_lane(window.plan.lane):
                    for table in sorted(window.plan.tables, key=lambda table: table.source):
                        finish_table(session, window.plan, table)
                    query(session, "add_totals", window_id=window_id)
                query(session, "mark_advanced", window_id=window_id)
            return _counts(session, window_id)

    def rename_pipeline(self, name: str, to: str) -> Sequence[TableName]:
        with open_transaction(self._at, name) as session:
            found = query(session, "lock_pipeline", pipeline=name)
            tables = [TableName(row["source_schema"], row["source_name"]) for row in found]
            if not tables:
                raise OperatorError(name, "the ledger has no table of this pipeline.", "Name it as it was before.")
            if query(session, "lock_pipeline", pipeline=to):
                raise OperatorError(to, "the ledger has tables of this pipeline already.", "Choose another name.")
            _refuse_running(session, name)
            # What a first run under the new name, which was refused, has recorded.
            for table in ("verdicts", "followed_databases"):
                session.execute(f"DELETE FROM floodmark.{table} WHERE pipeline = %s", [to])  # noqa: S608  (a constant)
            for table in OF_A_PIPELINE:
                session.execute(f"UPDATE floodmark.{table} SET pipeline = %s WHERE pipeline = %s", [to, name])  # noqa: S608
            query(session, "rename_plans", name=to)
            query(session, "end_alerts_of_pipeline", pipeline=name)
        return tables

    def rename_target(self, pipeline: str, source: TableName, to: TableName) -> TableName:
        named = {"pipeline": pipeline, **source_parameters(source)}
        target = {"target_schema": to.schema, "target_name": to.name}
        with open_transaction(self._at, str(source)) as session:
            found = query(session, "lock_table", **named)
            if not found:
                raise OperatorError(str(source), "the ledger does not have it.", "It is a new table: run the pipeline.")
            known = TableName(found[0]["target_schema"], found[0]["target_name"])
            if known == to:
                raise OperatorError(str(source), f"its target is {to} in the ledger already.", "Nothing was renamed.")
            for holder in query(session, "find_target", **target):
                other = f"{holder['source_schema']}.{holder['source_name']} of pipeline {holder['pipeline']}"
                raise OperatorError(str(source), f"the target {to} is that of {other}.", "Choose another target.")
            _refuse_running(session, pipeline)
            before = {"old_schema": known.schema, "old_name": known.name}
            for table in OF_A_TARGET:
                session.execute(
                    f"UPDATE floodmark.{table} SET target_schema = %(target_schema)s, target_name = %(target_name)s"  # noqa: S608
                    " WHERE target_schema = %(old_schema)s AND target_name = %(old_name)s",
                    target | before,
                )
            query(session, "retarget_plans", **named, **target)
        return known

    def delete_old_windows(self, pipeline: str, keep_seconds: float, at_most: int) -> int:
        with open_transaction(self._at, pipeline) as session:
            named = {"pipeline": pipeline, "keep_seconds": keep_seconds, "at_most": at_most}
            return session.execute(read_sql("delete_old_windows"), named).rowcount

    def advance_quiet(
        self,
        pipeline: str,
        to_lsn: Position,
        watermarks: Mapping[TableName, Position],
        to_lsn_at: datetime | None = None,
        instances: Mapping[TableName, InstanceIdentity] | None = None,
    ) -> None:
        with open_transaction(self._at, pipeline) as session:
            lock_watermarks(session, pipeline, watermarks)
            if instances is not None:
                refuse_left_instances(session, pipeline, instances)
            refuse_other_lanes(session, pipeline, MAIN_LANE, watermarks)
            # After the row locks: a window opened before them is visible, one opened later reads these watermarks.
            if unfinished := query(session, "unfinished_window", pipeline=pipeline, lane=MAIN_LANE):
                raise WatermarkConflictError(pipeline, f"window {unfinished[0]['window_id']} is not finished.")
            moved = source_arrays(watermarks)
            query(session, "advance_quiet", pipeline=pipeline, **moved, to_lsn=to_lsn.value, to_lsn_at=to_lsn_at)


def _refuse_running(session: psycopg.Connection, pipeline: str) -> None:
    """Raise WindowBusyError while a load of the pipeline runs. No load begins until the transaction ends."""
    for row in query(session, "list_unfinished", pipeline=pipeline):
        free = session.execute("SELECT pg_try_advisory_xact_lock(%s, %s)", _load_lock(row["window_id"]))
        if free.fetchone() != (True,):
            raise WindowBusyError(pipeline, f"window {row['window_id']} is being loaded.", "Nothing was renamed.")


def _load_lock(window_id: int) -> tuple[int, int]:
    return _LOAD_LOCK, window_id & 0x7FFFFFFF


def _holder(session: psycopg.Connection, window_id: int) -> str:
    classid, objid = _load_lock(window_id)
    found = query(session, "load_holder", classid=classid, objid=objid)
    return f" (from {found[0]['client']}, since {found[0]['since']:%Y-%m-%d %H:%M:%S} UTC)" if found else ""


def _table_state(row: DictRow, target_fault: str) -> TableState:
    identity = None
    if row["instance_name"] is not None:
        identity = InstanceIdentity(
            row["instance_name"], row["instance_object_id"], row["instance_created_at"], row["instance_store_id"]
        )
    watermark = read_position(row["watermark"]) if row["watermark"] is not None else None
    source = TableName(row["source_schema"], row["source_name"])
    read_lsn = read_position(row["read_lsn"]) if row["read_lsn"] is not None else None
    return TableState(
        source,
        watermark,
        identity,
        row["consistent"],
        row["watermark_at"],
        read_lsn,
        row["read_lsn_at"],
        database_of(row),
        target_fault,
    )


def _counts(session: psycopg.Connection, window_id: int) -> Mapping[TableName, TableCounts]:
    rows = query(session, "read_counts", window_id=window_id)
    return {TableName(row.pop("source_schema"), row.pop("source_name")): TableCounts(**row) for row in rows}
