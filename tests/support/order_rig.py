"""Windows of a table that keeps all changes, in any order: real ledger, staging and merge, and no source.

Random histories of a table (``change_histories``) are cut into windows, each of which is a replay.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import count, pairwise

import pyarrow as pa

from change_histories import HISTORIES, History, Values, change_batch, histories_plan, shape_of
from floodmark.core.plan import LoadKind, TableCounts, TablePlan, WindowPlan, replay_lane, staging_table
from floodmark.core.position import Interval, read_position
from floodmark.core.schema import TableName
from floodmark.core.settings import Style
from floodmark.postgres.ledger.ledger import PostgresLedger
from floodmark.postgres.session import WarehouseConnection
from floodmark.postgres.warehouse.history import PostgresVersions
from floodmark.postgres.warehouse.sink import ArrowSession, copy_part
from floodmark.postgres.warehouse.warehouse import PostgresWarehouse
from floodmark.spark.stage import StageWriter
from floodmark.sync.ports import StagedPart, StagedRows, Warehouse
from lsns import lsn, number_of
from table_plans import with_settings

END = 100
"""Where the watermark is while windows are merged late and again."""
_names = count(1)
_LOADED = pa.schema(
    [
        ("history", pa.int32()),
        ("id", pa.string()),
        ("a", pa.int32()),
        ("lob", pa.string()),
        ("old", pa.string()),
    ]
)


def make_history(seed: int, commits: int = 0) -> tuple[History, dict[int, dict[str, Values]]]:
    """Return some commits, the first of which is at position 2, and the rows of the table after each position."""
    rng = random.Random(seed)
    history = History(7, rng, declared_key=rng.random() < 0.5)
    states: dict[int, dict[str, Values]] = {1: {}}
    for number in range(commits or rng.randrange(1, 10)):
        history.run_transaction(rng.randrange(1, 5))
        states[number + 2] = dict(history.rows)
    return history, states


def committed_at(position: bytes) -> datetime:
    """Return the time of a commit, by a clock that is set back now and then."""
    number = number_of(read_position(position))
    return datetime(2026, 5, 1, tzinfo=UTC) + timedelta(seconds=number - 3600 * (number % 4 == 3))


def _split_by_commit(rng: random.Random, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield the rows in three parts, none of which has a part of a commit."""
    positions = rows.column(0).to_pylist()
    part_of = {position: rng.randrange(3) for position in positions}
    for part in range(3):
        yield rows.filter(pa.array([part_of[position] == part for position in positions], pa.bool_()))


