"""A source in memory, for runs on a real ledger and warehouse: a table, its changes, and how both are read."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from warehouse_shop import DELETE, INSERT, ORDERS, PIPELINE, TARGET, UPDATE, Row, Shop, instance

from floodmark.core.errors import FloodmarkError
from floodmark.core.plan import Bound, LoadChunk, TableCounts, WindowPlan
from floodmark.core.position import Lsn, NoPosition, Position
from floodmark.core.schema import TableName
from floodmark.core.settings import NetSource, PipelineSettings, TableSettings
from floodmark.core.snapshot import MemberMark, SourceSnapshot, TableSnapshot
from floodmark.sync.ports import StagedPart, StagedRows, StagingSink
from lsns import lsn, number_of
from tables_in_turn import stage_in_turn

NOON = datetime(2026, 5, 1, 12)
START = 5
"""Where the capture instance begins."""


def settings(**other: Any) -> PipelineSettings:
    return PipelineSettings(PIPELINE, (TableSettings(ORDERS, TARGET, **other),))


@dataclass
class SmallSource:
    """dbo.Orders and its log. ``position`` is the newest LSN; every change is a commit of its own."""

    rows: dict[int, int] = field(default_factory=dict)
    log: list[Row] = field(default_factory=list)
    position: int = START
    oldest: int = START
    snapshots_taken: int = 0
    clock_back_seconds: float = 0.0
    restored_to: list[int] = field(default_factory=list)
    seen: dict[str, Any] = field(default_factory=dict)
    """The values that the next snapshots show in the place of the true ones."""

    def write(self, key: int, amount: int | None) -> None:
        """amount None deletes the row."""
        self.position += 1
        if amount is None:
            self.log.append(Row(key, DELETE, self.position, self.rows.pop(key)))
            return
        self.log.append(Row(key, UPDATE if key in self.rows else INSERT, self.position, amount))
        self.rows[key] = amount

    def restore(self, to: int) -> None:
        """A backup: what came after ``to`` has never been."""
        self.restored_to.append(to)
        self.log = [row for row in self.log if row.lsn <= to]
        self.position = to
        self.rows.clear()
        for row in self.log:
            if row.op == DELETE:
                self.rows.pop(row.id)
            else:
                self.rows[row.id] = int(row.amount or 0)

    def idle(self) -> None:
        self.position += 1

    def committed_at(self, position: int) -> datetime:
        """Return the time of a commit; commits after a restore are an hour later."""
        restores = sum(point < position for point in self.restored_to)
        return NOON + timedelta(seconds=position, hours=restores)

    def read_snapshot(
        self,
        tables: Sequence[TableName],
        feeds: Mapping[TableName, str] | None = None,
        positions: Collection[Position] = (),
        marks: Mapping[TableName, Sequence[MemberMark]] | None = None,
        whole: Collection[TableName] = (),
    ) -> SourceSnapshot:
        self.snapshots_taken += 1
        last: Lsn | NoPosition = lsn(self.log[-1].lsn) if self.log else NoPosition.NULL
        table_seen = TableSnapshot(ORDERS, True, replace(instance(), start=lsn(START)), lsn(self.oldest), True, last)
        now = self.committed_at(self.position)
        there = range(min(START, self.oldest), self.position + 1)
        entries = {
            asked: self.committed_at(position) if (position := number_of(asked)) in there else None
            for asked in positions
        }
        return SourceSnapshot(
            "Shop",
            True,
            lsn(self.position),
            now,
            now,
            0.0,
            True,
            (replace(table_seen, **self.seen),),
            entries,
            clock_back_seconds=self.clock_back_seconds,
        )


@dataclass
class SmallStager:
    """Stages what ``SmallSource`` has, as Spark would."""

    shop: Shop
    source: SmallSource
    chunk_rows: int = 2
    chunks_read: int = 0
    kept: Callable[[int, str], bool] = lambda key, where: True
    """Whether a row fulfils a condition."""

    def read_chunk_bounds(self, plan: WindowPlan, index: int) -> Sequence[Bound]:
        keys = sorted(self.source.rows)
        return [(key,) for key in keys[self.chunk_rows - 1 :: self.chunk_rows]]

    def find_double_key(self, plan: WindowPlan, index: int) -> tuple[Bound, int] | None:
        return None

    def stage_chunks(
        self,
        plan: WindowPlan,
        index: int,
        chunks: Sequence[LoadChunk],
        parallel_reads: int,
        sink: StagingSink | None = None,
    ) -> Sequence[StagedPart]:
        parts = []
        for chunk in chunks:
            self.chunks_read += 1
            rows = self.read_chunk(plan, index, chunk)
            self.shop.stage_chunk(plan, index, chunk.number, rows)
            parts.append(StagedPart(chunk.number, len(rows)))
        return parts

    def read_chunk(self, plan: WindowPlan, index: int, chunk: LoadChunk) -> list[Row]:
        to = number_of(plan.to)
        return [
            Row(key, INSERT, to, amount, part=chunk.number)
            for key, amount in self.source.rows.items()
            if (not chunk.after or (key,) > chunk.after)
            and (not chunk.to or (key,) <= chunk.to)
            and self.kept(key, plan.tables[index].where)
        ]

    def stage_changes(
        self, plan: WindowPlan, sinks: Mapping[int, StagingSink]
    ) -> Mapping[int, StagedRows | FloodmarkError]:
        return stage_in_turn(plan, sinks, lambda index, sink: self.stage_table(plan, index, sink))

    def stage_table(self, plan: WindowPlan, index: int, sink: StagingSink | None = None) -> StagedRows:
        read_rows, rows = self.read_changes(plan, index)
        part = self.shop.stage_part(plan, rows, index)
        return StagedRows(read_rows, part.rows, (part,))

    def read_changes(self, plan: WindowPlan, index: int) -> tuple[int, list[Row]]:
        """Return how many changes the window has, and the net changes."""
        interval = plan.tables[index].interval
        assert interval is not None
        changes = [row for row in self.source.log if lsn(row.lsn) in interval]
        latest = {row.id: row for row in changes}
        if plan.tables[index].settings.net is NetSource.SERVER:
            # As the server does, of a row that came and went.
            first = {row.id: row for row in reversed(changes)}
            gone = [key for key, row in latest.items() if (first[key].op, row.op) == (INSERT, DELETE)]
            latest = {key: row for key, row in latest.items() if key not in gone}
        return len(changes), list(latest.values())


class NoChecks:
    """A ``Quality`` that finds nothing."""

    def check_window(
        self, plan: WindowPlan, counts: Mapping[TableName, TableCounts]
    ) -> Mapping[TableName, FloodmarkError]:
        assert set(counts) == {table.source for table in plan.tables}
        return {}
