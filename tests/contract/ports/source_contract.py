"""Contracts of all sources and of the readers of their tables, and of the sources and readers of a server.

``SourceContract`` and ``TableReaderContract`` hold for all, ``ServerSourceContract`` and ``ServerReaderContract`` for
one database with a log: its positions have commit times, and its rows are read in chunks. ``SafeguardContract`` has the
ways in which rows could be lost or doubled, for pipelines over every kind of source.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from guarded_pipeline import GuardedPipeline

from floodmark.core.errors import FloodmarkError, SourceBehindError
from floodmark.core.plan import LoadKind, TablePlan, WindowPlan, plan_chunks
from floodmark.core.position import Interval, Position, read_position
from floodmark.core.schema import TableName
from floodmark.core.settings import FirstLoad, TableSettings
from floodmark.core.snapshot import Feed, LogEntry, SourceSnapshot
from floodmark.sync.arrow import arrow_type
from floodmark.sync.ports import OpenReader, PlanReads, ReadTask, Source, TableRead, TableReader
from table_plans import with_settings
from tried_twice import Order

CHUNK_ROWS = 2
KINDS = ("cdc", "change_tracking", "compact", "event_stream")
Case = Callable[..., None]


@dataclass
class SourceRig:
    """A source with new tables for each test.

    Orders (Id int, the key; Amount decimal(18,2); Note, a text of any length) is tracked, Plain (Id int) is not.
    """

    source: Source
    open_reader: OpenReader
    plan_reads: PlanReads
    write: Callable[[str], None]
    """Runs a statement in a commit of its own, and returns when its changes are captured."""
    unknown: Position
    """A position that the source never had."""
    keeps_history: bool = True
    """Whether every change of a key can be read, and not only the newest."""
    schema: str = "dbo"
    key: tuple[str, ...] = ("Id",)

    def name(self, table: str) -> TableName:
        return TableName(self.schema, table)

    @property
    def orders(self) -> TableName:
        return self.name("Orders")

    def position(self) -> Position:
        """Return the newest position."""
        found = self.source.read_snapshot([self.orders]).newest
        assert isinstance(found, Position)
        return found

    def reader(self, plan: TablePlan) -> TableReader:
        """Return the reader of a plan that ends at the newest position."""
        return self.open_reader(plan, LogEntry(self.position(), None))

    def insert(self, *keys: int) -> None:
        for key in keys:
            self.write(f"INSERT INTO Orders (Id, Amount, Note) VALUES ({key}, {key * 10}, 'n{key}')")

    def plan(self, interval: Interval | None = None) -> TablePlan:
        """Return a plan of Orders: its changes in an interval, or a first load."""
        instance = self.source.read_snapshot([self.orders]).tables[0].feed
        assert instance is not None
        return TablePlan(
            settings=TableSettings(
                self.orders, TableName("shop", "orders"), first_load=FirstLoad(chunk_rows=CHUNK_ROWS)
            ),
            feed=instance,
            interval=interval,
            kind=LoadKind.CHANGES if interval else LoadKind.FIRST_LOAD,
            watermark=interval.after if interval else None,
        )

    def reads(self, interval: Interval, parts: int) -> Sequence[ReadTask]:
        """Return the reads of the changes of Orders, where its plan sets their number."""
        table = with_settings(self.plan(interval), partitions=parts)
        return self.plan_reads(WindowPlan(1, "shop", interval.to, (table,)), 1).tasks

    def changes(self, after: Position) -> tuple[TableReader, Interval]:
        """Return the reader of the changes since a position, and their interval."""
        interval = Interval(after, self.position())
        return self.reader(self.plan(interval)), interval


def keys_of(batches: Iterable[pa.RecordBatch]) -> list[int]:
    return sorted(key for batch in batches for key in batch.column("Id").to_pylist())


class SourceContract:
    """A test class of an adapter derives from it, with a fixture ``rig``."""

    def test_snapshot_has_the_tables_in_the_order_in_which_they_were_asked_for(self, rig: SourceRig) -> None:
        nowhere, plain = rig.name("Nowhere"), rig.name("Plain")
        found = rig.source.read_snapshot([nowhere, rig.orders, plain]).tables
        assert [(table.table, table.feed is not None) for table in found] == [
            (nowhere, False),
            (rig.orders, True),
            (plain, False),
        ]

    def test_snapshot_describes_key_and_columns_of_a_tracked_table(self, rig: SourceRig) -> None:
        table = rig.plan().feed.table
        assert (table.name, table.key) == (rig.orders, rig.key)
        stored = [column.name for column in table.stored_columns]
        assert stored == [*rig.key[:-1], "Id", "Amount", "Note"]

    def test_identity_of_an_instance_stays_while_it_is_there(self, rig: SourceRig) -> None:
        before = rig.plan().feed.identity
        rig.insert(1)
        assert rig.plan().feed.identity == before
        found = rig.source.read_snapshot([rig.orders], {rig.orders: before.name}).tables[0]
        assert found.feed is not None
        assert found.feed.identity == before

    def test_position_moves_with_every_captured_commit(self, rig: SourceRig) -> None:
        positions = [rig.position()]
        for key in (1, 2):
            rig.insert(key)
            positions.append(rig.position())
        assert positions[0] < positions[1] < positions[2]


class TableReaderContract:
    """A test class of an adapter derives from it, with a fixture ``rig``."""

    def test_batches_of_changes_have_the_columns_of_the_shape(self, rig: SourceRig) -> None:
        after = rig.position()
        rig.insert(1)
        reader, interval = rig.changes(after)
        (batch,) = (batch for batch in reader.read(interval) if batch.num_rows)
        shape = reader.shape
        assert batch.schema.names == [*(name for name, _ in shape.own), *(column.name for column in shape.values)]
        for column in shape.values:
            assert batch.schema.field(column.name).type == arrow_type(column.type)
        assert {shape.position, shape.operation, shape.mask, *shape.order} <= set(batch.schema.names)
        assert interval.after < read_position(batch.column(shape.position)[0].as_py()) <= interval.to

    def test_batches_of_rows_have_the_values_alone(self, rig: SourceRig) -> None:
        rig.insert(1)
        reader = rig.reader(rig.plan())
        (batch,) = reader.read_chunk(plan_chunks([])[0])
        assert batch.schema.names == [column.name for column in reader.shape.values]

    def test_interval_excludes_its_beginning_and_includes_its_end(self, rig: SourceRig) -> None:
        rig.insert(1)
        first = rig.position()
        rig.insert(2)
        second = rig.position()
        rig.insert(3)
        reader = rig.reader(rig.plan(Interval(first, second)))
        # A source without history has the newest changes only, also those after the end.
        assert keys_of(reader.read(Interval(first, second))) == ([2] if rig.keeps_history else [2, 3])

    def test_last_change_of_a_key_is_read_and_those_before_it_where_there_is_a_history(self, rig: SourceRig) -> None:
        rig.insert(1)
        after = rig.position()
        rig.write("UPDATE Orders SET Amount = 11 WHERE Id = 1")
        rig.write("DELETE FROM Orders WHERE Id = 1")
        reader, interval = rig.changes(after)
        rows = [row for batch in reader.read(interval) for row in batch.to_pylist()]
        ordered = sorted(rows, key=lambda row: [row[name] for name in reader.shape.order])
        operations = [row[reader.shape.operation] for row in ordered]
        assert operations[-1] == 1
        if rig.keeps_history:
            assert 4 in operations
        else:
            assert operations == [1]

    def test_reads_follow_each_other_and_hold_what_the_interval_holds(self, rig: SourceRig) -> None:
        after = rig.position()
        rig.insert(*range(1, 7))
        interval = Interval(after, rig.position())
        for parts in (1, 3):
            tasks: list[ReadTask] = [pickle.loads(pickle.dumps(each)) for each in rig.reads(interval, parts)]  # noqa: S301
            assert 1 <= len(tasks) <= parts
            cut = [each.interval for each in tasks if isinstance(each, TableRead)] or [interval]
            assert (cut[0].after, cut[-1].to) == (interval.after, interval.to)
            assert all(one.is_followed_by(other) for one, other in pairwise(cut))
            found = [(index, each) for task in tasks for index, each in task.read()]
            assert {index for index, _ in found} == {0}
            assert keys_of(each for _, each in found if isinstance(each, pa.RecordBatch)) == [1, 2, 3, 4, 5, 6]

    def test_reader_travels_to_a_worker(self, rig: SourceRig) -> None:
        after = rig.position()
        rig.insert(1, 2)
        reader, interval = rig.changes(after)
        travelled: Any = pickle.loads(pickle.dumps(reader))  # noqa: S301
        assert travelled.shape == reader.shape
        assert keys_of(travelled.read(interval)) == [1, 2]


class ServerSourceContract(SourceContract):
    """A test class of an adapter derives from it, with a fixture ``rig``."""

    def test_snapshot_says_which_tables_exist(self, rig: SourceRig) -> None:
        found = rig.source.read_snapshot([rig.name(name) for name in ("Nowhere", "Orders", "Plain")]).tables
        assert [table.exists for table in found] == [False, True, True]

    def test_snapshot_says_which_values_a_change_may_omit(self, rig: SourceRig) -> None:
        assert [column.is_lob for column in rig.plan().feed.table.stored_columns] == [False, False, True]

    def test_last_change_of_a_table_is_not_above_the_position(self, rig: SourceRig) -> None:
        before = rig.position()
        rig.insert(1)
        snapshot = rig.source.read_snapshot([rig.orders], None, [before])
        last = snapshot.tables[0].last_change
        assert isinstance(last, Position)
        assert isinstance(snapshot.newest, Position)
        assert low_end(snapshot) <= last <= snapshot.newest
        rig.write("INSERT INTO Plain VALUES (1)")
        assert rig.source.read_snapshot([rig.orders], None, [before]).tables[0].last_change == last

    def test_entries_have_the_commit_time_of_known_positions_only(self, rig: SourceRig) -> None:
        rig.insert(1)
        position = rig.position()
        found = rig.source.read_snapshot([rig.orders], None, [position, rig.unknown])
        assert set(found.entries) == {position, rig.unknown}
        assert isinstance(found.entries[position], datetime)
        assert found.entries[rig.unknown] is None


class ServerReaderContract(TableReaderContract):
    """A test class of an adapter derives from it, with a fixture ``rig``."""

    def test_chunks_hold_every_row_once(self, rig: SourceRig) -> None:
        rig.insert(*range(1, 8))
        reader = rig.reader(rig.plan())
        chunks = plan_chunks(reader.read_chunk_bounds())
        assert len(chunks) > 1
        read = [keys_of(reader.read_chunk(chunk)) for chunk in chunks]
        assert all(len(keys) <= CHUNK_ROWS for keys in read)
        assert [key for keys in read for key in keys] == [1, 2, 3, 4, 5, 6, 7]

    def test_empty_table_has_no_bounds_and_no_rows(self, rig: SourceRig) -> None:
        reader = rig.reader(rig.plan())
        assert list(reader.read_chunk_bounds()) == []
        assert keys_of(reader.read_chunk(plan_chunks([])[0])) == []

    def test_key_of_rows_that_differ_is_not_double_and_a_declared_one_may_be(self, rig: SourceRig) -> None:
        rig.insert(1, 2)
        rig.write("INSERT INTO Orders (Id, Amount, Note) VALUES (3, 20, 'again')")
        plan = rig.plan()
        assert rig.reader(plan).find_double_key() is None
        assert isinstance(plan.feed, Feed)
        declared = replace(plan.feed, table=replace(plan.feed.table, key=("Amount",)))
        found = rig.reader(replace(plan, feed=declared)).find_double_key()
        assert found is not None
        assert found[1] == 2

    def test_rows_are_not_read_before_the_source_has_the_end_of_the_window(self, rig: SourceRig) -> None:
        rig.insert(1)
        reader = rig.open_reader(rig.plan(), LogEntry(rig.position().next(), None))
        with pytest.raises(SourceBehindError, match="behind") as caught:
            keys_of(reader.read_chunk(plan_chunks([])[0]))
        assert caught.value.retryable

    def test_rows_are_not_read_where_the_end_of_the_window_has_another_time(self, rig: SourceRig) -> None:
        rig.insert(1)
        snapshot = rig.source.read_snapshot([rig.orders])
        assert snapshot.newest_at is not None
        for seconds in (-1, 1):
            end = LogEntry(rig.position(), snapshot.newest_at + timedelta(seconds=seconds))
            with pytest.raises(SourceBehindError, match="another log"):
                rig.open_reader(rig.plan(), end).read_chunk_bounds()
        end = LogEntry(rig.position(), snapshot.newest_at)
        assert list(rig.open_reader(rig.plan(), end).read_chunk_bounds()) == []


def low_end(snapshot: SourceSnapshot) -> Position:
    found = snapshot.tables[0].oldest
    assert isinstance(found, Position)
    return found


def safeguard(promise: str, *, without: Collection[str] = ()) -> Callable[[Case], Case]:
    """Make a test a case of a safeguard, for each kind of source.

    promise: the safeguard, as the table of ``docs/windows.md`` names it. without: the kinds that cannot get into the
    state; the table says why.
    """
    kinds = [kind for kind in KINDS if kind not in without]

    def mark(case: Case) -> Case:
        made: Case = pytest.mark.parametrize("guarded", kinds, indirect=True)(case)
        vars(made).update(promise=promise, kinds=frozenset(kinds))
        return made

    return mark


class SafeguardContract:
    """A test class derives from it, with a fixture ``guarded`` that makes the pipeline of a kind.

    In most cases the source has a row of Orders that was changed and one of Others that is new when it happens. Nothing
    may be lost then, nothing may be doubled, and what cannot go on says so.
    """

    @safeguard("a connection that reads proves that it has the end of the window", without=["compact"])
    def test_rows_are_not_read_from_a_copy_that_lags(self, guarded: GuardedPipeline) -> None:
        guarded.put((1, "old"), (2, "gone"))
        guarded.put((1, "new"))
        guarded.remove(2)
        opened = guarded.open()
        with guarded.lag(), pytest.raises(FloodmarkError, match="copy of the database"):
            guarded.load(opened)
        assert guarded.notes() == {}
        assert guarded.run() == set()
        assert (guarded.notes(), guarded.differing()) == ({1: "new"}, [])

    @safeguard("a connection that reads proves that it has the end of the window", without=["compact", "event_stream"])
    def test_changes_are_not_read_from_a_copy_that_lags(self, guarded: GuardedPipeline) -> None:
        """The changes of a stream are read from the stream alone."""
        guarded.put((1, "old"))
        guarded.run()
        guarded.put((1, "new"), (2, "two"))
        opened = guarded.open()
        with guarded.lag(), pytest.raises(FloodmarkError, match="copy of the database"):
            guarded.load(opened)
        assert guarded.notes() == {1: "old"}
        assert guarded.run() == set()
        assert (guarded.notes(), guarded.differing()) == ({1: "new", 2: "two"}, [])

    @pytest.mark.parametrize("order", Order)
    @safeguard("the rows that are merged are those of the try whose end is recorded")
    def test_merged_rows_are_those_of_the_try_whose_end_is_recorded(
        self, guarded: GuardedPipeline, order: Order
    ) -> None:
        guarded.put((1, "old"), (2, "old"), (3, "old"))
        guarded.run()
        guarded.put((1, "heard"))
        guarded.run_twice_tried(order, between=lambda: guarded.put((1, "later"), (2, "later")))
        assert guarded.notes().keys() == {1, 2, 3}
        assert "unheard" not in guarded.notes().values()
        assert guarded.run() == set()
        assert (guarded.notes(), guarded.differing()) == ({1: "later", 2: "later", 3: "old"}, [])

    @safeguard("a key that passes from one row to another within a commit stays alive")
    def test_keys_that_one_commit_passes_from_row_to_row_stay_alive(self, guarded: GuardedPipeline) -> None:
        guarded.put((1, "one"), (2, "two"), (3, "three"), (4, "four"))
        guarded.run()
        guarded.pass_keys_on()
        assert guarded.run() == set()
        assert (guarded.notes(), guarded.differing()) == ({1: "three", 2: "one", 3: "two", 4: "four"}, [])

    @safeguard("another database is noticed")
    def test_nothing_is_read_from_another_database(self, guarded: GuardedPipeline) -> None:
        guarded.put((1, "one"))
        guarded.run()
        with guarded.lead_elsewhere():
            assert guarded.run() == guarded.elsewhere
            assert guarded.notes() == {1: "one"}
        guarded.put((2, "two"))
        assert guarded.run() == set()
        assert (guarded.notes(), guarded.differing()) == ({1: "one", 2: "two"}, [])

    @safeguard("a feed that began again is noticed")
    def test_feed_that_began_again_is_not_read_on(self, guarded: GuardedPipeline) -> None:
        guarded.put((1, "one"), (2, "two"))
        guarded.run()
        guarded.put((2, "before"))
        guarded.run()
        guarded.begin_again()
        assert guarded.run() == guarded.began_again
        assert guarded.notes() == {1: "one", 2: "before"}
        guarded.reload()
        assert guarded.run() == set()
        assert guarded.notes()[1] == "between"
        assert guarded.differing() == []

    @safeguard("a restore of the source is noticed")
    def test_restored_source_is_not_read_on(self, guarded: GuardedPipeline) -> None:
        guarded.put((1, "as it was then"), (2, "two"))
        guarded.run()
        backup = guarded.back_up()
        guarded.put((1, "lost"))
        guarded.put((2, "lost"))
        guarded.run()
        guarded.restore(backup)
        assert guarded.run() == guarded.restored
        assert guarded.notes() == {1: "lost", 2: "lost"}
        guarded.reload()
        assert guarded.run() == set()
        assert guarded.notes()[1] == "as it was then"
        assert guarded.differing() == []

    @safeguard("names are compared as the server spells them")
    def test_names_are_those_of_the_source_however_the_configuration_spells_them(
        self, guarded: GuardedPipeline
    ) -> None:
        guarded.put((1, "one"))
        guarded.spell(str.upper)
        assert guarded.run() == set()
        guarded.put((2, "two"))
        guarded.write_under_another_case()
        assert guarded.run() == set()
        assert (guarded.notes(), guarded.differing()) == ({1: "one", 2: "two"}, [])

    @safeguard("a value that cannot be read never vanishes")
    def test_value_that_cannot_be_read_is_kept_or_leaves_its_rows_out(self, guarded: GuardedPipeline) -> None:
        guarded.put((1, "one"))
        guarded.run()
        guarded.spoil()
        guarded.put((1, "new"))
        left_out = guarded.run()
        assert left_out or guarded.set_aside()
        assert guarded.notes() == {1: "one" if left_out else "new"}
        guarded.correct()
        assert guarded.run() == set()
        assert (guarded.notes(), guarded.differing()) == ({1: "new", 9: "corrected"}, [])

    @safeguard("one table or device does not stop the others")
    def test_table_whose_feed_is_broken_does_not_stop_the_others(self, guarded: GuardedPipeline) -> None:
        guarded.put((1, "one"))
        guarded.run()
        guarded.break_feed()
        guarded.put_other(7)
        assert len(guarded.run()) == 1
        assert guarded.notes() == {1: "one"}
        assert 7 in guarded.others()

    @safeguard("one table or device does not stop the others")
    def test_table_whose_target_refuses_rows_does_not_stop_the_others(self, guarded: GuardedPipeline) -> None:
        guarded.put((1, "one"))
        guarded.run()
        guarded.change_warehouse("ALTER TABLE shop.orders ADD CONSTRAINT short CHECK (length(note) < 10)")
        guarded.put((1, "much too long for it"))
        guarded.put_other(7)
        assert guarded.run() == {"refused"}
        assert guarded.notes() == {1: "one"}
        assert 7 in guarded.others()
        guarded.change_warehouse("ALTER TABLE shop.orders DROP CONSTRAINT short")
        guarded.put_other(8)
        assert guarded.run() == set()
        assert guarded.differing() == []

    @safeguard("a later change wins over an older one that comes late")
    def test_older_change_that_comes_late_changes_nothing(self, guarded: GuardedPipeline) -> None:
        guarded.put((1, "one"), (2, "two"))
        guarded.run()
        guarded.bring_late()
        assert guarded.notes() == {1: "newer", 2: "two"}

    @pytest.mark.parametrize("fault", ["TRUNCATE shop.orders", "DROP TABLE shop.orders"])
    @safeguard("the target is the one that the watermark belongs to")
    def test_target_that_lost_its_rows_is_not_merged_into(self, guarded: GuardedPipeline, fault: str) -> None:
        guarded.put((1, "one"), (2, "two"))
        guarded.run()
        guarded.change_warehouse(fault)
        guarded.put((1, "new"))
        guarded.put_other(7)
        assert guarded.run() == {"target_lost"}
        assert guarded.notes() == {}
        assert 7 in guarded.others()
        guarded.reload()
        assert guarded.run() == set()
        assert (guarded.notes(), guarded.differing()) == ({1: "new", 2: "two"}, [])