@dataclass
class OrderRig:
    """A target that keeps all changes, behind a real ledger, and windows of it in any order, each as a replay."""

    ledger: PostgresLedger
    connection: WarehouseConnection
    style: Style
    history: History
    rng: random.Random
    keep_versions: int | None = None
    """The days for which ended versions are kept."""
    has_key: bool = True
    warehouse: Warehouse = field(init=False)
    pipeline: str = field(init=False)
    target: TableName = field(init=False)

    def __post_init__(self) -> None:
        self.warehouse = self.open_warehouse()
        self.pipeline = f"{self.style.value}_{next(_names)}"
        self.target = TableName("shop", self.pipeline)
        self.load({}, 1)

    def open_warehouse(self) -> Warehouse:
        return PostgresWarehouse(self.connection)

    def load(self, rows: Mapping[str, Values], at: int, lane: str = "") -> TableCounts:
        """Load the whole table, with these rows, at a position."""
        table = replace(self.plan(1, 2), kind=LoadKind.FIRST_LOAD, interval=None, is_reload=bool(lane))
        table = replace(table, watermark=lsn(END) if lane else None)
        plan = self._begin(self.ledger.open_window(self.pipeline, lsn(at), [table], lane=lane))
        table, names = plan.tables[0], [column.name for column in HISTORIES.columns]
        made = [(self.history.number, key, each.a, each.lob, each.old) for key, each in rows.items()]
        read = pa.RecordBatch.from_pylist([dict(zip(names, row, strict=True)) for row in made], schema=_LOADED)
        moments = pa.repeat(pa.scalar(committed_at(lsn(at).value).replace(tzinfo=None)), len(made))
        read = read.append_column("__$committed_at", moments.cast(pa.timestamp("us")))
        writer = StageWriter(table, shape_of(table), lsn(at).value, self.warehouse.sink(plan, 0))
        self.stage_loaded(plan, writer.net_rows([read] if made else []))
        counts = self.merge(plan)
        self.finish(plan, counts)
        self.ledger.advance_quiet(self.pipeline, lsn(END), {table.source: lsn(at)})
        return counts[table.source]

    def stage_loaded(self, plan: WindowPlan, batches: Iterator[pa.RecordBatch]) -> None:
        with ArrowSession(self.connection, self.pipeline) as session:
            copy_part(session, plan.tables[0], staging_table(plan, 0), 0, batches)
            session.commit()

    def merge(self, plan: WindowPlan, staged: StagedRows | None = None) -> Mapping[TableName, TableCounts]:
        return self.warehouse.merge_window(plan, {plan.tables[0].source: staged} if staged else None)

    def plan(self, after: int, to: int) -> TablePlan:
        table = with_settings(histories_plan(), style=self.style, target=self.target, keep_versions=self.keep_versions)
        if not self.has_key:
            table = replace(table, feed=replace(table.feed, table=replace(table.feed.table, key=())))
        return replace(table, interval=Interval(lsn(after), lsn(to)), watermark=lsn(END))

    def open(self, after: int, to: int) -> WindowPlan:
        lane = replay_lane(Interval(lsn(after), lsn(to)))
        return self.ledger.open_window(self.pipeline, lsn(to), [self.plan(after, to)], lane=lane)

    def run(self, after: int, to: int, *, is_killed: bool = False) -> TableCounts:
        """Run a window. is_killed: a first attempt ends when some parts are staged, and a try of a part is lost."""
        opened = self.open(after, to)
        plan = self._begin(opened)
        if is_killed:
            self._stage(plan, self._parts(after, to)[:2])
            plan = self._begin(opened)
        parts = self._parts(after, to)
        if is_killed:
            self._stage(plan, parts[:1])
        staged = self._stage(plan, parts)
        rows = sum(part.rows for part in staged)
        counts = self.merge(plan, StagedRows(rows, rows, tuple(staged)))
        self.finish(plan, counts)
        return next(iter(counts.values()))

    def finish(self, plan: WindowPlan, counts: object) -> None:
        assert counts
        self.ledger.mark_checked(plan.window_id)
        self.ledger.advance(plan.window_id)
        self.warehouse.drop_staging(plan.window_id)

    def delete_old_versions(self) -> int:
        return PostgresVersions(self.connection).delete_old(self.pipeline, self.plan(1, 2).settings)

    def _begin(self, opened: WindowPlan) -> WindowPlan:
        plan = self.ledger.begin_load(opened.window_id).plan
        self.warehouse.prepare_window(plan)
        return plan

    def _parts(self, after: int, to: int) -> list[pa.RecordBatch]:
        """Return the changes of an interval in no order, in up to three parts."""
        chosen = [each for each in self.history.changes if after < number_of(read_position(each.start_lsn)) <= to]
        rows = change_batch(chosen, has_key=self.has_key, is_log=self.style is Style.LOG)
        moments = [committed_at(position).replace(tzinfo=None) for position in rows.column(0).to_pylist()]
        rows = rows.append_column("__$committed_at", pa.array(moments, pa.timestamp("us")))
        rows = rows.take(pa.array(self.rng.sample(range(rows.num_rows), rows.num_rows), pa.int64()))
        if self.style is Style.HISTORY:
            return list(_split_by_commit(self.rng, rows))
        cuts = sorted(self.rng.randrange(rows.num_rows + 1) for _ in range(2))
        return [rows.slice(begin, end - begin) for begin, end in pairwise([0, *cuts, rows.num_rows])]

    def _stage(self, plan: WindowPlan, parts: list[pa.RecordBatch]) -> list[StagedPart]:
        table, sink = plan.tables[0], self.warehouse.sink(plan, 0)
        writer = StageWriter(table, shape_of(table), b"", sink)
        return [sink.write(number, writer.net_rows([rows], number)) for number, rows in enumerate(parts)]
