"""``SourceContract`` and ``TableReaderContract``: what every source does, and the readers of its tables."""

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
from floodmark.core.lsn import Lsn
from floodmark.core.policies import Deletes, NetSource, TemporalPolicy
from floodmark.core.schema import TableName
from floodmark.core.source.history import LogEntry
from floodmark.core.source.snapshot import SourceSnapshot
from floodmark.core.window.chunks import plan_chunks
from floodmark.core.window.plan import LoadKind, TablePlan, WindowPlan
from floodmark.sync.ports.arrow import arrow_type
from floodmark.sync.ports.reader import OpenReader, PlanParts, TableReader
from floodmark.sync.ports.source import Source

ORDERS, PLAIN, NOWHERE = (TableName("dbo", name) for name in ("Orders", "Plain", "Nowhere"))
"""dbo.Orders (Id int, the key; Amount decimal(18,2); Note text of any length) is tracked, dbo.Plain is not."""
UNKNOWN = Lsn(b"\x00" * 9 + b"\x01")
CHUNK_ROWS = 2


@dataclass
class SourceRig:
    """A source with its tables, made anew for each test."""

    source: Source
    open_reader: OpenReader
    plan_parts: PlanParts
    write: Callable[[str], None]
    """Runs statements, one commit each, and returns when their changes are captured."""

    def position(self) -> Lsn:
        """Return the newest position."""
        found = self.source.read_snapshot([ORDERS]).max_lsn
        assert isinstance(found, Lsn)
        return found

    def reader(self, plan: TablePlan) -> TableReader:
        """Return the reader of a plan that ends at the newest position."""
        return self.open_reader(plan, LogEntry(self.position(), None))

    def insert(self, *keys: int) -> None:
        for key in keys:
            self.write(f"INSERT INTO dbo.Orders VALUES ({key}, {key * 10}, 'n{key}')")

    def plan(self, interval: Interval | None = None) -> TablePlan:
        """Return a plan of dbo.Orders: its changes in an interval, or a first load."""
        instance = self.source.read_snapshot([ORDERS]).tables[0].instance
        assert instance is not None
        return TablePlan(
            source=ORDERS,
            target=TableName("shop", "orders"),
            feed=instance,
            interval=interval,
            kind=LoadKind.CHANGES if interval else LoadKind.FIRST_LOAD,
            watermark=interval and interval.after_lsn,
            deletes=Deletes.SOFT,
            net=NetSource.SPARK,
            temporal=TemporalPolicy.TRUNCATE,
            first_load_chunk_rows=CHUNK_ROWS,
        )

    def parts(self, interval: Interval, parts: int) -> Sequence[Interval]:
        """Return the parts of the changes of dbo.Orders, where its plan sets their number."""
        table = replace(self.plan(interval), partitions=parts)
        return self.plan_parts(WindowPlan(1, "shop", interval.to_lsn, (table,)), 1)[ORDERS].intervals

    def changes(self, after: Lsn) -> tuple[TableReader, Interval]:
        """Return the reader of the changes since a position, and their interval."""
        interval = Interval(after, self.position())
        return self.reader(self.plan(interval)), interval


def keys_of(batches: Iterable[pa.RecordBatch]) -> list[int]:
    return sorted(key for batch in batches for key in batch.column("Id").to_pylist())


