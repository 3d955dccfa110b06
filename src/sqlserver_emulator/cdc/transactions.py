"""Logged transactions become rows: which tables are tracked, in which order their changes are numbered, what DDL does.

Owns the meaning of a transaction's messages: sequence values (one for each row in the log), command ids (one counter
over all instances, reference cdc.md B.3), instances that begin in it. Works inside the transaction of one scan.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from sqlserver_emulator.cdc import pgoutput
from sqlserver_emulator.cdc.instances import (
    CaptureInstance,
    CdcDatabase,
    CdcDisabledError,
    TrackedTable,
    read_database,
    read_instances,
)
from sqlserver_emulator.cdc.log import PAYLOAD_AT, message_position
from sqlserver_emulator.cdc.lsn import FIRST_ROW_SLOT, lsn_at
from sqlserver_emulator.cdc.pgoutput import Fields, LogicalMessage, Relation
from sqlserver_emulator.cdc.postgres import SqlConnection, runner
from sqlserver_emulator.cdc.rows import InstanceRows, changed_places, row_start
from sqlserver_emulator.cdc.scan_sessions import ScanSession
from sqlserver_emulator.cdc.schema_changes import apply_schema_change, follow_logged_type, parse_schema_change
from sqlserver_emulator.cdc.timeline import Timeline, datetime_seconds
from sqlserver_emulator.cdc.writer import ChangeTableWriter

_ROW_KINDS = frozenset({pgoutput.INSERT, pgoutput.UPDATE, pgoutput.DELETE})
_SCAN_BYTES = 64 << 20


@dataclass(slots=True)
class Target:
    """An instance that takes a table's rows. ``start``: what its rows begin with in transaction ``transaction``; empty
    when the instance did not exist then."""

    instance: CaptureInstance
    rows: InstanceRows
    start: bytes = b""
    transaction: int = -1


@dataclass(slots=True)
class Shape:
    """A tracked table as logged now: who takes its rows, and where its unique and clustered keys are in them."""

    targets: list[Target]
    key_places: frozenset[int]


class TransactionTaker:
    """Takes messages in, in order. One scan: ``begin_scan``, ``add_messages`` and ``take`` until done, ``flush``."""

    def __init__(self, connection: SqlConnection, database: CdcDatabase) -> None:
        self._run = runner(connection)
        self._connection = connection
        self._database = database
        self._writer = ChangeTableWriter(connection)
        self._timeline: Timeline | None = None
        self._queue: deque[bytes] = deque()
        self._version = -1
        self._tables: dict[int, TrackedTable] = {}
        self._relations: dict[int, Relation] = {}
        self._shapes: dict[int, Shape | None] = {}
        self.end_position = 0
        """The end of the last whole transaction that was taken."""
        self.is_in_transaction = False
        self._transaction = 0
        self.begin_scan(1, ScanSession())

    # -- the scan ---------------------------------------------------------------------------------------------------

    def begin_scan(self, max_transactions: int, session: ScanSession) -> None:
        self.scan_transactions = 0
        self.has_written = False
        self._max_transactions = max_transactions
        self._session = session
        self._scan_bytes = 0
        self._is_open = False

    @property
    def has_messages(self) -> bool:
        return bool(self._queue)

    def add_messages(self, messages: Iterable[bytes]) -> None:
        self._queue.extend(messages)

    def take(self) -> bool:
        """Take the messages that are there; True when the scan is full, which is only between two transactions."""
        queue = self._queue
        while queue:
            message = queue.popleft()
            kind = message[PAYLOAD_AT]
            if kind in _ROW_KINDS:
                self._take_row(kind, message)
            elif kind == pgoutput.COMMIT:
                self._take_commit(message)
                if self.scan_transactions >= self._max_transactions or self._scan_bytes > _SCAN_BYTES:
                    return True
            else:
                self._take_other(kind, message)
        return False

    def flush(self) -> None:
        """Write what the scan gathered."""
        self._writer.flush()
        if self._timeline is not None and self._is_open:
            self._timeline.flush()

    def open_timeline(self) -> Timeline:
        """``lsn_time_mapping`` as it is now, in the caller's transaction."""
        self._timeline = Timeline(self._connection, self._database)
        return self._timeline

    def _open(self) -> None:
        """Begin the transaction of the scan. The lock keeps instances from being dropped under it (``enable`` takes the
        other side); new ones may come."""
        self._run(self._database.sql("LOCK TABLE :cdc.change_tables IN ROW SHARE MODE"), ())
        current = read_database(self._run, self._database.database_id)
        if current is None or current.slot != self._database.slot:
            raise CdcDisabledError(self._database.name)
        self.open_timeline()
        self._is_open = True
        if current.version != self._version:
            self._version = current.version
            self._load_instances()

    def _load_instances(self) -> None:
        self._tables = read_instances(self._run, self._database)
        self._shapes = {}

    # -- messages ---------------------------------------------------------------------------------------------------

    def _take_other(self, kind: int, message: bytes) -> None:
        if kind == pgoutput.BEGIN:
            self._take_begin(message)
        elif kind == pgoutput.RELATION:
            relation = pgoutput.read_relation(message, PAYLOAD_AT)
            self._relations[relation.object_id] = relation
            self._shapes.pop(relation.object_id, None)
        elif kind == pgoutput.MESSAGE:
            self._take_logical_message(pgoutput.read_message(message, PAYLOAD_AT))
        self._session.log_records += 1

    def _take_begin(self, message: bytes) -> None:
        begin = pgoutput.read_begin(message, PAYLOAD_AT)
        if not self._is_open:
            self._open()
        self.is_in_transaction = True
        self._transaction += 1
        self._begin = begin
        self._commit_lsn = lsn_at(begin.commit_position)
        self._begin_lsn = lsn_at(message_position(message))
        self._command_id = 0
        self._row_position = -1
        self._row_slot = 0
        self._deferred = 0
        self._left_trace = False
        self._new_instances: list[int] = []

    def _take_commit(self, message: bytes) -> None:
        commit = pgoutput.read_commit(message, PAYLOAD_AT)
        timeline = self._timeline or self.open_timeline()
        for object_id in self._new_instances:
            self._begin_instance(timeline, object_id)
        if self._left_trace or self._command_id:
            begin = self._begin
            timeline.add_transaction(self._commit_lsn, self._begin_lsn, begin.transaction_id, begin.commit_time)
            self._session.note_transaction(self._begin_lsn, self._commit_lsn, datetime_seconds(begin.commit_time))
            self._session.commands += self._command_id
            self.scan_transactions += 1
            self.has_written = True
        self.end_position = commit.end_position
        self.is_in_transaction = False

    def _take_logical_message(self, message: LogicalMessage) -> None:
        if message.prefix == "deferred":
            self._deferred = int(json.loads(message.content)["object_id"])
        elif message.prefix == "cdc":
            enabled = json.loads(message.content)
            if enabled["database_id"] == self._database.database_id:
                self._new_instances.append(int(enabled["object_id"]))
                self._load_instances()
        elif message.prefix == "ddl":
            self._take_schema_change(message.content)

    def _take_schema_change(self, content: bytes) -> None:
        change = parse_schema_change(content)
        table = self._tables.get(change.object_id)
        if table is None:
            return
        existing = tuple(i for i in table.instances if i.enabled_at <= self._begin.commit_position)
        self._writer.flush()  # rows so far have the column types of before
        if apply_schema_change(
            self._run,
            self._database,
            TrackedTable(table.object_id, existing, table.key_columns),
            change,
            commit_lsn=self._commit_lsn,
            seconds=datetime_seconds(self._begin.commit_time),
        ):
            self._left_trace = True
            self._session.schema_changes += 1
            self._load_instances()

    def _begin_instance(self, timeline: Timeline, object_id: int) -> None:
        """The instance's low end becomes valid: its start_lsn if no entry has passed that, else this commit's LSN."""
        rows = self._run(self._database.sql(_START_OF_INSTANCE), (object_id,))
        if not rows:
            return  # disabled since
        start_lsn, created = bytes(rows[0][0]), float(str(rows[0][1]))
        if start_lsn <= timeline.newest_lsn:
            start_lsn = self._commit_lsn
            self._run(self._database.sql(_SET_START_OF_INSTANCE), (object_id, start_lsn))
            self._left_trace = True
        else:
            timeline.add_mark(start_lsn, created)
        self.has_written = True

    # -- rows -------------------------------------------------------------------------------------------------------

    def _take_row(self, kind: int, message: bytes) -> None:
        object_id = pgoutput.row_object_id(message, PAYLOAD_AT)
        shape = self._shapes[object_id] if object_id in self._shapes else self._make_shape(object_id)
        if shape is None:
            return
        position = message_position(message)
        if position == self._row_position:
            self._row_slot += 1
        else:
            self._row_position, self._row_slot = position, FIRST_ROW_SLOT
        sequence = lsn_at(position, self._row_slot)
        if kind == pgoutput.UPDATE:
            old, new = pgoutput.read_row_pair(message, PAYLOAD_AT)
            self._take_update(shape, sequence, old, new, is_deferred=object_id == self._deferred)
            return
        row = pgoutput.read_row(message, PAYLOAD_AT)
        for target in shape.targets:
            if start := self._start_of(target):
                self._command_id += 1
                write = target.rows.insert if kind == pgoutput.INSERT else target.rows.delete
                self._append(target, write(start, sequence, self._command_id, row))

    def _take_update(self, shape: Shape, sequence: bytes, old: Fields, new: Fields, *, is_deferred: bool) -> None:
        changed = changed_places(old, new)
        if is_deferred or not shape.key_places.isdisjoint(changed):
            self._take_deferred_update(shape, sequence, old, new)
        elif changed:
            for target in shape.targets:
                if start := self._start_of(target):
                    pair = target.rows.update(start, sequence, self._command_id + 1, (old, new), changed=changed)
                    if pair:
                        self._command_id += 1
                        self._append(target, pair)

    def _take_deferred_update(self, shape: Shape, sequence: bytes, old: Fields, new: Fields) -> None:
        """A key changed: SQL Server logs a delete and an insert, which share the sequence value."""
        for target in shape.targets:
            if start := self._start_of(target):
                deleted = target.rows.delete(start, sequence, self._command_id + 1, old)
                inserted = target.rows.insert(start, sequence, self._command_id + 2, new)
                self._command_id += 2
                self._append(target, deleted + inserted)

    def _append(self, target: Target, rows: bytes) -> None:
        self._scan_bytes += len(rows)
        self._writer.append(target.instance, rows)

    def _start_of(self, target: Target) -> bytes:
        if target.transaction != self._transaction:
            target.transaction = self._transaction
            exists = target.instance.enabled_at <= self._begin.commit_position
            target.start = row_start(target.rows.column_count, self._commit_lsn) if exists else b""
        return target.start

    def _make_shape(self, object_id: int) -> Shape | None:
        table, relation = self._tables.get(object_id), self._relations[object_id]
        if table is None:
            self._shapes[object_id] = None
            return None
        self._follow_types(table, relation)
        table = self._tables[object_id]
        names = [column.name for column in relation.columns]
        shape = Shape(
            [Target(instance, InstanceRows(instance.columns, names)) for instance in table.instances],
            frozenset(place for place, name in enumerate(names) if name in table.key_columns),
        )
        self._shapes[object_id] = shape
        return shape

    def _follow_types(self, table: TrackedTable, relation: Relation) -> None:
        logged = {column.name: column for column in relation.columns}
        followed = False
        for instance in table.instances:
            if instance.enabled_at > self._begin.commit_position:
                continue
            for column, stored in zip(instance.columns, instance.stored, strict=True):
                found = logged.get(column.source_name or "")
                if found and (found.type_oid, found.type_modifier) != (stored.type_oid, stored.type_modifier):
                    self._writer.flush()
                    followed = True
                    follow_logged_type(
                        self._run,
                        self._database,
                        instance,
                        column.ordinal,
                        type_oid=found.type_oid,
                        type_modifier=found.type_modifier,
                    )
        if followed:
            self._load_instances()


_START_OF_INSTANCE = """
SELECT start_lsn, extract(epoch FROM create_date AT TIME ZONE current_setting('TimeZone'))::float8
FROM :cdc.change_tables WHERE object_id = $1::int
"""
_SET_START_OF_INSTANCE = "UPDATE :cdc.change_tables SET start_lsn = $2::bytea WHERE object_id = $1::int"
