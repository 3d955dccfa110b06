"""``PostgresLedger``: the ledger in the warehouse's own database, so that a merge and its record are one transaction.

This module decides which steps a window takes and when; the first and the last are in ``ledger.steps``. The tables are
in ``postgres/sql/schema.sql``. The merge writes the step to MERGED (``ledger.steps.mark_merged``).
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING

import psycopg
from psycopg.rows import DictRow, dict_row
from psycopg.types.json import Jsonb

from floodmark.core.errors import OperatorError, WatermarkConflictError, WindowBusyError
from floodmark.core.patterns import Listed, ListedTable
from floodmark.core.plan import MAIN_LANE, TableCounts, TablePlan, WindowPlan, WindowState, is_replay_lane
from floodmark.core.plan_json import plan_to_json
from floodmark.core.planning import NO_MEASURES, PlanMeasures
from floodmark.core.position import Position, read_position
from floodmark.core.schema import MappedColumn, TableName
from floodmark.core.settings import Rule
from floodmark.core.snapshot import DatabaseIdentity, FeedIdentity, LogEntry, TableState, Verdict
from floodmark.core.status import TableMark
from floodmark.postgres.ledger.schema import (
    MemberRecords,
    ensure_schema,
    find_readable_fault,
    lock_watermarks,
    one_window,
    opened_window,
    record_definitions,
    refuse_left_instances,
    refuse_other_lanes,
    with_marks,
)
from floodmark.postgres.ledger.steps import (
    LoadRecords,
    ReplayQueries,
    VerdictRecords,
    finish_table,
    insert_window,
)
from floodmark.postgres.session import open_session, open_transaction, query, source_arrays, source_parameters
from floodmark.postgres.sql import read_sql
from floodmark.sync.records import OpenedWindow

if TYPE_CHECKING:
    from floodmark.postgres.session import WarehouseConnection

# --------------------------------------------------------------------------------------------------------------------
# ``DatabaseRecords``: the database that each pipeline follows. Part of ``PostgresLedger``.


class DatabaseRecords:
    """The part of ``PostgresLedger`` for the followed databases. Each method is one transaction of its own."""

    _at: WarehouseConnection

    def read_database(self, pipeline: str) -> DatabaseIdentity | None:
        """Return the database that a pipeline follows; None where none is recorded."""
        with open_transaction(self._at, pipeline) as session:
            cursor = session.cursor(row_factory=dict_row)
            row = cursor.execute(read_sql("read_database"), {"pipeline": pipeline}).fetchone()
        return database_of(row) if row else None

    def record_database(self, pipeline: str, known: DatabaseIdentity | None, found: DatabaseIdentity) -> None:
        """Record the database of a pipeline.

        Where another one than ``known`` is recorded, and a watermark was read from it, nothing happens.
        """
        before = {f"known_{name}": value for name, value in _named(known).items()}
        with open_transaction(self._at, pipeline) as session:
            session.execute(read_sql("record_database"), {"pipeline": pipeline, **before, **_named(found)})

    def confirm_database(self, pipeline: str, found: DatabaseIdentity, confirmed_by: str) -> None:
        """Record the decision of an operator that a pipeline follows this database from now on."""
        named = {"pipeline": pipeline, "confirmed_by": confirmed_by, **_named(found)}
        with open_transaction(self._at, pipeline) as session:
            session.execute(read_sql("confirm_database"), named)


def database_of(row: DictRow) -> DatabaseIdentity | None:
    """Return the database of a row with the columns of ``followed_databases``; None where they are NULL."""
    if row["server_name"] is None:
        return None
    return DatabaseIdentity(
        row["server_name"], row["database_name"], _text(row["database_guid"]), _text(row["group_database_id"])
    )


def _named(identity: DatabaseIdentity | None) -> dict[str, str | None]:
    if identity is None:
        return dict.fromkeys(("server", "database", "guid", "group_id"))
    return {
        "server": identity.server,
        "database": identity.database,
        "guid": identity.guid,
        "group_id": identity.group_id,
    }


def _text(value: object) -> str | None:
    return None if value is None else str(value)


# --------------------------------------------------------------------------------------------------------------------


class PatternRecords:
    """The part of ``PostgresLedger`` for the tables that patterns match. Each method is one transaction of its own."""

    _at: WarehouseConnection

    def list_pattern_tables(self, pipeline: str) -> Sequence[ListedTable]:
        """Return the tables that the patterns of a pipeline matched at its last run; none where there is no ledger."""
        with open_transaction(self._at, pipeline) as session:
            if not query(session, "has_pattern_tables")[0]["found"]:
                return []
            rows = query(session, "list_pattern_tables", pipeline=pipeline)
        return [
            ListedTable(TableName(row["source_schema"], row["source_name"]), row["pattern"], Listed(row["state"]))
            for row in rows
        ]

    def record_pattern_tables(self, pipeline: str, listed: Collection[ListedTable]) -> None:
        """Record these tables in the place of those that were recorded."""
        rows = sorted(listed, key=lambda each: each.table)
        named = {"pipeline": pipeline, **source_arrays(each.table for each in rows)}
        patterns, states = [each.pattern for each in rows], [each.state.value for each in rows]
        with open_transaction(self._at, pipeline) as session:
            query(session, "forget_pattern_tables", **named)
            query(session, "record_pattern_tables", **named, patterns=patterns, states=states)


# Separates Floodmark's advisory locks from those of other programs. Arbitrary, and fixed.
_LOAD_LOCK = 0x46_4C_4F_44


Publish = Callable[[WindowPlan, psycopg.Connection], None]
"""What makes a window visible in the open transaction of the ledger."""
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
    "pattern_tables",
    "forgotten",
)
"""The tables of the ledger with a column ``pipeline``."""
OF_A_TARGET = ("tables", "tombstones", "quarantine", "forgotten")
"""The tables of the ledger with the name of a target."""


class PostgresLedger(LoadRecords, MemberRecords, VerdictRecords, ReplayQueries, DatabaseRecords, PatternRecords):
    """The record of windows and watermarks. It holds no session: each method is one transaction of its own."""

    def __init__(self, connection: WarehouseConnection) -> None:
        self._at = connection

    def ensure_schema(self) -> None:
        """Create the ledger's tables where they are missing. Several processes may do so at once."""
        ensure_schema(self._at)

    def read_tables(self, pipeline: str) -> Mapping[TableName, TableState]:
        """Return the states of the tables that runs of the pipeline have registered."""
        with open_transaction(self._at, pipeline) as session:
            rows = query(session, "read_tables", pipeline=pipeline)
            states = [_table_state(row, find_readable_fault(session, pipeline, row)) for row in rows]
        return {state.source: state for state in states}

    def unfinished_window(self, pipeline: str, lane: str = MAIN_LANE) -> OpenedWindow | None:
        """Return the unfinished window of a lane; None where all windows are finished."""
        with open_transaction(self._at, pipeline) as session:
            rows = query(session, "unfinished_window", pipeline=pipeline, lane=lane)
        return opened_window(rows[0]) if rows else None

    def list_unfinished(self, pipeline: str) -> Sequence[OpenedWindow]:
        """Return the unfinished windows of all lanes, the oldest first."""
        with open_transaction(self._at, pipeline) as session:
            return [opened_window(row) for row in query(session, "list_unfinished", pipeline=pipeline)]

    def open_window(
        self,
        pipeline: str,
        to: Position,
        tables: Sequence[TablePlan],
        to_at: datetime | None = None,
        lane: str = MAIN_LANE,
        *,
        measures: PlanMeasures = NO_MEASURES,
    ) -> WindowPlan:
        """Write the plan of a new window, before any row is read.

        Raises WatermarkConflictError when a window of the lane is unfinished, and WindowBusyError when a window of
        another lane holds a table whose watermark this window will move.
        to_at: commit time of ``to``, server local time. measures: for the history alone.
        """
        with open_transaction(self._at, pipeline) as session:
            return insert_window(session, pipeline, lane, LogEntry(to, to_at), tables, measures=measures)

    def record_run(self, window_id: int, dag_id: str, run_id: str) -> None:
        """Record the run of Airflow that works on a window, in place of an earlier one."""
        with open_transaction(self._at, f"window {window_id}") as session:
            query(session, "record_run", window_id=window_id, dag_id=dag_id, run_id=run_id)

    def read_window(self, window_id: int) -> OpenedWindow:
        """Return a window. Raises OperatorError for an unknown one."""
        with open_transaction(self._at, f"window {window_id}") as session:
            return one_window(session, "read_window", window_id)

    def replace_rules(self, window_id: int, rules: Mapping[TableName, tuple[Rule, ...]]) -> WindowPlan:
        """Replace the rules of a window that is still PLANNED by those given; other tables keep their rules."""
        with open_transaction(self._at, f"window {window_id}") as session:
            window = one_window(session, "lock_window", window_id)
            tables = tuple(
                table.with_rules(rules.get(table.source, table.settings.rules)) for table in window.plan.tables
            )
            plan = dataclasses.replace(window.plan, tables=tables)
            if window.state is not WindowState.PLANNED or plan == window.plan:
                return window.plan
            query(session, "store_plan", window_id=window_id, plan=Jsonb(plan_to_json(plan)))
        return plan

    def leave_out(self, window_id: int, tables: Collection[TableName]) -> WindowPlan | None:
        """Remove tables from a window that is still PLANNED; their watermarks do not move.

        A running load of the window can no longer merge. Return None where no table was left; the window is deleted.
        """
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
        """Keep other processes from loading the window during the block, as long as this process lives.

        Raises WindowBusyError when another process loads it. A hold that is lost with its connection does no harm:
        attempts still fence loads off from each other.
        """
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
        """Start a new attempt at a PLANNED window; loads with the plan of an earlier attempt can no longer merge.

        A window in a later state is returned unchanged.
        """
        with open_transaction(self._at, f"window {window_id}") as session:
            window = one_window(session, "lock_window", window_id)
            if window.state is not WindowState.PLANNED:
                return window
            attempt = query(session, "begin_load", window_id=window_id)[0]["attempt"]
            plan = with_marks(session, dataclasses.replace(window.plan, attempt=attempt))
        return OpenedWindow(plan, window.state)

    def read_counts(self, window_id: int) -> Mapping[TableName, TableCounts]:
        """Return the counts of a merged window."""
        with open_transaction(self._at, f"window {window_id}") as session:
            return _counts(session, window_id)

    def mark_checked(self, window_id: int) -> None:
        """Set a MERGED window to CHECKED; a later state is kept. Raises OperatorError for a PLANNED window."""
        with open_transaction(self._at, f"window {window_id}") as session:
            window = one_window(session, "lock_window", window_id)
            if window.state is WindowState.PLANNED:
                raise OperatorError(f"window {window_id}", "it has not been merged, so it cannot have been checked.")
            if window.state is WindowState.MERGED:
                query(session, "mark_checked", window_id=window_id)

    def advance(self, window_id: int, publish: Publish | None = None) -> Mapping[TableName, TableCounts]:
        """Move every table's watermark from the planned one to ``to`` and finish the window, in one transaction.

        A replay and a reload of some rows move none. Repeating it is harmless. publish: publishes a window that is not
        finished, in the same transaction. Raises WatermarkConflictError when a watermark is neither the planned one nor
        ``to``, and what ``publish`` raises.
        """
        with open_transaction(self._at, f"window {window_id}") as session:
            window = one_window(session, "lock_window", window_id)
            if window.state in (WindowState.PLANNED, WindowState.MERGED):
                raise OperatorError(
                    window.plan.pipeline,
                    f"window {window_id} is {window.state.value}, not checked.",
                    "The watermark does not move until the checks have passed.",
                )
            if window.state is WindowState.CHECKED:
                if publish is not None:
                    publish(window.plan, session)
                    record_definitions(session, window.plan, window.plan.tables)
                if not is_replay_lane(window.plan.lane):
                    for table in sorted(window.plan.tables, key=lambda table: table.source):
                        finish_table(session, window.plan, table)
                    query(session, "add_totals", window_id=window_id)
                query(session, "mark_advanced", window_id=window_id)
            return _counts(session, window_id)

    def rename_pipeline(self, name: str, to: str) -> Sequence[TableName]:
        """Give all that is recorded of a pipeline another name, and return its tables.

        Raises OperatorError for a pipeline without tables or a name that has tables, WindowBusyError while a load of
        the pipeline runs.
        """
        with open_transaction(self._at, name) as session:
            found = query(session, "lock_pipeline", pipeline=name)
            tables = [TableName(row["source_schema"], row["source_name"]) for row in found]
            if not tables:
                raise OperatorError(name, "the ledger has no table of this pipeline.", "Name it as it was before.")
            if query(session, "lock_pipeline", pipeline=to):
                raise OperatorError(to, "the ledger has tables of this pipeline already.", "Choose another name.")
            _refuse_running(session, name)
            # What a first run under the new name, which was refused, has recorded.
            for table in ("verdicts", "followed_databases", "pattern_tables"):
                session.execute(f"DELETE FROM floodmark.{table} WHERE pipeline = %s", [to])  # noqa: S608  (a constant)
            for table in OF_A_PIPELINE:
                session.execute(f"UPDATE floodmark.{table} SET pipeline = %s WHERE pipeline = %s", [to, name])  # noqa: S608
            query(session, "rename_plans", name=to)
            query(session, "end_alerts_of_pipeline", pipeline=name)
        return tables

    def rename_target(
        self,
        pipeline: str,
        source: TableName,
        to: TableName,
        move: Callable[[psycopg.Connection, TableName, TableName], None] | None = None,
    ) -> TableName:
        """Give all that is recorded of a table's target another name, and return the one before.

        The target itself has it already, or gets it before the next merge. Raises OperatorError for a table that is not
        known or has the name, and for the target of another table; WindowBusyError while a load of the pipeline runs.
        move: renames the target in the same transaction, by its names of before and of now.
        """
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
            if move is not None:
                move(session, known, to)
        return known

    def delete_old_windows(self, pipeline: str, keep_seconds: float, at_most: int) -> int:
        """Delete some published windows that are older, with their counts. Return how many.

        The totals of a table stay, and so do the newest window of each table and the loads of whole tables.
        """
        with open_transaction(self._at, pipeline) as session:
            named = {"pipeline": pipeline, "keep_seconds": keep_seconds, "at_most": at_most}
            return session.execute(read_sql("delete_old_windows"), named).rowcount

    def advance_quiet(
        self,
        pipeline: str,
        to: Position,
        watermarks: Mapping[TableName, Position],
        to_at: datetime | None = None,
        feeds: Mapping[TableName, FeedIdentity] | None = None,
    ) -> None:
        """Move watermarks over an interval of the log without changes of these tables, without a window.

        feeds: the feeds that have no change there; another one may have some.
        Raises WatermarkConflictError when a watermark is not the given one, a table has left its capture instance, or a
        window of the main lane is unfinished, and WindowBusyError when a load lane holds one of the tables.
        """
        with open_transaction(self._at, pipeline) as session:
            lock_watermarks(session, pipeline, watermarks)
            if feeds is not None:
                refuse_left_instances(session, pipeline, feeds)
            refuse_other_lanes(session, pipeline, MAIN_LANE, watermarks)
            # After the row locks: a window opened before them is visible, one opened later reads these watermarks.
            if unfinished := query(session, "unfinished_window", pipeline=pipeline, lane=MAIN_LANE):
                raise WatermarkConflictError(pipeline, f"window {unfinished[0]['window_id']} is not finished.")
            moved = source_arrays(watermarks)
            query(session, "advance_quiet", pipeline=pipeline, **moved, to_lsn=to.value, to_lsn_at=to_at)

    def list_table_marks(self, pipeline: str) -> Sequence[TableMark]:
        """Return the marks of the tables that a run has included. The ledger must exist."""
        with open_transaction(self._at, pipeline) as session:
            rows = query(session, "list_table_marks", pipeline=pipeline)
        return [
            TableMark(
                TableName(row["source_schema"], row["source_name"]),
                read_position(bytes(row["watermark"])) if row["watermark"] else None,
                row["watermark_at"],
                Verdict(row["verdict"]) if row["verdict"] else None,
            )
            for row in rows
        ]

    def read_window_seconds(self, window_id: int) -> float | None:
        """Return the time from planning to publication, failed runs included; None while the window is unfinished."""
        with open_transaction(self._at) as session:
            row = session.execute(read_sql("read_window_seconds"), {"window_id": window_id}).fetchone()
        return float(row[0]) if row else None


