"""Whole runs over a second kind of warehouse, with a crash between any two calls.

Nothing of the steps in ``sync`` knows which warehouse it has. What a new one, say of Iceberg tables, would add or
change:

* its package ``src/floodmark/<name>/``: a class that implements ``sync.ports.Warehouse``, and a picklable
  ``StagingSink``;
* ``config/models.py``: its kind and settings under ``warehouse:``;
* ``app/pipeline.py`` and the load job's entry point,
  ``spark/job.py``: how it is made;
* ``pyproject.toml``: the extra with its client, and the package's layer in the import contracts;
* ``tests/contract/ports/conftest.py``: one entry in ``WAREHOUSES``, so that every contract runs on it;
* ``docs/``: its page, and the row in the table of warehouses.

The steps, the ledger, the engine and the sources stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import pytest
from fuse import Fuse, KilledError
from small_source import NoChecks, SmallSource, SmallStager
from warehouse_shop import ORDERS, PIPELINE, TARGET, Shop, first_load, staged_batch

from floodmark.core.errors import ConfigError, WatermarkConflictError
from floodmark.core.plan import LoadChunk, TableCounts, WindowPlan
from floodmark.core.schema import TableName
from floodmark.core.settings import Deletes, OnFailure, PipelineSettings, Rule, TableSettings
from floodmark.postgres.ledger.ledger import PostgresLedger
from floodmark.postgres.session import WarehouseConnection, open_transaction
from floodmark.sync.finish import advance_window, check_window
from floodmark.sync.load import load_window
from floodmark.sync.open_window import open_window
from floodmark.sync.ports import StagedPart, StagedRows, StagingSink
from lsns import lsn, number_of
from memory_warehouse import CataloguedWarehouse, MemoryWarehouse

CHUNKS = 3
"""Of the first load: two bounds in five rows."""
COUNTS = TableCounts(read_rows=8, staged_rows=4, updated_rows=3, unchanged_rows=1)
"""Of a window with what ``change_some`` does."""


@dataclass
class SinkStager(SmallStager):
    """Writes to the sink that it is given, as an engine does; the fuse counts each part."""

    fuse: Fuse = field(default_factory=Fuse)

    def stage_chunks(
        self, plan: WindowPlan, index: int, chunks: Sequence[LoadChunk], parallel_reads: int, sink: Any = None
    ) -> Sequence[StagedPart]:
        guarded: StagingSink = self.fuse.guard(sink)
        self.chunks_read += len(chunks)
        return [
            guarded.write(chunk.number, iter([staged_batch(self.read_chunk(plan, index, chunk))])) for chunk in chunks
        ]

    def stage_table(self, plan: WindowPlan, index: int, sink: Any = None) -> StagedRows:
        guarded: StagingSink = self.fuse.guard(sink)
        read_rows, rows = self.read_changes(plan, index)
        halves = (rows[::2], rows[1::2])
        parts = tuple(guarded.write(part, iter([staged_batch(half)])) for part, half in enumerate(halves))
        return StagedRows(read_rows, sum(part.rows for part in parts), parts)


@dataclass
class Runner:
    """One pipeline from a source in memory to a warehouse in memory, with the ledger in PostgreSQL."""

    shop: Shop
    source: SmallSource = field(default_factory=SmallSource)
    warehouse: MemoryWarehouse = field(default_factory=MemoryWarehouse)
    name: str = PIPELINE
    deletes: Deletes = Deletes.SOFT
    chunks_read: int = 0

    def __post_init__(self) -> None:
        for key in (1, 2, 3, 4, 5):
            self.source.write(key, key * 10)

    @property
    def settings(self) -> PipelineSettings:
        target = TableName(TARGET.schema, self.name)
        return PipelineSettings(self.name, (TableSettings(ORDERS, target, deletes=self.deletes),))

    def run(self, fuse: Fuse | None = None) -> None:
        """Do one run, as the DAG does it."""
        for _ in self.steps(fuse or Fuse()):
            pass

    def steps(self, fuse: Fuse) -> Iterator[str]:
        """Do one run, and yield the name of each step that is done."""
        ledger, warehouse = fuse.guard(self.shop.ledger), fuse.guard(self.warehouse)
        stager = SinkStager(self.shop, self.source, fuse=fuse)
        opened = open_window(self.settings, self.source, ledger)
        yield "open"
        if opened.window_id is not None:
            try:
                load_window(opened.window_id, ledger, warehouse, self.source, stager)
            finally:
                self.chunks_read += stager.chunks_read
            yield "load"
            check_window(opened.window_id, ledger, NoChecks())
            yield "check"
            advance_window(opened.window_id, ledger, warehouse)
            yield "advance"

    def finish(self) -> None:
        """Run until nothing is left to do; the source goes on meanwhile."""
        self.source.idle()
        for _ in range(3):
            if self.watermark() != self.source.position:
                self.run()

    def visible(self) -> dict[int, Decimal]:
        """Return the amounts that readers see."""
        return {row["Id"]: row["Amount"] for row in self.warehouse.read(self.settings.tables[0].target)}

    def at_source(self) -> dict[int, Decimal]:
        """Return the amounts that the source has."""
        return {key: Decimal(amount) for key, amount in self.source.rows.items()}

    def watermark(self) -> int | None:
        """Return the position of the watermark; None before the first load."""
        state = self.shop.ledger.read_tables(self.name).get(ORDERS)
        return number_of(state.watermark) if state and state.watermark else None

    def assert_complete(self) -> None:
        """Fail unless the target equals the source, and the watermark is at the end of the log."""
        assert self.visible() == self.at_source()
        assert self.watermark() == self.source.position


@pytest.fixture
def shop(database: WarehouseConnection, ledger: PostgresLedger) -> Shop:
    return Shop(database, ledger)


@pytest.fixture(params=["memory", "catalogued"])
def make(request: pytest.FixtureRequest, shop: Shop) -> Callable[[], MemoryWarehouse]:
    """Return what makes a warehouse that publishes before the ledger advances, or with it."""
    return MemoryWarehouse if request.param == "memory" else lambda: CataloguedWarehouse(shop.connection)


@pytest.fixture
def runner(shop: Shop, make: Callable[[], MemoryWarehouse]) -> Runner:
    return Runner(shop, warehouse=make())


def is_published(runner: Runner, fuse: Fuse) -> bool:
    """Return whether a run that was killed had published its window."""
    step = "advance" if runner.warehouse.traits.publishes_in_ledger else "publish_window"
    return step in fuse.done


def change_some(source: SmallSource) -> None:
    """Update a row, delete and insert two again, and insert one that is deleted again."""
    source.write(1, source.rows[1] + 1)
    source.write(2, None)
    source.write(6, 60)
    source.write(6, 61)
    source.write(2, 22)
    source.write(3, None)
    source.write(3, 33)
    source.write(6, None)


def test_first_load_and_windows_end_equal(runner: Runner) -> None:
    runner.run()
    runner.assert_complete()
    assert runner.chunks_read == CHUNKS
    change_some(runner.source)
    runner.run()
    runner.assert_complete()
    assert runner.shop.ledger.read_counts(2)[ORDERS] == COUNTS
    assert runner.warehouse.list_staged() == set()
    assert not runner.shop.exists("shop.orders")


def test_rows_are_visible_only_after_the_advance(runner: Runner) -> None:
    for _ in range(2):
        before = runner.visible()
        seen = [(step, runner.visible() == before) for step in runner.steps(Fuse())]
        assert seen == [("open", True), ("load", True), ("check", True), ("advance", False)]
        runner.assert_complete()
        change_some(runner.source)


def test_steps_that_are_repeated_change_nothing(runner: Runner) -> None:
    ledger, source, warehouse = runner.shop.ledger, runner.source, runner.warehouse
    opened = open_window(runner.settings, source, ledger)
    assert opened.window_id is not None
    stager = SinkStager(runner.shop, source)
    counts = [load_window(opened.window_id, ledger, warehouse, source, stager) for _ in range(2)]
    assert counts[0] == counts[1] == {ORDERS: TableCounts(read_rows=5, staged_rows=5, inserted_rows=5)}
    assert [check_window(opened.window_id, ledger, NoChecks()) for _ in range(2)] == [True, False]
    results = [advance_window(opened.window_id, ledger, warehouse) for _ in range(2)]
    assert results[0] == results[1]
    runner.assert_complete()


@pytest.mark.parametrize("after", [False, True])
def test_first_load_that_is_killed_at_any_call_ends_as_if_it_had_not_been(
    shop: Shop, make: Callable[[], MemoryWarehouse], after: bool
) -> None:
    for blows_at in range(1, 100):
        runner = Runner(shop, warehouse=make(), name=f"shop_{blows_at}", deletes=list(Deletes)[blows_at % 2])
        fuse = Fuse(blows_at, after)
        try:
            runner.run(fuse)
        except KilledError:
            assert runner.visible() == (runner.at_source() if is_published(runner, fuse) else {})
            runner.source.write(1, 11)
            runner.finish()
        else:
            break
        runner.assert_complete()
        # Chunks that the ledger knows are not read again.
        assert runner.chunks_read == CHUNKS * (2 if is_lost(fuse) else 1)
    assert blows_at > 15


def is_lost(fuse: Fuse) -> bool:
    """Return whether a killed first load had begun to stage chunks, and had not recorded them."""
    return "sink" in fuse.done and "record_staged" not in fuse.done and fuse.calls > fuse.done.index("sink") + 1


@pytest.mark.parametrize(("after", "deletes"), [(False, Deletes.SOFT), (True, Deletes.HARD)])
def test_window_that_is_killed_at_any_call_ends_as_if_it_had_not_been(
    shop: Shop, make: Callable[[], MemoryWarehouse], after: bool, deletes: Deletes
) -> None:
    runner = Runner(shop, warehouse=make(), deletes=deletes)
    runner.run()
    for blows_at in range(1, 100):
        change_some(runner.source)
        before, fuse = runner.visible(), Fuse(blows_at, after)
        try:
            runner.run(fuse)
        except KilledError:
            assert runner.visible() == (runner.at_source() if is_published(runner, fuse) else before)
            runner.finish()
        else:
            break
        runner.assert_complete()
        assert runner.shop.ledger.read_counts(blows_at + 1)[ORDERS] == COUNTS
    assert blows_at > 15
    runner.assert_complete()
    assert runner.warehouse.list_staged() == set()


def test_target_that_another_program_has_written_is_not_published(shop: Shop) -> None:
    runner = Runner(shop, warehouse=CataloguedWarehouse(shop.connection))
    runner.run()
    change_some(runner.source)
    before, watermark = runner.visible(), runner.watermark()
    with pytest.raises(WatermarkConflictError, match="was changed by another writer"):
        for step in runner.steps(Fuse()):
            if step == "check":
                with open_transaction(shop.connection) as session:
                    session.execute("UPDATE catalog SET version = 0")
    assert (runner.visible(), runner.watermark()) == ({}, watermark)
    with open_transaction(shop.connection) as session:
        session.execute("UPDATE catalog SET version = 1")
    assert runner.visible() == before
    runner.finish()
    runner.assert_complete()


def test_what_the_warehouse_does_not_support_is_refused_by_name(shop: Shop) -> None:
    warehouse = MemoryWarehouse()
    rules = (Rule("small", "Amount < 100", OnFailure.STOP),)
    plan = shop.ledger.open_window(PIPELINE, lsn(10), [first_load(rules=rules)])
    with pytest.raises(ConfigError, match=r"dbo\.Orders: the warehouse in memory does not support rules\."):
        warehouse.prepare_window(plan)
    assert warehouse.list_staged() == set()
