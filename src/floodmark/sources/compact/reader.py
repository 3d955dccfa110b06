"""``CompactReader``: a table of all devices of a fleet, with the marks of the devices."""

from __future__ import annotations

import json
import logging
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa

from compact_tracking import (
    Anchor,
    AnchorExpiredError,
    AnchorReplacedError,
    AnchorRewoundError,
    Change,
    DamagedFileError,
    InvalidOperationError,
    Operation,
    Snapshot,
    TableAnchor,
    TrackingArgumentError,
    TrackingError,
    TrackingLostError,
    guard,
    is_read,
    is_unchanged,
    open_shipped,
    open_snapshot,
    read_device,
)
from floodmark.core import schema
from floodmark.core.errors import ConfigError, FloodmarkBugError, SourceUnavailableError
from floodmark.core.plan import Bound, LoadChunk, LoadKind, MemberRead, TablePlan, WindowPlan, value_columns
from floodmark.core.position import Interval, Position, Version
from floodmark.core.settings import SOURCE_VARIABLE
from floodmark.core.snapshot import LogEntry, MemberMark, Verdict
from floodmark.sources.compact.tables import (
    COMMITTED_AT,
    DEVICE_COLUMN,
    MASK,
    OPERATION,
    OWN_COLUMNS,
    POSITION,
    DeviceTable,
    Passes,
    RowBatches,
    ValueRefusedError,
    describe_tables,
    filter_rows,
    has_own_column,
    open_file,
    table_name,
)
from floodmark.sync.filters import FilterError
from floodmark.sync.ports import RowShape, WindowReads, read_tables
from floodmark.sync.records import attach_members

_LOG = logging.getLogger(__name__)


# --------------------------------------------------------------------------------------------------------------------
# The mark of a device: what the next read of a table continues from, and the proof that the file still has it.


@dataclass(frozen=True, slots=True)
class DeviceMark:
    """The anchor of a table in a device's file, and the token of the receipt that the file has for a consumer."""

    anchor: TableAnchor
    proof: str
    consumer: str

    @classmethod
    def of(cls, snapshot: Snapshot, table: str, consumer: str) -> DeviceMark:
        """Return the mark for a consumer that has the rows of a snapshot."""
        return cls(snapshot.anchor_of(table), snapshot.receipt.token, consumer)

    @classmethod
    def parse(cls, text: str) -> DeviceMark:
        """Return the mark of a text of the ledger."""
        device, token, csn, bsn, proof, consumer = json.loads(text)
        return cls(TableAnchor(device, token, Anchor(csn=csn, bsn=bsn)), proof, consumer)

    def __str__(self) -> str:
        """Return the text for the ledger."""
        of = self.anchor
        return json.dumps([of.device, of.token, of.anchor.csn, of.anchor.bsn, self.proof, self.consumer])


# --------------------------------------------------------------------------------------------------------------------
# The meaning of errors of a device's file for its table: a verdict, its cause and what to do.


class OtherKeyError(Exception):
    """A device whose table has another key than the table of the fleet."""


class ReservedColumnError(Exception):
    """A device whose table has a column with the name of the warehouse's own column."""


GAPS = frozenset({Verdict.EXPIRED, Verdict.INSTANCE_REPLACED, Verdict.AHEAD_OF_SOURCE})
"""The verdicts after which all rows of the device are to be read."""
_READ_AGAIN = "Read the device as a whole again (floodmark source reload-device, or on_gap: repair)."
_COPY_AGAIN = "Copy the file from the device again, or restore it there."
_ENABLE = "Enable the tracking of the table on the device (ChangeTracking.enable_tracking)."
_FORGED = (ValueError, TypeError, LookupError, AttributeError)
"""What values lead to that neither SQLite nor the tracking wrote into the tracking's own tables."""
_UNFIT = (ValueRefusedError, OtherKeyError, ReservedColumnError, FilterError)
ERRORS = (TrackingError, sqlite3.Error, OSError, *_UNFIT, *_FORGED)
_CANNOT_OPEN = ("SQLITE_CANTOPEN", "SQLITE_PERM", "SQLITE_READONLY", "SQLITE_AUTH")


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a device's table cannot be read."""

    verdict: Verdict
    cause: str
    hint: str


