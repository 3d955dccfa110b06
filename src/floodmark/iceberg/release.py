"""The release of rows from quarantine in a lake: merged where no reader and no window sees it, and published at once.

Rows are read from the ledger's database, merged by Spark in a catalog of their own, and published by one transaction,
which settles them in quarantine and writes the window to the ledger. The ledger has no window of a release before
that. So a release that is killed leaves nothing that holds a run up, and the next one begins again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from floodmark.core.errors import FloodmarkBugError, WatermarkConflictError
from floodmark.core.plan import TableCounts, TablePlan, WindowPlan, release_lane
from floodmark.core.recovery import Release
from floodmark.core.schema import POSITION_COLUMN, TableName, keep_column
from floodmark.core.settings import TableSettings
from floodmark.iceberg.history import merge_style
from floodmark.iceberg.lake import RELEASED
from floodmark.iceberg.limits import refuse_unsupported
from floodmark.iceberg.merge import WINDOW, StagedTable, read_summary, spark_errors
from floodmark.iceberg.metadata import refuse_lost
from floodmark.iceberg.quarantine import (
    GatedRows,
    LakeGate,
    hold_rows,
    publish_held,
    stage_waiting,
    waiting_state,
)
from floodmark.iceberg.tables import evolve_table, in_spark, lake_name, spark_name
from floodmark.iceberg.warehouse import IcebergWarehouse
from floodmark.postgres.ledger.schema import ensure_schema, record_definitions, refuse_loads
from floodmark.postgres.session import open_transaction, query
from floodmark.postgres.sql import read_sql
from floodmark.postgres.warehouse.merge import Merge, merge_of, same_key
from floodmark.postgres.warehouse.release import last_plan, newest_load, plan_release, read_outcome, record_release
from floodmark.postgres.warehouse.targets import list_relations

# ruff: noqa: S608  (names are quoted by ``spark_name``)

_OPEN_WITH_NUMBER = """
INSERT INTO floodmark.windows (window_id, pipeline, lane, to_lsn, to_lsn_at, plan)
OVERRIDING SYSTEM VALUE VALUES (%s, %s, %s, %s, %s, '{}')
"""


@dataclass(frozen=True, slots=True)
class ReleaseRows:
    """The rows of a release, as they were read from quarantine."""

    plan: WindowPlan
    """Its window has a number that no other one gets."""
    merge: Merge
    base: Mapping[TableName, str]
    """Where the metadata of the table was; for a history, also that of its ended versions."""
    state: str | None
    """Of the rows that wait."""
    settling: dict[str, Any]
    """The parameters of ``settle_older``."""
    rows: pa.Table
    """The newest of each key."""

    @property
    def planned(self) -> TablePlan:
        """Return the table."""
        return self.plan.tables[0]


@dataclass(frozen=True, slots=True)
class ReleasedRows:
    """The rows of a release, behind the merge."""

    merged: Mapping[TableName, str]
    """Where the metadata of the table is, in the catalog of releases; as ``ReleaseRows.base``."""
    counts: TableCounts | None = None
    """None where no row was merged."""
    quarantined: int = 0
    """Rows that still break a rule."""
    held: Sequence[Path] = ()
    """The rows that still break rules, and those that settle the ones of their keys."""
    passed: Sequence[Path] = ()
    """Events that may be of versions that were deleted for their age."""


class LakeQuarantine:
    """The release from quarantine in a lake. close: ends the Spark that it has opened."""

    def __init__(self, warehouse: IcebergWarehouse, close: Callable[[], None]) -> None:
        self._warehouse = warehouse
        self._at = warehouse.ledger
        self._close = close

    def release(self, pipeline: str, table: TableSettings, by: str) -> Release:
        """Merge the rows of a table that break no rule any more, by the rules in ``table``.

        Of each key only the newest row is merged, and only where the target has no later change of it. Without a row
        that may be merged, no Spark is started. Raises OperatorError for a table that no window has merged;
        WindowBusyError where an unfinished window has merged the table; WatermarkConflictError while the table is
        reloaded, and where it, or the rows that wait, have changed meanwhile; TargetLostError for a table that is not
        the one that was loaded.
        """
        ensure_schema(self._at)
        self._warehouse.catalog.ensure_schema()
        try:
            found = self.read_rows(pipeline, table, by)
            if found is None:
                return Release()
            with self._warehouse.staging.scratch() as folder:
                merged = self.merge_rows(found, folder) if found.rows.num_rows else ReleasedRows(found.base)
                return self.publish(found, merged, by)
        finally:
            self._close()

    def read_rows(self, pipeline: str, table: TableSettings, by: str) -> ReleaseRows | None:
        """Show the table in the catalog of releases, and read what waits in quarantine; None where nothing waits."""
        subject, lane = str(table.source), release_lane(table.source)
        with open_transaction(self._at, subject) as session:
            last = last_plan(session, pipeline, table.source)
            planned = plan_release(last, table)
            plan = replace(last, tables=(planned,), lane=lane, attempt=0)
            refuse_unsupported(plan)
            state = waiting_state(session, planned.target)
            if state is None:
                return None
            published = self._warehouse.catalog.list_published(list_relations([planned]))
            refuse_loads(session, pipeline, lane, [planned.source])
            base = self._warehouse.catalog.begin_release(plan, session)
            for each in (planned, planned.ended_versions) if planned.is_history else (planned,):
                refuse_lost(self._warehouse.catalog.folder, each, published.get(each.target), base.get(each.target))
            settling = {
                "target_schema": planned.target.schema,
                "target_name": planned.target.name,
                "by": by,
                "load_window_id": newest_load(session, pipeline, planned.source),
            }
            with session.transaction(force_rollback=True):
                [opened] = query(
                    session,
                    "open_window",
                    pipeline=pipeline,
                    lane=lane,
                    to_lsn=last.to.value,
                    to_lsn_at=last.to_at,
                    lag_seconds=None,
                )
                plan = replace(plan, window_id=opened["window_id"])
                merge = replace(merge_of(plan, 0, has_tombstones=False), sorted_by_key=False)
                rows = stage_waiting(session, planned, merge, settling)
        return ReleaseRows(plan, merge, base, state, settling, rows)

    def merge_rows(self, found: ReleaseRows, folder: Path) -> ReleasedRows:
        """Merge rows in the catalog of releases. folder: an empty one, or none yet, for files."""
        folder.mkdir(parents=True, exist_ok=True)
        pq.write_table(found.rows, folder / "staged.parquet")
        with spark_errors(str(found.planned.source)):
            return _ReleaseMerge(self._warehouse, self._warehouse.sessions(1)[0], found, folder).run()

    def publish(self, found: ReleaseRows, merged: ReleasedRows, by: str) -> Release:
        """Let readers see what was merged, settle it in quarantine, and record the window: all in one transaction."""
        plan, planned = found.plan, found.planned
        with open_transaction(self._at, str(planned.source)) as session:
            refuse_loads(session, plan.pipeline, plan.lane, [planned.source])
            self._warehouse.catalog.publish_release(plan, found.base, merged.merged, session)
            if waiting_state(session, planned.target) != found.state:
                raise WatermarkConflictError(
                    str(planned.source),
                    "rows of it in quarantine were changed while they were released.",
                    "Nothing was released. Run again.",
                )
            session.execute(read_sql("settle_older"), found.settling)
            for files, is_merged in ((merged.passed, False), (merged.held, True)):
                if files:
                    hold_rows(session, plan, planned, found.merge, files)
                    publish_held(session, plan, by, is_merged=is_merged)
            if merged.counts is not None:
                _record(session, plan, merged.counts)
            outcome = read_outcome(session, planned.target, merged.quarantined)
        if merged.counts is None:
            return outcome
        counts = merged.counts
        return replace(
            outcome,
            window_id=plan.window_id,
            inserted_rows=counts.inserted_rows,
            updated_rows=counts.updated_rows,
        )


def _record(session: psycopg.Connection, plan: WindowPlan, counts: TableCounts) -> None:
    values = [plan.window_id, plan.pipeline, plan.lane, plan.to.value, plan.to_at]
    session.execute(_OPEN_WITH_NUMBER, values)
    record_release(session, plan, counts)
    record_definitions(session, plan, plan.tables)


@dataclass(frozen=True)
class _ReleaseMerge:
    """The work of Spark."""

    warehouse: IcebergWarehouse
    session: SparkSession
    found: ReleaseRows
    folder: Path

    def run(self) -> ReleasedRows:
        plan, planned, merge = self.found.plan, self.found.planned, self.found.merge
        evolve_table(self.session, planned, RELEASED)
        if planned.is_history:
            evolve_table(self.session, planned.ended_versions, RELEASED)
        newest = read_summary(self.warehouse.catalog, planned.target, RELEASED)
        gate = LakeGate(self.session, self.warehouse.ledger, plan, planned, merge, self.folder, RELEASED)
        self._open([self.folder / "staged.parquet"])
        held: list[Path] = []
        files: Sequence[Path] = [self.folder / "staged.parquet"]
        if newest and not planned.keeps_changes:
            held += gate.write("overtaken", f"SELECT {self._keys}, t.{POSITION_COLUMN} FROM {self._newer('JOIN')}")
            if held:
                files = self._open(gate.write("open", f"SELECT s.* FROM {self._newer('LEFT ANTI JOIN')}"))
        files, passed = gate.drop_deleted(files)
        rows = gate.apply(files) if files else GatedRows(())
        held += rows.aside
        if rows.files and merge.optional:
            rows = replace(rows, files=self._open(gate.write("complete", self._complete)))
        if not rows.files:
            return ReleasedRows(self._locations(), None, rows.quarantined, held, passed)
        held += gate.write("merged", f"SELECT {self._keys}, s.{POSITION_COLUMN} FROM {self._view} AS s")
        staged = StagedTable(0, planned, merge, rows, newest, catalog=RELEASED)
        counts = merge_style(self.session, plan, staged, self.folder)
        counts = replace(counts, staged_rows=counts.staged_rows - rows.quarantined, quarantined_rows=0)
        merged = self._locations()
        for target, location in merged.items():
            summary = read_summary(self.warehouse.catalog, target, RELEASED)
            if location != self.found.base[target] and summary.get(WINDOW) != str(plan.window_id):
                raise WatermarkConflictError(
                    str(planned.source), "another release of its rows has begun.", "Nothing was released. Run again."
                )
        return ReleasedRows(merged, counts, rows.quarantined, held, passed)

    def _open(self, files: Sequence[Path]) -> Sequence[Path]:
        """Let the view of staged rows have those of files, of which there may be none."""
        if files:
            rows = self.session.read.parquet(*map(str, files))
            rows.createOrReplaceTempView(self.found.merge.staging.name)
        return files

    def _locations(self) -> Mapping[TableName, str]:
        targets = list_relations([self.found.planned])
        found = self.warehouse.catalog.read_locations(targets)
        if not all((RELEASED, target) in found for target in targets):
            raise FloodmarkBugError(str(self.found.planned.source), "the catalog of releases has lost the table.", "")
        return {target: found[RELEASED, target] for target in targets}

    @property
    def _view(self) -> str:
        return spark_name(self.found.merge.staging.name)

    @property
    def _keys(self) -> str:
        return ", ".join(f"s.{spark_name(name)}" for name in self.found.merge.key if name != POSITION_COLUMN)

    def _target(self, join: str, condition: str) -> str:
        same = in_spark(same_key(self.found.merge), RELEASED)
        return f"{self._view} AS s {join} {lake_name(self.found.planned.target, RELEASED)} AS t ON {same}{condition}"

    def _newer(self, join: str) -> str:
        """Return the staged rows with, or without, those of the target that have a later change."""
        return self._target(join, f" AND t.{POSITION_COLUMN} > s.{POSITION_COLUMN}")

    @property
    def _complete(self) -> str:
        """Return the query for the staged rows without those whose LOB neither target nor quarantine has."""
        kept = " OR ".join(f"coalesce(s.{spark_name(keep_column(name))}, false)" for name in self.found.merge.optional)
        rows = self._target("LEFT JOIN", "")
        return f"SELECT s.* FROM {rows} WHERE NOT (({kept}) AND t.{POSITION_COLUMN} IS NULL)"
