"""``CompactReader``: a table of all devices of a fleet.

Each device is read from a copy that is taken at a receipt, from its mark on, or as a whole where it has none. Rows have
the position of the window's end, so that a later window always wins over an earlier one, whatever state the device was
put back to. A device that cannot be read has a verdict, and does not stop the others.
"""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa

from compact_tracking import (
    ChangeTracking,
    DamagedFileError,
    Operation,
    Snapshot,
    guard,
    open_shipped,
    open_snapshot,
)
from floodmark.core import change
from floodmark.core.errors import SourceUnavailableError
from floodmark.core.interval import Interval
from floodmark.core.job_variables import SOURCE_VARIABLE
from floodmark.core.position import Position
from floodmark.core.source.history import LogEntry
from floodmark.core.source.snapshot import Verdict
from floodmark.core.window.chunks import Bound, LoadChunk
from floodmark.core.window.columns import value_columns
from floodmark.core.window.members import MemberRead
from floodmark.core.window.plan import LoadKind, TablePlan
from floodmark.sources.compact.faults import ERRORS, GAPS, OtherKeyError, ReservedColumnError, explain_fault
from floodmark.sources.compact.fleet import Fleet
from floodmark.sources.compact.marks import DeviceMark
from floodmark.sources.compact.rows import MASK, OPERATION, OWN_COLUMNS, POSITION, RowBatches
from floodmark.sources.compact.tables import DEVICE_COLUMN, describe_tables, has_own_column, open_file, table_name
from floodmark.sources.compact.unchanged import has_nothing_new
from floodmark.sync.ports.members import attach_members
from floodmark.sync.ports.reader import RowShape

_LOG = logging.getLogger(__name__)
_LOCK_SECONDS = 5.0
_SPARE_BYTES = 64 * 1024 * 1024
_LONGER = 16
"""Rows may be this many times as long as their file, and ``_SPARE_BYTES`` more."""
DEVICES_AT_ONCE = 64
"""The devices whose rows are in memory at the same time."""
_Found = tuple[list[pa.RecordBatch], MemberRead]


def open_compact_reader(plan: TablePlan, end: LogEntry) -> CompactReader:
    """Return the reader over the fleet that the environment names."""
    return CompactReader(plan, Fleet.from_json(os.environ[SOURCE_VARIABLE]))