def explain_fault(error: Exception, file: Path, mark: DeviceMark | None) -> Fault:
    """Return what one of ``ERRORS`` means that was met in a device's file. It contains no value of a row."""
    if isinstance(error, AnchorRewoundError) and mark is not None:
        return _rewound(error, file, mark)
    for kind, verdict, hint in BY_CLASS:
        if isinstance(error, kind):
            return Fault(verdict, f"{error}.", hint)
    if isinstance(error, sqlite3.Error):
        return _of_sqlite(error, file)
    if isinstance(error, ValueRefusedError):
        return Fault(Verdict.REFUSED, f"{error}.", "Correct the row on the device; the next run reads it again.")
    if isinstance(error, _FORGED):
        # The text of the error may hold a value.
        what = type(error).__name__
        return Fault(Verdict.DAMAGED, f"{file} has values that the tracking did not write ({what}).", _COPY_AGAIN)
    return Fault(Verdict.NO_PERMISSION, f"{file} cannot be read ({error}).", "Let Floodmark's user read and write it.")


BY_CLASS: tuple[tuple[type[Exception], Verdict, str], ...] = (
    (OtherKeyError, Verdict.NOT_PLANNABLE, "Give the table the same key on all devices."),
    (ReservedColumnError, Verdict.NOT_PLANNABLE, "Rename the column on the device."),
    (FilterError, Verdict.NOT_PLANNABLE, "Correct where, or give the column the same type on all devices."),
    (TrackingLostError, Verdict.INSTANCE_MISSING, _ENABLE),
    (AnchorReplacedError, Verdict.INSTANCE_REPLACED, _READ_AGAIN),
    (AnchorExpiredError, Verdict.EXPIRED, _READ_AGAIN),
    (AnchorRewoundError, Verdict.AHEAD_OF_SOURCE, _READ_AGAIN),
    (DamagedFileError, Verdict.DAMAGED, _COPY_AGAIN),
    (TrackingArgumentError, Verdict.INSTANCE_MISSING, _ENABLE),
    (InvalidOperationError, Verdict.INSTANCE_MISSING, _ENABLE),
    (TrackingError, Verdict.REFUSED, "The documentation of compact_tracking lists what is not supported."),
)
"""In the order in which they are tried."""


def _rewound(error: Exception, file: Path, mark: DeviceMark) -> Fault:
    """Return whether the file is an older copy of the device's, or that of another or of a new device."""
    try:
        device = read_device(file)
    except (TrackingError, sqlite3.Error):
        device = None
    if device == mark.anchor.device:
        return Fault(Verdict.AHEAD_OF_SOURCE, f"{error}.", _READ_AGAIN)
    cause = "the file is another one than was read before: the device was replaced, or begun again."
    return Fault(Verdict.INSTANCE_REPLACED, cause, _READ_AGAIN)


def _of_sqlite(error: sqlite3.Error, file: Path) -> Fault:
    name = str(getattr(error, "sqlite_errorname", ""))
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return Fault(Verdict.REFUSED, "the device kept its file locked.", "The next run tries again.")
    if name.startswith(_CANNOT_OPEN):
        return Fault(
            Verdict.NO_PERMISSION,
            f"{file} cannot be opened ({error}).",
            "Let Floodmark's user read and write the file and its folder, or ship copies (shipped: true).",
        )
    if name.startswith(("SQLITE_INTERRUPT", "SQLITE_TOOBIG")):
        return Fault(
            Verdict.DAMAGED,
            f"{file} was given up: its own SQL (a view, a trigger or a generated column) ran too long, or made values"
            " much longer than the file.",
            "Examine the file on the device. The next run tries again.",
        )
    if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_IOERR")) or type(error) is sqlite3.DatabaseError:
        return Fault(Verdict.DAMAGED, f"{file} is damaged ({error}).", _COPY_AGAIN)
    return Fault(Verdict.REFUSED, f"{file} cannot be read ({error}).", "The log of the load has the details.")


# --------------------------------------------------------------------------------------------------------------------
# ``Fleet``: where the files of the devices are. It travels to the load job as JSON; it has no secret.