def _refuse_running(session: psycopg.Connection, pipeline: str) -> None:
    """Raise WindowBusyError while a load of the pipeline runs. No load begins until the transaction ends."""
    for row in query(session, "list_unfinished", pipeline=pipeline):
        if is_being_loaded(session, row["window_id"]):
            raise WindowBusyError(pipeline, f"window {row['window_id']} is being loaded.", "Nothing was renamed.")


def is_being_loaded(session: psycopg.Connection, window_id: int) -> bool:
    """Return whether a load of a window runs. Where none does, none begins until the transaction ends."""
    free = session.execute("SELECT pg_try_advisory_xact_lock(%s, %s)", _load_lock(window_id)).fetchone()
    return free != (True,)


def _load_lock(window_id: int) -> tuple[int, int]:
    return _LOAD_LOCK, window_id & 0x7FFFFFFF


def _holder(session: psycopg.Connection, window_id: int) -> str:
    classid, objid = _load_lock(window_id)
    found = query(session, "load_holder", classid=classid, objid=objid)
    return f" (from {found[0]['client']}, since {found[0]['since']:%Y-%m-%d %H:%M:%S} UTC)" if found else ""


def _table_state(row: DictRow, target_fault: str) -> TableState:
    identity = None
    if row["instance_name"] is not None:
        identity = FeedIdentity(
            row["instance_name"], row["instance_object_id"], row["instance_created_at"], row["instance_store_id"]
        )
    watermark = read_position(row["watermark"]) if row["watermark"] is not None else None
    source = TableName(row["source_schema"], row["source_name"])
    read_to = read_position(row["read_lsn"]) if row["read_lsn"] is not None else None
    return TableState(
        source,
        watermark,
        identity,
        row["consistent"],
        row["watermark_at"],
        read_to,
        row["read_lsn_at"],
        database_of(row),
        target_fault,
        tuple(MappedColumn(*names) for names in (row["column_names"] or {}).items()),
        TableName(row["target_schema"], row["target_name"]),
        row["definition"] or {},
    )


