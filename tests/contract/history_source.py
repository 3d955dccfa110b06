"""A source of two tables in memory for random histories: keys that are easily taken for one, LOBs, and one log.

Amounts are numbers that no two changes share, so that a row shows which change it is. An amount of ``BAD`` or more
breaks the rule of a table.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
from small_source import NOON, START
from warehouse_shop import DELETE, INSERT, ORDERS, TARGET, UPDATE

from floodmark.core.position import Interval, NoPosition, Position
from floodmark.core.recovery import LocalSpan, MappedTimes
from floodmark.core.schema import (
    EXACT_COLLATION,
    MAX_LENGTH,
    OPERATION_COLUMN,
    POSITION_COLUMN,
    SourceColumn,
    SourceTable,
    TableName,
    keep_column,
)
from floodmark.core.settings import NetSource
from floodmark.core.snapshot import Feed, FeedIdentity, MemberMark, SourceSnapshot, TableSnapshot
from floodmark.core.upkeep import ChangeTableSize, RetentionStatus
from lsns import lsn, number_of

Key = tuple[int | str, ...]
BAD = 1_000_000
ITEMS = TableName("dbo", "Items")
ITEMS_TARGET = TableName("shop", "items")
_VALUES = (
    SourceColumn("Amount", "decimal", 8, precision=18, scale=2),
    SourceColumn("Notes", "nvarchar", 9, MAX_LENGTH),
)
_KEYS: dict[TableName, tuple[SourceColumn, ...]] = {
    ORDERS: (SourceColumn("Id", "int", 1, nullable=False),),
    ITEMS: (
        SourceColumn("Region", "nvarchar", 1, 10, nullable=False, collation=EXACT_COLLATION),
        SourceColumn("No", "int", 2, nullable=False),
    ),
}
KEYS: dict[TableName, tuple[Key, ...]] = {
    ORDERS: ((0,), (1,), (-1,), (2,), (-2,)),
    # Their hashes, or their texts, are equal for those who leave out a sign, case, or blanks at the end.
    ITEMS: (("a", 1), ("a", -1), ("A", 1), ("a ", 1), ("", 1), ("ä", 1)),
}
TARGETS = {ORDERS: TARGET, ITEMS: ITEMS_TARGET}
_ARROW = {"int": pa.int32(), "nvarchar": pa.string(), "decimal": pa.decimal128(18, 2)}


@dataclass(frozen=True)
class State:
    """The values of a living row."""

    amount: int
    notes: str | None


@dataclass(frozen=True)
class Change:
    """A row of a change table. keeps: the LOB is left out, since it did not change."""

    key: Key
    op: int
    lsn: int
    amount: int
    notes: str | None = None
    keeps: bool = False


@dataclass
class HistoryTable:
    """A table, its change table, and every state that its keys ever had."""

    name: TableName
    rows: dict[Key, State] = field(default_factory=dict)
    log: list[Change] = field(default_factory=list)
    versions: dict[Key, set[State]] = field(default_factory=dict)
    oldest: int = START

    @property
    def instance(self) -> Feed:
        columns = _KEYS[self.name]
        return Feed(
            FeedIdentity(f"dbo_{self.name.name}", 42, datetime(2026, 1, 2, 3, 4, 5)),
            SourceTable(self.name, (*columns, *_VALUES), tuple(column.name for column in columns)),
            lsn(START),
            supports_net_changes=True,
            has_command_id=True,
        )

    def write(self, at: int, key: Key, amount: int, notes: str | None, *, keeps: bool) -> None:
        """Insert or update a row. keeps: an update leaves the LOB as it is."""
        before = self.rows.get(key)
        if before is None:
            self.log.append(Change(key, INSERT, at, amount, notes))
            self.rows[key] = State(amount, notes)
        else:
            after = State(amount, before.notes if keeps else notes)
            self.log.append(Change(key, UPDATE, at, amount, None if keeps else notes, keeps))
            self.rows[key] = after
        self.versions.setdefault(key, set()).add(self.rows[key])

    def delete(self, at: int, key: Key) -> None:
        gone = self.rows.pop(key)
        self.log.append(Change(key, DELETE, at, gone.amount, None, keeps=True))

    def kept(self) -> list[Change]:
        """Return the changes that cleanup has left."""
        return [change for change in self.log if change.lsn >= self.oldest]

    def changes_in(self, interval: Interval) -> list[Change]:
        return [change for change in self.kept() if lsn(change.lsn) in interval]


@dataclass
class HistorySource:
    """``Source``, ``ReplaySource`` and the cleanup of two tables with one log. ``position`` is the newest LSN."""

    tables: dict[TableName, HistoryTable] = field(
        default_factory=lambda: {name: HistoryTable(name) for name in (ORDERS, ITEMS)}
    )
    position: int = START
    written: int = 0

    def amount(self, *, is_bad: bool) -> int:
        """Return an amount that no row has had."""
        self.written += 1
        return self.written + (BAD if is_bad else 0)

    @staticmethod
    def committed_at(position: int) -> datetime:
        return NOON + timedelta(seconds=position)

    def read_snapshot(
        self,
        tables: Sequence[TableName],
        feeds: Mapping[TableName, str] | None = None,
        positions: Collection[Position] = (),
        marks: Mapping[TableName, Sequence[MemberMark]] | None = None,
        whole: Collection[TableName] = (),
    ) -> SourceSnapshot:
        now = self.committed_at(self.position)
        there = range(START, self.position + 1)
        entries = {asked: self.committed_at(at) if (at := number_of(asked)) in there else None for asked in positions}
        return SourceSnapshot(
            "Shop",
            True,
            lsn(self.position),
            now,
            now,
            0.0,
            True,
            tuple(self._table_snapshot(self.tables[name]) for name in tables),
            entries,
        )

    @staticmethod
    def _table_snapshot(table: HistoryTable) -> TableSnapshot:
        kept = table.kept()
        last = lsn(kept[-1].lsn) if kept else NoPosition.NULL
        return TableSnapshot(table.name, True, table.instance, lsn(table.oldest), True, last)

    def read_local_time(self, at: datetime) -> LocalSpan:
        local = at.astimezone(UTC).replace(tzinfo=None)
        return LocalSpan(local, local)

    def map_times(self, from_at: datetime, to_at: datetime) -> MappedTimes:
        raise AssertionError("replays of histories are of positions")

    def count_changes(self, intervals: Mapping[str, Interval], limit: int = 0) -> Mapping[str, int]:
        named = {f"dbo_{name.name}": table for name, table in self.tables.items()}
        counts = {name: len(named[name].changes_in(interval)) for name, interval in intervals.items()}
        return {name: min(rows, limit) if limit else rows for name, rows in counts.items()}

    def read_retention(self) -> RetentionStatus:
        sizes = tuple(
            ChangeTableSize(f"dbo_{name.name}", name, len(table.kept()), 8192, lsn(table.oldest))
            for name, table in self.tables.items()
        )
        return RetentionStatus(4320, 5000, self.committed_at(self.position), sizes)

    def change_cleanup(self, changes: Mapping[str, int]) -> None:
        raise AssertionError("the retention is not to be changed")

    def read_low_water_mark(self, watermark: Position, margin_seconds: float) -> Position | None:
        """Return the entry that is older by the margin: a position is a second."""
        at = number_of(watermark) - int(margin_seconds)
        return lsn(at) if at >= START else None

    def clean_instance(self, instance: str, low_water_mark: Position, threshold: int) -> bool:
        (table,) = (each for name, each in self.tables.items() if f"dbo_{name.name}" == instance)
        table.oldest = max(table.oldest, number_of(low_water_mark))
        return True


def net_changes(table: HistoryTable, interval: Interval, net: NetSource) -> tuple[int, list[Change]]:
    """Return how many changes an interval has, and the net change of each key, by Spark or by the server."""
    changes = table.changes_in(interval)
    by_key: dict[Key, list[Change]] = {}
    for change in changes:
        by_key.setdefault(change.key, []).append(change)
    found = [_net(each) for each in by_key.values()]
    if net is NetSource.SERVER:
        # The server omits a row that came and went.
        gone = {key for key, each in by_key.items() if (each[0].op, each[-1].op) == (INSERT, DELETE)}
        found = [change for change in found if change.key not in gone]
    return len(changes), found


def _net(changes: Sequence[Change]) -> Change:
    last = changes[-1]
    if last.op == DELETE:
        return last
    notes, keeps = None, True
    for change in changes:
        if not change.keeps:
            notes, keeps = change.notes, False
    op = INSERT if changes[0].op == INSERT else UPDATE
    return Change(last.key, op, last.lsn, last.amount, notes, keeps)


def batch_of(table: HistoryTable, changes: Sequence[Change]) -> pa.RecordBatch:
    """Return staged rows as a worker hands them to a ``StagingSink``."""
    columns = table.instance.table.stored_columns
    key = table.instance.table.key
    values: list[dict[str, Any]] = [
        dict(zip(key, change.key, strict=True))
        | {"Amount": change.amount, "Notes": change.notes}
        | {POSITION_COLUMN: lsn(change.lsn).value, OPERATION_COLUMN: change.op, keep_column("Notes"): change.keeps}
        for change in changes
    ]
    own = [(POSITION_COLUMN, pa.binary()), (OPERATION_COLUMN, pa.int16()), (keep_column("Notes"), pa.bool_())]
    schema = pa.schema([*((column.name, _ARROW[column.type_name]) for column in columns), *own])
    return pa.RecordBatch.from_pylist(values, schema=schema)