SUFFIXES = (".db", ".sqlite", ".sqlite3")
DEFAULT_CONSUMER = "floodmark"


@dataclass(frozen=True, slots=True)
class Fleet:
    """The files of a fleet. Raises ValueError for no path, or a relative one."""

    paths: tuple[str, ...]
    """Folders, of which each file with one of ``SUFFIXES`` is a device, and patterns of files (``*``)."""
    is_shipped: bool = False
    """The files are copies that a program on the device makes (``ship_copy``): nothing is written to them."""
    consumer: str = DEFAULT_CONSUMER
    """The name under which receipts are written. Two installations that read the same devices need two names."""
    purge_after_days: int = 30
    """What all consumers of a device have read is purged there, without waiting longer than this for any; 0: never."""

    def __post_init__(self) -> None:
        if not self.paths:
            raise ValueError("it names no folder and no file")
        for path in self.paths:
            if not Path(path).is_absolute():
                raise ValueError(f"{path} is not an absolute path")

    @classmethod
    def from_json(cls, text: str) -> Fleet:
        """Return the fleet that ``to_json`` wrote. Raises ValueError or TypeError for any other text."""
        document = json.loads(text)
        return cls(**document | {"paths": tuple(document["paths"])})

    def to_json(self) -> str:
        """Return the fleet as JSON."""
        return json.dumps(asdict(self))

    def portable(self) -> Fleet:
        """Return the fleet: every machine that reads it must have the files under these paths."""
        return replace(self)

    @property
    def hosts(self) -> Mapping[str, str]:
        """Return no hosts: files are read."""
        return {}

    def list_files(self) -> Mapping[str, tuple[Path, ...]]:
        """Return the files of each device, by its name: that of its file without the extension.

        A device with several files cannot be read. Raises ConfigError where a folder does not exist.
        """
        found: dict[str, list[Path]] = {}
        for each in self.paths:
            for file in _list_path(Path(each)):
                found.setdefault(file.stem, []).append(file)
        return {name: tuple(sorted(set(files))) for name, files in sorted(found.items())}

    def __str__(self) -> str:
        return ", ".join(self.paths)


def _list_path(path: Path) -> list[Path]:
    folder = path if path.is_dir() else path.parent
    try:
        entries = [each for each in folder.iterdir() if each.is_file()]
    except OSError as error:
        raise ConfigError(
            str(path),
            f"the folder {folder} cannot be read ({error.strerror}).",
            "Mount it, or correct the path of the source.",
        ) from None
    if folder == path:
        return [each for each in entries if each.suffix.lower() in SUFFIXES]
    return [each for each in entries if each.match(path.name)]


# --------------------------------------------------------------------------------------------------------------------
# Whether a device has anything new, from its counters and receipts alone. Nothing is written to it.


def has_nothing_new(fleet: Fleet, file: Path, table: str, mark: DeviceMark) -> bool:
    """Return whether a read from a mark would bring nothing. A file that cannot be examined is to be read."""
    try:
        if fleet.is_shipped:
            return is_read(file, mark.consumer, mark.proof)
        return is_unchanged(file, mark.consumer, mark.proof, {table: mark.anchor})
    except (sqlite3.Error, TrackingError):
        return False  # the read waits longer for a lock, and says what it is


def is_fleet_quiet(
    fleet: Fleet, devices: Mapping[str, Sequence[Path]], table: str, marks: Sequence[MemberMark]
) -> bool:
    """Return whether no device has anything new in a table. Offline devices have no news; a new device does.

    devices: the files of each device, by ``Fleet.list_files``.
    """
    known = {each.member: each.mark for each in marks}

    def is_quiet(device: str, files: Sequence[Path]) -> bool:
        mark = known.get(device)
        return len(files) == 1 and mark is not None and has_nothing_new(fleet, files[0], table, DeviceMark.parse(mark))

    return all(is_quiet(device, files) for device, files in devices.items())


# --------------------------------------------------------------------------------------------------------------------
# ``CompactReader``: a table of all devices of a fleet.
#
# Each device is read from a copy that is taken at a receipt, from its mark on, or as a whole where it has none. Rows
# have the position of the window's end, so that a later window always wins over an earlier one, whatever state the
# device was put back to. A device that cannot be read has a verdict, and does not stop the others.