class SourceContract:
    """A test class of an adapter derives from it, with a fixture ``rig``."""

    def test_snapshot_has_the_tables_in_the_order_in_which_they_were_asked_for(self, rig: SourceRig) -> None:
        found = rig.source.read_snapshot([NOWHERE, ORDERS, PLAIN]).tables
        assert [(table.table, table.exists, table.instance is not None) for table in found] == [
            (NOWHERE, False, False),
            (ORDERS, True, True),
            (PLAIN, True, False),
        ]

    def test_snapshot_describes_key_and_columns_of_a_tracked_table(self, rig: SourceRig) -> None:
        table = rig.plan().feed.table
        assert (table.name, table.key) == (ORDERS, ("Id",))
        assert [(column.name, column.is_lob) for column in table.stored_columns] == [
            ("Id", False),
            ("Amount", False),
            ("Note", True),
        ]

    def test_identity_of_an_instance_stays_while_it_is_there(self, rig: SourceRig) -> None:
        before = rig.plan().feed.identity
        rig.insert(1)
        assert rig.plan().feed.identity == before
        found = rig.source.read_snapshot([ORDERS], {ORDERS: before.name}).tables[0]
        assert found.instance is not None
        assert found.instance.identity == before

    def test_instance_that_is_not_there_is_not_replaced_by_another(self, rig: SourceRig) -> None:
        found = rig.source.read_snapshot([ORDERS], {ORDERS: "another"}).tables[0]
        assert (found.exists, found.instance) == (True, None)

    def test_position_moves_with_every_captured_commit(self, rig: SourceRig) -> None:
        positions = [rig.position()]
        for key in (1, 2):
            rig.insert(key)
            positions.append(rig.position())
        assert positions[0] < positions[1] < positions[2]

    def test_last_change_of_a_table_is_not_above_the_position(self, rig: SourceRig) -> None:
        rig.insert(1)
        snapshot = rig.source.read_snapshot([ORDERS])
        last = snapshot.tables[0].last_change_lsn
        assert isinstance(last, Lsn)
        assert isinstance(snapshot.max_lsn, Lsn)
        assert low_end(snapshot) <= last <= snapshot.max_lsn
        rig.write("INSERT INTO dbo.Plain VALUES (1)")
        assert rig.source.read_snapshot([ORDERS]).tables[0].last_change_lsn == last

    def test_entries_have_the_commit_time_of_known_positions_only(self, rig: SourceRig) -> None:
        rig.insert(1)
        position = rig.position()
        found = rig.source.read_snapshot([ORDERS], None, [position, UNKNOWN])
        assert set(found.entries) == {position, UNKNOWN}
        assert isinstance(found.entries[position], datetime)
        assert found.entries[UNKNOWN] is None


class TableReaderContract:
    """A test class of an adapter derives from it, with a fixture ``rig``."""

    def test_batches_of_changes_have_the_columns_of_the_shape(self, rig: SourceRig) -> None:
        after = rig.position()
        rig.insert(1)
        reader, interval = rig.changes(after)
        (batch,) = reader.read(interval)
        shape = reader.shape
        assert batch.schema.names == [*(name for name, _ in shape.own), *(column.name for column in shape.values)]
        for column in shape.values:
            assert batch.schema.field(column.name).type == arrow_type(column.type)
        assert {shape.position, shape.operation, shape.mask, *shape.order} <= set(batch.schema.names)
        assert interval.after_lsn < Lsn(batch.column(shape.position)[0].as_py()) <= interval.to_lsn

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
        assert keys_of(reader.read(Interval(first, second))) == [2]

    def test_every_change_of_a_key_is_read(self, rig: SourceRig) -> None:
        after = rig.position()
        rig.insert(1)
        rig.write("UPDATE dbo.Orders SET Amount = 11 WHERE Id = 1")
        rig.write("DELETE FROM dbo.Orders WHERE Id = 1")
        reader, interval = rig.changes(after)
        rows = [row for batch in reader.read(interval) for row in batch.to_pylist()]
        ordered = sorted(rows, key=lambda row: [row[name] for name in reader.shape.order])
        operations = [row[reader.shape.operation] for row in ordered]
        assert (operations[0], operations[-1]) == (2, 1)
        assert 4 in operations

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
        rig.write("INSERT INTO dbo.Orders VALUES (3, 20, 'again')")
        plan = rig.plan()
        assert rig.reader(plan).find_double_key() is None
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
        snapshot = rig.source.read_snapshot([ORDERS])
        assert snapshot.max_lsn_at is not None
        for seconds in (-1, 1):
            end = LogEntry(rig.position(), snapshot.max_lsn_at + timedelta(seconds=seconds))
            with pytest.raises(SourceBehindError, match="another log"):
                rig.open_reader(rig.plan(), end).read_chunk_bounds()
        end = LogEntry(rig.position(), snapshot.max_lsn_at)
        assert list(rig.open_reader(rig.plan(), end).read_chunk_bounds()) == []

    def test_reader_travels_to_a_worker(self, rig: SourceRig) -> None:
        after = rig.position()
        rig.insert(1, 2)
        reader, interval = rig.changes(after)
        travelled: Any = pickle.loads(pickle.dumps(reader))  # noqa: S301
        assert travelled.shape == reader.shape
        assert keys_of(travelled.read(interval)) == [1, 2]


def low_end(snapshot: SourceSnapshot) -> Lsn:
    found = snapshot.tables[0].min_lsn
    assert isinstance(found, Lsn)
    return found