def _counts(session: psycopg.Connection, window_id: int) -> Mapping[TableName, TableCounts]:
    rows = query(session, "read_counts", window_id=window_id)
    return {TableName(row.pop("source_schema"), row.pop("source_name")): TableCounts(**row) for row in rows}


# --------------------------------------------------------------------------------------------------------------------
# ``PostgresUpkeepLedger``: the records of a source's upkeep, in the ledger.


class PostgresUpkeepLedger:
    """The stops of capture jobs that ended early. It creates the ledger's tables when it first writes to them."""

    def __init__(self, connection: WarehouseConnection) -> None:
        self._at = connection

    def read_ended_stop(self, source: str, since: datetime) -> str:
        """Return the reason of an ended stop; an empty text also where there is no ledger: a read creates none."""
        with open_transaction(self._at, source) as session:
            exists = session.execute("SELECT to_regclass('floodmark.ended_stops') IS NOT NULL").fetchone()
            if exists is None or not exists[0]:
                return ""
            row = session.execute(read_sql("read_ended_stop"), {"source": source, "since": since}).fetchone()
        return str(row[0]) if row else ""

    def record_ended_stop(self, source: str, since: datetime, reason: str) -> None:
        """Record why a stop was ended early. Repeating it is harmless: the first reason is kept."""
        ensure_schema(self._at)
        with open_transaction(self._at, source) as session:
            session.execute(read_sql("record_ended_stop"), {"source": source, "since": since, "reason": reason})