_LOCK_SECONDS = 5.0
_SPARE_BYTES = 64 * 1024 * 1024
_LONGER = 16
"""Rows may be this many times as long as their file, and ``_SPARE_BYTES`` more."""
DEVICES_AT_ONCE = 64
"""The devices whose rows are in memory at the same time."""
_BEGINNING = datetime(1970, 1, 1)
_OPERATIONS = {Operation.INSERT: schema.Operation.INSERT, Operation.UPDATE: schema.Operation.UPDATE}
_Found = tuple[list[pa.RecordBatch], MemberRead]


def open_compact_reader(plan: TablePlan, end: LogEntry) -> CompactReader:
    """Return the reader over the fleet that the environment names."""
    return CompactReader(plan, Fleet.from_json(os.environ[SOURCE_VARIABLE]), end)


def moment_of(position: Position) -> datetime:
    """Return the time of a position in UTC. Raises FloodmarkBugError for a position of another kind."""
    if not isinstance(position, Version):
        raise FloodmarkBugError("fleet", f"{position} is not a moment.")
    return _BEGINNING + timedelta(milliseconds=position.number)


@dataclass(frozen=True)
class CompactReader:
    """``sync.ports.TableReader``."""

    plan: TablePlan
    fleet: Fleet
    end: LogEntry
    """The end of the window."""

    @cached_property
    def shape(self) -> RowShape:
        table = self.plan.feed.table
        is_first = self.plan.kind is LoadKind.FIRST_LOAD
        times = ((COMMITTED_AT, "moment"),) if self.plan.has_commit_times else ()
        return RowShape(
            key=table.key,
            own=() if is_first else (*OWN_COLUMNS, *times),
            values=value_columns(table, self.plan.settings.temporal),
            order=(),
            position=POSITION,
            operation=OPERATION,
            mask=MASK,
            committed_at=COMMITTED_AT if times else "",
        )

    def read(self, interval: Interval) -> Iterator[pa.RecordBatch]:
        """Yield the changes of each device since its mark, or all of its rows, and how each device was examined."""
        marks = {each.member: each.mark for each in self.plan.marks}
        files = self.fleet.list_files()
        batches = self._batches(interval.to)

        def examine(device: str) -> _Found:
            return self._examine(device, files[device], marks.get(device), batches)

        devices = list(files)
        # Most of the time of a device is spent waiting for its disk.
        with ThreadPoolExecutor(self.plan.settings.max_reads, thread_name_prefix="device") as pool:
            for first in range(0, len(devices), DEVICES_AT_ONCE):
                for rows, read in pool.map(examine, devices[first : first + DEVICES_AT_ONCE]):
                    if read.verdict is not None:
                        what = read.verdict.value
                        _LOG.warning("%s, device %s: %s: %s", self.plan.source, read.member, what, read.cause)
                    yield from rows
                    yield attach_members(batches.empty, [read])
        # A device that is away is not late: its mark waits for it, and no verdict does.
        away = [MemberRead(device, mark) for device, mark in marks.items() if device not in files]
        yield attach_members(batches.empty, away)

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
            names, key = snapshot.read_columns(table), self.plan.feed.table.key[1:]
            passes = self._filter(device, self._require_fit(snapshot, table), names)
            if mark is None:
                every = [] if self.plan.reads_no_rows else _bounded(snapshot.read_rows(table), file)
                rows = [row for row in every if passes(row)]
                operation = schema.Operation.LOADED if self.plan.is_log else schema.Operation.INSERT
                found = list(batches.build(device, names, rows, operation))
            else:
                # An earlier attempt, or a reload, may have brought a row that is gone since.
                changes = list(snapshot.enumerate_changes(table, mark.anchor, with_passing=True))
                found = []
                for operation, grouped in self._group_rows(changes, file, passes).items():
                    columns = key if operation is schema.Operation.DELETE else names
                    found += batches.build(device, columns, grouped, operation)
            after = str(DeviceMark.of(snapshot, table, self._consumer))
        return found, after

    def _group_rows(
        self, changes: Sequence[Change], file: Path, passes: Passes
    ) -> Mapping[schema.Operation, Sequence[tuple[Any, ...]]]:
        """Return by operation the rows that are there after the changes, and for deletes their keys.

        Nothing shows whether a row that does not pass the filter had passed it: it comes as a delete.
        """
        deletes = [each.key for each in changes if each.row is None]
        grouped: dict[schema.Operation, list[tuple[Any, ...]]] = {}
        living = [(each, each.row) for each in changes if each.row is not None]
        for (each, _), row in zip(living, _bounded((row for _, row in living), file), strict=True):
            if passes(row):
                # The newest rows are merged by their keys alone.
                found = _OPERATIONS[each.operation] if self.plan.keeps_changes else schema.Operation.UPDATE
                grouped.setdefault(found, []).append(row)
            else:
                deletes.append(each.key)
        return grouped | {schema.Operation.DELETE: deletes}

    def _filter(self, device: str, described: DeviceTable, names: Sequence[str]) -> Passes:
        where = self.plan.settings.where
        return filter_rows(where, device, described, names) if where else lambda _row: True

    def _require_fit(self, snapshot: Snapshot, table: str) -> DeviceTable:
        """Return a device's table. Raises OtherKeyError or ReservedColumnError where it does not fit the fleet's."""
        described = describe_tables(snapshot.connection, [table])[table.lower()]
        if has_own_column(described):
            raise ReservedColumnError(f"it has a column {DEVICE_COLUMN}, the name of the warehouse's own column")
        found, planned = described.key, self.plan.feed.table.key[1:]
        if [name.lower() for name in found] != [name.lower() for name in planned]:
            raise OtherKeyError(f"its key is ({', '.join(found)}), and that of other devices ({', '.join(planned)})")
        return described

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
        # What every consumer has is purged: that this one has it is proven by the receipt.
        purged = self.fleet.purge_after_days or None
        return open_snapshot(file, self._consumer, proof, timeout_seconds=_LOCK_SECONDS, purge_after_days=purged)

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
                names, rows = self._read_now(device, files[0], table)
                yield from map(self._with_time, batches.build(device, names, rows, schema.Operation.INSERT))
            except ERRORS as error:
                fault = explain_fault(error, files[0], None)
                raise SourceUnavailableError(
                    str(self.plan.source), f"device {device} could not be read: {fault.cause}", fault.hint
                ) from error

    def _read_now(self, device: str, file: Path, table: str) -> tuple[Sequence[str], list[tuple[object, ...]]]:
        """Return the columns and the rows of a table, from a copy: a reader may keep a device's writers waiting."""
        where = self.plan.settings.where
        names = [column.name for column in self.plan.feed.table.stored_columns[1:]]
        filtered = dict.fromkeys(each.name for each in where.columns) if where else ()
        names += [name for name in filtered if name not in (DEVICE_COLUMN, *names)]
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
            described = describe_tables(copy, [table]).get(table.lower()) or DeviceTable(table, (), ())
            passes = self._filter(device, described, names)
            return names, [row for row in _bounded(rows, file) if passes(row)]

    def _with_time(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return a batch of a load, for a history with the time."""
        if not self.plan.is_history:
            return batch
        at = pa.scalar(moment_of(self.end.position), pa.timestamp("us"))
        return batch.append_column(COMMITTED_AT, pa.repeat(at, batch.num_rows))

    def _batches(self, at: Position | None) -> RowBatches:
        read_at = moment_of(self.end.position) if at and self.plan.has_commit_times else None
        return RowBatches(self.plan.feed.table, self.plan.settings.temporal, at, read_at)


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


# --------------------------------------------------------------------------------------------------------------------
# The reads of a window: one for each table of the fleet.
#
# Nothing is counted: whether a device has changes is known when its file has been opened, and then it is read. Most of
# the work is that of the files, so a load has no use for Spark unless the changes are too large for its memory.


def plan_compact_reads(plan: WindowPlan, most: int) -> WindowReads:
    """Return the read of each table. ``most`` is not used."""
    return replace(read_tables(plan, open_compact_reader, {}), changes=0)
