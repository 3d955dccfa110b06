"""``WarehouseRig``: any warehouse with a ledger, and the steps of a window without a source or an engine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import psycopg
import pyarrow as pa
from psycopg.rows import dict_row
from warehouse_shop import ORDERS, PIPELINE, TARGET, Row, staged_batch

from floodmark.core.plan import LoadKind, TableCounts, TablePlan, WindowPlan, plan_chunks
from floodmark.core.schema import TableName, quote_table
from floodmark.postgres.ledger.ledger import PostgresLedger
from floodmark.postgres.session import WarehouseConnection
from floodmark.sync.ports import StagedPart, StagedRows, Warehouse
from lsns import lsn
from table_plans import with_settings

ReadRows = Callable[[TableName], Sequence[Mapping[str, Any]]]
BOUNDS = [(2,), (4,)]
"""Where first loads are cut: into three chunks."""


@dataclass
class WarehouseRig:
    """Plans come from a real ledger, rows go through sinks."""

    ledger: PostgresLedger
    warehouse: Warehouse
    read: ReadRows
    """Reads the living rows of a target or of a table of ``open_rows``."""
    pipeline: str = PIPELINE
    target: TableName = TARGET
    examples: int = 0
    reported: dict[tuple[int, int, TableName], dict[int, StagedPart]] = field(default_factory=dict)
    """The last try of each part, by window, attempt and table."""

    def fresh(self) -> WarehouseRig:
        """Return the same warehouse with a pipeline and a target that nothing has used."""
        self.examples += 1
        name = f"{self.pipeline}_{self.examples}"
        return replace(self, pipeline=name, target=TableName(TARGET.schema, name))

    def open(self, *tables: TablePlan, to: int, lane: str = "") -> WindowPlan:
        """Open a window, and begin its first attempt."""
        own = [with_settings(table, target=self.target) if table.source == ORDERS else table for table in tables]
        opened = self.ledger.open_window(self.pipeline, lsn(to), own, lane=lane)
        plan = self.prepare(opened.window_id)
        for table in plan.tables:
            if table.kind is LoadKind.FIRST_LOAD:
                self.ledger.store_chunks(plan, table.source, plan_chunks(BOUNDS))
        return plan

    def prepare(self, window_id: int) -> WindowPlan:
        """Begin an attempt at a window."""
        plan = self.ledger.begin_load(window_id).plan
        self.warehouse.prepare_window(plan)
        return plan

    def stage(
        self, plan: WindowPlan, rows: Iterable[Row] | pa.RecordBatch, part: int = 0, index: int = 0
    ) -> StagedPart:
        """Write a part, as a worker does, and record a chunk where the load has to."""
        table = plan.tables[index]
        batch = rows if isinstance(rows, pa.RecordBatch) else staged_batch(rows)
        staged = self.warehouse.sink(plan, index).write(part, iter([batch]))
        if table.kind is LoadKind.FIRST_LOAD and not self.warehouse.traits.shares_ledger:
            self.ledger.record_staged(plan, table.source, [staged])
        self.report(plan, staged, index)
        return staged

    def report(self, plan: WindowPlan, staged: StagedPart, index: int = 0) -> None:
        """Take a try of a part as the one whose result the load was given."""
        name = (plan.window_id, plan.attempt, plan.tables[index].source)
        self.reported.setdefault(name, {})[staged.part] = staged

    def merge(self, plan: WindowPlan, *staged_rows: int) -> Mapping[TableName, TableCounts]:
        """Merge a window, and record that where the load has to. staged_rows: what staging reported, by table."""
        reported = {
            table.source: StagedRows(rows, rows, self._parts_of(plan, table))
            for table, rows in zip(plan.tables, staged_rows, strict=False)
        }
        counts = self.warehouse.merge_window(plan, reported)
        return counts if self.warehouse.traits.shares_ledger else self.ledger.record_merge(plan, counts)

    def _parts_of(self, plan: WindowPlan, table: TablePlan) -> tuple[StagedPart, ...]:
        return tuple(self.reported.get((plan.window_id, plan.attempt, table.source), {}).values())

    def finish(self, plan: WindowPlan) -> None:
        """Check, publish and advance a merged window."""
        self.check(plan)
        self.publish(plan)
        self.ledger.advance(plan.window_id)
        self.warehouse.drop_staging(plan.window_id)

    def check(self, plan: WindowPlan) -> None:
        """Record that the checks have passed."""
        self.ledger.mark_checked(plan.window_id)

    def publish(self, plan: WindowPlan) -> None:
        """Publish a window, also one that is published, as the last step of a run does it."""
        if self.warehouse.traits.publishes_in_ledger:
            self.ledger.advance(plan.window_id, self.warehouse.publish_window)
        else:
            self.warehouse.publish_window(plan)

    def run(self, table: TablePlan, to: int, rows: Iterable[Row] | pa.RecordBatch, lane: str = "") -> TableCounts:
        """Run one whole window of dbo.Orders."""
        plan = self.open(table, to=to, lane=lane)
        staged = self.stage(plan, rows)
        counts = self.merge(plan, staged.rows)
        self.finish(plan)
        return counts[ORDERS]

    def visible(self) -> dict[int, tuple[Any, ...]]:
        """Return what readers see of dbo.Orders, by key."""
        return self.rows(self.target)

    def rows(self, name: TableName) -> dict[int, tuple[Any, ...]]:
        """Return the living rows of a table by key: (amount, discount, notes)."""
        return {row["Id"]: (row["Amount"], row["Disc%"], row["Notes"]) for row in self.read(name)}


def rows_of(database: WarehouseConnection) -> ReadRows:
    """Return what reads the living rows of a table of PostgreSQL."""

    def read(name: TableName) -> list[dict[str, object]]:
        with psycopg.connect(database.conninfo(), row_factory=dict_row) as session:
            found = session.execute("SELECT to_regclass(%s) IS NOT NULL AS found", [quote_table(name)]).fetchone()
            if found is None or not found["found"]:
                return []
            rows = session.execute(f"SELECT * FROM {quote_table(name)}").fetchall()
        return [row for row in rows if not row.get("__deleted")]

    return read