@dataclass(frozen=True)
class CompactReader:
    """``sync.ports.reader.TableReader``."""

    plan: TablePlan
    fleet: Fleet

    @cached_property
    def shape(self) -> RowShape:
        table = self.plan.feed.table
        is_first = self.plan.kind is LoadKind.FIRST_LOAD
        return RowShape(
            key=table.key,
            own=() if is_first else OWN_COLUMNS,
            values=value_columns(table, self.plan.temporal),
            order=(),
            position=POSITION,
            operation=OPERATION,
            mask=MASK,
        )

    def read(self, interval: Interval) -> Iterator[pa.RecordBatch]:
        """Yield the changes of each device since its mark, or all of its rows, and how each device was examined."""
        marks = {each.member: each.mark for each in self.plan.marks}
        files = self.fleet.list_files()
        batches = self._batches(interval.to_lsn)

        def examine(device: str) -> _Found:
            return self._examine(device, files[device], marks.get(device), batches)

        devices = list(files)
        # Most of the time of a device is spent waiting for its disk.
        with ThreadPoolExecutor(self.plan.max_reads, thread_name_prefix="device") as pool:
            for first in range(0, len(devices), DEVICES_AT_ONCE):
                for rows, read in pool.map(examine, devices[first : first + DEVICES_AT_ONCE]):
                    if read.verdict is not None:
                        what = read.verdict.value
                        _LOG.warning("%s, device %s: %s: %s", self.plan.source, read.member, what, read.cause)
                    yield from rows
                    yield attach_members(batches.empty(), [read])
        # A device that is away is not late: its mark waits for it, and no verdict does.
        away = [MemberRead(device, mark) for device, mark in marks.items() if device not in files]
        yield attach_members(batches.empty(), away)

    def _examine(self, device: str, files: Sequence[Path], mark: str | None, batches: RowBatches) -> _Found:
        if len(files) > 1:
            return [], MemberRead(
                device,
                mark,
                verdict=Verdict.NOT_PLANNABLE,
                cause=f"two files have its name: {' and '.join(map(str, files))}.",
                hint="Give each device a file name of its own, or name fewer folders.",
            )
        known = DeviceMark.parse(mark) if mark else None
        try:
            if known and self._has_nothing_new(files[0], known):
                return [], MemberRead(device, mark)
            rows, after = self._read_device(device, files[0], known, batches)
            return rows, MemberRead(device, mark, after, is_whole=known is None)
        except ERRORS as error:
            fault = explain_fault(error, files[0], known)
        if fault.verdict in GAPS and self.plan.reloads_members:
            _LOG.warning("%s, device %s: %s It is read as a whole.", self.plan.source, device, fault.cause)
            try:
                rows, after = self._read_device(device, files[0], None, batches)
                return rows, MemberRead(device, mark, after, is_whole=True)
            except ERRORS as error:
                fault = explain_fault(error, files[0], None)
        return [], MemberRead(device, mark, verdict=fault.verdict, cause=fault.cause, hint=fault.hint)

    def _read_device(
        self, device: str, file: Path, mark: DeviceMark | None, batches: RowBatches
    ) -> tuple[list[pa.RecordBatch], str]:
        """Return the rows of a device, all of them without a mark, and the mark to keep. Raises one of ``ERRORS``."""
        table = table_name(self.plan.source)
        with self._open(file, mark.proof if mark else None) as snapshot:
            _require_whole(snapshot)
            names = snapshot.read_columns(table)
            self._require_fit(snapshot, table)
            if mark is None:
                rows = list(_bounded(snapshot.read_rows(table), file))
                found = list(batches.build(device, names, rows, change.Operation.INSERT))
            else:
                # An earlier attempt, or a reload, may have brought a row that is gone since.
                changes = list(snapshot.enumerate_changes(table, mark.anchor, with_passing=True))
                kept = list(_bounded((each.row for each in changes if each.row is not None), file))
                gone = [each.key for each in changes if each.operation is Operation.DELETE]
                found = [
                    *batches.build(device, names, kept, change.Operation.UPDATE),
                    *batches.build(device, self.plan.feed.table.key[1:], gone, change.Operation.DELETE),
                ]
            after = str(DeviceMark.of(snapshot, table, self._consumer))
        if mark is not None and found:
            self._give_back(file)
        return found, after

    def _require_fit(self, snapshot: Snapshot, table: str) -> None:
        """Raise OtherKeyError or ReservedColumnError where a device's table does not fit that of the fleet."""
        described = describe_tables(snapshot.connection, [table])[table.lower()]
        if has_own_column(described):
            raise ReservedColumnError(f"it has a column {DEVICE_COLUMN}, the name of the warehouse's own column")
        found, planned = described.key, self.plan.feed.table.key[1:]
        if [name.lower() for name in found] != [name.lower() for name in planned]:
            raise OtherKeyError(f"its key is ({', '.join(found)}), and that of other devices ({', '.join(planned)})")

    def _has_nothing_new(self, file: Path, mark: DeviceMark) -> bool:
        is_own = mark.consumer == self._consumer
        return is_own and has_nothing_new(self.fleet, file, table_name(self.plan.source), mark)

    @property
    def _consumer(self) -> str:
        # One for each table: its receipts are proven by its own marks. A target has one writer.
        return self.fleet.consumer if self.fleet.is_shipped else f"{self.fleet.consumer}/{self.plan.target}"

    def _open(self, file: Path, proof: str | None) -> AbstractContextManager[Snapshot]:
        if self.fleet.is_shipped:
            return open_shipped(file, self._consumer, proof)
        return open_snapshot(file, self._consumer, proof, timeout_seconds=_LOCK_SECONDS)

    def _give_back(self, file: Path) -> None:
        """Purge on the device what every consumer has: that this one has it was proven by the read."""
        if self.fleet.is_shipped or not self.fleet.purge_after_days:
            return
        with closing(sqlite3.connect(file, isolation_level=None, timeout=_LOCK_SECONDS)) as connection:
            guard(connection, file)
            ChangeTracking(connection).purge_consumed(self.fleet.purge_after_days)

    def read_chunk_bounds(self) -> Sequence[Bound]:
        """Return none: the devices are read one after the other."""
        return ()

    def find_double_key(self) -> tuple[Bound, int] | None:
        """Return None: a tracked table has a unique key, and a device one file."""
        return None

    def read_chunk(self, chunk: LoadChunk) -> Iterator[pa.RecordBatch]:
        """Yield the rows of all devices as they are now. No mark moves, and nothing is written to a device."""
        batches = self._batches(None)
        table = table_name(self.plan.source)
        for device, files in self.fleet.list_files().items():
            try:
                names, rows = self._read_now(files[0], table)
                yield from batches.build(device, names, rows, change.Operation.INSERT)
            except ERRORS as error:
                fault = explain_fault(error, files[0], None)
                raise SourceUnavailableError(
                    str(self.plan.source), f"device {device} could not be read: {fault.cause}", fault.hint
                ) from error

    def _read_now(self, file: Path, table: str) -> tuple[Sequence[str], list[tuple[object, ...]]]:
        """Return the columns and the rows of a table, from a copy: a reader may keep a device's writers waiting."""
        names = [column.name for column in self.plan.feed.table.stored_columns[1:]]
        opened = open_file(file, is_shipped=self.fleet.is_shipped)
        with opened as connection, closing(sqlite3.connect(":memory:")) as copy:
            # A copy would wait for a lock without end, a statement does not.
            connection.execute("BEGIN")
            connection.execute("SELECT count(*) FROM main.sqlite_master").fetchone()
            connection.backup(copy)
            guard(copy, file)
            has = {name.lower() for (name,) in copy.execute("SELECT name FROM pragma_table_xinfo(?)", (table,))}
            names = [name for name in names if name.lower() in has]
            columns = ", ".join(quote_name(name) for name in names)
            rows = copy.execute(f"SELECT {columns} FROM {quote_name(table)}")  # noqa: S608
            return names, list(_bounded(rows, file))

    def _batches(self, at: Position | None) -> RowBatches:
        return RowBatches(self.plan.feed.table, self.plan.temporal, at)


def quote_name(name: str) -> str:
    """Return a quoted identifier of SQLite."""
    return '"' + name.replace('"', '""') + '"'


def _bounded(rows: Iterable[tuple[Any, ...]], file: Path) -> Iterator[tuple[Any, ...]]:
    """Yield the rows. Raises DamagedFileError where they are much longer than the file: generated columns made them."""
    left = _SPARE_BYTES + _LONGER * file.stat().st_size
    for row in rows:
        left -= sum(len(value) for value in row if isinstance(value, (str, bytes)))
        if left < 0:
            raise DamagedFileError("the rows of the table are much longer than the file")
        yield row


def _require_whole(snapshot: Snapshot) -> None:
    """Raise DamagedFileError where pages of a device's file are missing or do not fit together."""
    [(found,)] = snapshot.connection.execute("PRAGMA main.quick_check(1)").fetchall()
    if found != "ok":
        raise DamagedFileError(f"the file is damaged ({found})")
