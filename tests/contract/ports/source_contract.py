"""Contracts of all sources and of the readers of their tables, and of the sources and readers of a server.

``SourceContract`` and ``TableReaderContract`` hold for all, ``ServerSourceContract`` and ``ServerReaderContract`` for
one database with a log: its positions have commit times, and its rows are read in chunks.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest

from floodmark.core.errors import SourceBehindError
from floodmark.core.interval import Interval
from floodmark.core.policies import Deletes, NetSource, TemporalPolicy
from floodmark.core.position import Position
from floodmark.core.positions import read_position
from floodmark.core.schema import TableName
from floodmark.core.source.history import LogEntry
from floodmark.core.source.snapshot import CaptureInstance, SourceSnapshot
from floodmark.core.window.chunks import plan_chunks
from floodmark.core.window.plan import LoadKind, TablePlan, WindowPlan
from floodmark.sync.ports.arrow import arrow_type
from floodmark.sync.ports.reader import OpenReader, PlanParts, TableReader
from floodmark.sync.ports.source import Source

CHUNK_ROWS = 2


@dataclass
class SourceRig:
    """A source with new tables for each test.

    Orders (Id int, the key; Amount decimal(18,2); Note, a text of any length) is tracked, Plain (Id int) is not.
    """

    source: Source
    open_reader: OpenReader
    plan_parts: PlanParts
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
        found = self.source.read_snapshot([self.orders]).max_lsn
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
        instance = self.source.read_snapshot([self.orders]).tables[0].instance
        assert instance is not None
        return TablePlan(
            source=self.orders,
            target=TableName("shop", "orders"),
            feed=instance,
            interval=interval,
            kind=LoadKind.CHANGES if interval else LoadKind.FIRST_LOAD,
            watermark=interval.after_lsn if interval else None,
            deletes=Deletes.SOFT,
            net=NetSource.SPARK,
            temporal=TemporalPolicy.TRUNCATE,
            first_load_chunk_rows=CHUNK_ROWS,
        )

    def parts(self, interval: Interval, parts: int) -> Sequence[Interval]:
        """Return the parts of the changes of Orders, where its plan sets their number."""
        table = replace(self.plan(interval), partitions=parts)
        return self.plan_parts(WindowPlan(1, "shop", interval.to_lsn, (table,)), 1)[self.orders].intervals

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
        assert [(table.table, table.instance is not None) for table in found] == [
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
        assert found.instance is not None
        assert found.instance.identity == before

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
        assert interval.after_lsn < read_position(batch.column(shape.position)[0].as_py()) <= interval.to_lsn

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

    def test_parts_follow_each_other_and_hold_what_the_interval_holds(self, rig: SourceRig) -> None:
        after = rig.position()
        rig.insert(*range(1, 7))
        reader, interval = rig.changes(after)
        for parts in (1, 3):
            cut = list(rig.parts(interval, parts))
            assert 1 <= len(cut) <= parts
            assert (cut[0].after_lsn, cut[-1].to_lsn) == (interval.after_lsn, interval.to_lsn)
            assert all(one.is_followed_by(other) for one, other in pairwise(cut))
            assert keys_of(batch for part in cut for batch in reader.read(part)) == [1, 2, 3, 4, 5, 6]

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
        last = snapshot.tables[0].last_change_lsn
        assert isinstance(last, Position)
        assert isinstance(snapshot.max_lsn, Position)
        assert low_end(snapshot) <= last <= snapshot.max_lsn
        rig.write("INSERT INTO Plain VALUES (1)")
        assert rig.source.read_snapshot([rig.orders], None, [before]).tables[0].last_change_lsn == last

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
        assert isinstance(plan.feed, CaptureInstance)
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
        assert snapshot.max_lsn_at is not None
        for seconds in (-1, 1):
            end = LogEntry(rig.position(), snapshot.max_lsn_at + timedelta(seconds=seconds))
            with pytest.raises(SourceBehindError, match="another log"):
                rig.open_reader(rig.plan(), end).read_chunk_bounds()
        end = LogEntry(rig.position(), snapshot.max_lsn_at)
        assert list(rig.open_reader(rig.plan(), end).read_chunk_bounds()) == []


def low_end(snapshot: SourceSnapshot) -> Position:
    found = snapshot.tables[0].min_lsn
    assert isinstance(found, Position)
    return found
