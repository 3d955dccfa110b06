"""A source of two tables in memory, and the runs of a pipeline of both on a real ledger and warehouse."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

from fuse import Fuse
from repair_runner import RememberedAlerts
from small_source import NoChecks, SmallSource, SmallStager
from warehouse_shop import ORDERS, PIPELINE, TARGET, Shop

from floodmark.core.errors import FloodmarkError
from floodmark.core.plan import Bound, LoadChunk, WindowPlan
from floodmark.core.position import Position
from floodmark.core.schema import TableName
from floodmark.core.settings import PipelineSettings, TableSettings
from floodmark.core.snapshot import MemberMark, SourceSnapshot, TableSnapshot
from floodmark.sync.alerts import find_stopped
from floodmark.sync.finish import advance_window, check_window
from floodmark.sync.load import load_window
from floodmark.sync.open_window import open_window
from floodmark.sync.ports import Quality, StagedPart, StagedRows, StagingSink
from floodmark.sync.repair import LoadPlanner
from floodmark.sync.window import OpenResult
from lsns import number_of
from tables_in_turn import stage_in_turn

ITEMS = TableName("dbo", "Items")
ITEMS_TARGET = TableName("shop", "items")


def pair(orders: Mapping[str, Any] | None = None, items: Mapping[str, Any] | None = None) -> PipelineSettings:
    """Return the settings of the pipeline, with those chosen for each table."""
    return PipelineSettings(
        PIPELINE,
        (
            TableSettings(**({"source": ORDERS, "target": TARGET} | dict(orders or {}))),
            TableSettings(**({"source": ITEMS, "target": ITEMS_TARGET} | dict(items or {}))),
        ),
    )


@dataclass
class PairSource:
    """Two tables with one log."""

    tables: dict[TableName, SmallSource] = field(default_factory=lambda: {ORDERS: SmallSource(), ITEMS: SmallSource()})

    def write(self, table: TableName, key: int, amount: int | None) -> None:
        """amount None deletes the row."""
        self.tables[table].write(key, amount)
        for other in self.tables.values():
            other.position = self.tables[table].position

    def read_snapshot(
        self,
        tables: Sequence[TableName],
        feeds: Mapping[TableName, str] | None = None,
        positions: Collection[Position] = (),
        marks: Mapping[TableName, Sequence[MemberMark]] | None = None,
        whole: Collection[TableName] = (),
    ) -> SourceSnapshot:
        found = self.tables[ORDERS].read_snapshot([ORDERS], positions=positions)
        return replace(found, tables=tuple(self._table(name) for name in tables))

    def _table(self, name: TableName) -> TableSnapshot:
        (found,) = self.tables[name].read_snapshot([ORDERS]).tables
        if found.feed is None:
            return replace(found, table=name)
        identity = replace(found.feed.identity, name=f"dbo_{name.name}")
        own = replace(found.feed, identity=identity, table=replace(found.feed.table, name=name))
        return replace(found, table=name, feed=own)


@dataclass
class PairStager:
    """``SmallStager`` for both tables. An error in ``refused`` is raised where its table is staged."""

    shop: Shop
    source: PairSource
    refused: dict[TableName, Exception] = field(default_factory=dict)
    staged: list[TableName] = field(default_factory=list)

    def _of(self, plan: WindowPlan, index: int) -> SmallStager:
        table = plan.tables[index].source
        self.staged.append(table)
        if table in self.refused:
            raise self.refused[table]
        return SmallStager(self.shop, self.source.tables[table])

    def read_chunk_bounds(self, plan: WindowPlan, index: int) -> Sequence[Bound]:
        return SmallStager(self.shop, self.source.tables[plan.tables[index].source]).read_chunk_bounds(plan, index)

    def find_double_key(self, plan: WindowPlan, index: int) -> tuple[Bound, int] | None:
        return None

    def stage_chunks(
        self, plan: WindowPlan, index: int, chunks: Sequence[LoadChunk], parallel_reads: int, sink: StagingSink
    ) -> Sequence[StagedPart]:
        return self._of(plan, index).stage_chunks(plan, index, chunks, parallel_reads, sink)

    def stage_changes(
        self, plan: WindowPlan, sinks: Mapping[int, StagingSink]
    ) -> Mapping[int, StagedRows | FloodmarkError]:
        return stage_in_turn(plan, sinks, lambda index, sink: self._of(plan, index).stage_table(plan, index, sink))


@dataclass
class PairRunner:
    """Runs of the pipeline, as its DAG does them."""

    shop: Shop
    source: PairSource = field(default_factory=PairSource)
    reported: RememberedAlerts = field(default_factory=RememberedAlerts)
    quality: Quality = field(default_factory=NoChecks)
    stager: PairStager = field(init=False)

    def __post_init__(self) -> None:
        self.stager = PairStager(self.shop, self.source)
        for key in (1, 2, 3):
            for table in (ORDERS, ITEMS):
                self.source.write(table, key, key * 10)

    def run(self, settings: PipelineSettings | None = None, fuse: Fuse | None = None) -> OpenResult:
        """Run one window. Raises the error of ``report_gaps`` after it was published."""
        chosen, fuse = settings or pair(), fuse or Fuse()
        opened = open_window(chosen, self.source, fuse.guard(self.shop.ledger), alerts=self.reported)
        self.finish(opened, fuse)
        if error := find_stopped(chosen, self.shop.ledger):
            raise error
        return opened

    def finish(self, opened: OpenResult, fuse: Fuse | None = None) -> None:
        if opened.window_id is None:
            return
        fuse = fuse or Fuse()
        ledger, warehouse = fuse.guard(self.shop.ledger), fuse.guard(self.shop.warehouse)
        load_window(opened.window_id, ledger, warehouse, self.source, self.stager)
        check_window(opened.window_id, ledger, self.quality)
        advance_window(opened.window_id, ledger, warehouse)

    def planner(self, settings: PipelineSettings | None = None) -> LoadPlanner:
        return LoadPlanner(settings or pair(), self.source, self.shop.ledger, self.shop.warehouse, alerts=self.reported)

    def equal(self, table: TableName) -> bool:
        """Return whether the target has the rows of the source."""
        target = {ORDERS: "shop.orders", ITEMS: "shop.items"}[table]
        found = self.shop.rows(f'SELECT "Id", "Amount" FROM {target} WHERE NOT __deleted')
        rows = self.source.tables[table].rows
        return {row["Id"]: row["Amount"] for row in found} == {key: Decimal(rows[key]) for key in rows}

    def watermark(self, table: TableName) -> int | None:
        state = self.shop.ledger.read_tables(PIPELINE).get(table)
        return number_of(state.watermark) if state and state.watermark else None

    def verdicts(self) -> dict[str, str]:
        return {
            row["source_name"]: row["verdict"]
            for row in self.shop.rows("SELECT source_name, verdict FROM floodmark.verdicts")
        }

    @property
    def position(self) -> int:
        return self.source.tables[ORDERS].position
