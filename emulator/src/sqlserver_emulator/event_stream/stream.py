"""The stream of one database: logged transactions in, messages out, at least once.

The position is stored after the delivery. A crash between the two delivers again, with other ids.
"""

from __future__ import annotations

import time
import uuid
from collections import defaultdict
from datetime import UTC, datetime, timedelta

from sqlserver_emulator.cdc.log import pgoutput
from sqlserver_emulator.cdc.log.pgoutput import Begin, Fields, Relation
from sqlserver_emulator.cdc.log.reader import PAYLOAD_AT, LogReader, message_position
from sqlserver_emulator.cdc.lsn import lsn_at, parse_position, position_text
from sqlserver_emulator.cdc.postgres import connect, runner
from sqlserver_emulator.cdc.rows import changed_places
from sqlserver_emulator.cdc.scan.scan_sessions import ScanSession
from sqlserver_emulator.clock import LoggedClock
from sqlserver_emulator.event_stream.destination import Destination, Hub, HubMessage
from sqlserver_emulator.event_stream.disorder import disturb
from sqlserver_emulator.event_stream.encoding import OutgoingChange, encode_change
from sqlserver_emulator.event_stream.messages import stream_error
from sqlserver_emulator.event_stream.scans import ScanRecords
from sqlserver_emulator.event_stream.tables import (
    StreamedColumn,
    StreamedTable,
    image,
    read_table,
    value_text,
)
from sqlserver_emulator.faults import FaultBoard, FaultKind

_WAIT_SECONDS = 0.02
_BATCH_BYTES = 2 << 20
"""What is sent before the position is stored, and sent again where that fails."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ROWS = frozenset({pgoutput.INSERT, pgoutput.UPDATE, pgoutput.DELETE})


class EventStream:
    """Reads one database's log and delivers its changes. Not thread-safe."""

    def __init__(self, conninfo: str, database_id: int, destination: Destination, faults: FaultBoard) -> None:
        """Open the log. Raises LookupError when the database has no stream."""
        self._destination = destination
        self._faults = faults
        self._database_id = database_id
        self._connection = connect(conninfo)
        try:
            self._run = runner(self._connection)
            rows = self._run(_DATABASE, (database_id,))
            if not rows:
                raise LookupError(database_id)
            ((self._name, self.slot, position, self._lsn_shift),) = rows
            self._stored = parse_position(position)
            self._reader = LogReader(
                conninfo, slot=self.slot, publication=self.slot, after_position=self._stored, is_binary=False
            )
        except BaseException:
            self._connection.close()
            raise
        self._clock = LoggedClock(self._run)
        self._scans = ScanRecords(self._run, database_id)
        self._scan = ScanSession()
        self._relations: dict[int, Relation] = {}
        self._tables: dict[int, StreamedTable | None] = {}
        self._pending: dict[Hub, list[HubMessage]] = defaultdict(list)
        self._pending_bytes = 0
        self._begin = Begin(0, 0, 0)
        self._begin_position = 0
        self._end = self._stored
        self._is_in_transaction = False
        self._seen_flush = 0

    def close(self) -> None:
        self._reader.close()
        self._connection.close()

    def deliver(self) -> None:
        """Deliver everything that is committed now. Raises SqlServerError where a delivery fails."""
        ((text,),) = self._run("SELECT pg_current_wal_flush_lsn()::text", ())
        target = parse_position(str(text))
        if target <= self._seen_flush:
            return
        # The options of a table may have changed without a sign in the log.
        self._tables.clear()
        self._scan = ScanSession()
        asked = False
        while self._reader.position < target or self._is_in_transaction:
            messages = self._reader.receive(_WAIT_SECONDS)
            self._scan.log_records += len(messages)
            for message in messages:
                self._take(message)
            if not messages and not asked:
                self._reader.request_position()
            asked = not messages and not asked
        self._publish()
        self._seen_flush = target
        self._reader.confirm(max(self._stored, self._reader.position))
        self._scans.add(self._scan)

    def _take(self, message: bytes) -> None:
        kind = message[PAYLOAD_AT]
        if kind in _ROWS:
            self._take_row(kind, message)
        elif kind == pgoutput.BEGIN:
            self._begin = pgoutput.read_begin(message, PAYLOAD_AT)
            self._begin_position = message_position(message)
            self._committed_at = _EPOCH + timedelta(microseconds=self._clock.shown(self._begin.commit_time))
            self._sequence = 0
            self._is_in_transaction = True
        elif kind == pgoutput.COMMIT:
            self._end = pgoutput.read_commit(message, PAYLOAD_AT).end_position
            self._is_in_transaction = False
            if self._sequence:
                lsns = self._lsn_at(self._begin_position), self._lsn_at(self._begin.commit_position)
                self._scan.note_transaction(*lsns, self._committed_at.timestamp())
                self._scan.commands += self._sequence
            if self._pending_bytes > _BATCH_BYTES:
                self._publish()
        elif kind == pgoutput.RELATION:
            relation = pgoutput.read_relation(message, PAYLOAD_AT)
            self._scan.schema_changes += self._relations.get(relation.object_id, relation) != relation
            self._relations[relation.object_id] = relation
            self._tables.pop(relation.object_id, None)

    def _take_row(self, kind: int, message: bytes) -> None:
        object_id = pgoutput.row_object_id(message, PAYLOAD_AT)
        if object_id not in self._tables:
            self._tables[object_id] = read_table(self._run, self._relations[object_id])
        table = self._tables[object_id]
        if table is None or self._begin.commit_position < table.enabled_at:
            return
        if kind == pgoutput.INSERT:
            self._add(table, "INS", None, pgoutput.read_row(message, PAYLOAD_AT))
        elif kind == pgoutput.DELETE:
            self._add(table, "DEL", pgoutput.read_row(message, PAYLOAD_AT), None)
        else:
            self._take_update(table, *pgoutput.read_row_pair(message, PAYLOAD_AT))

    def _take_update(self, table: StreamedTable, old: Fields, new: Fields) -> None:
        changed = frozenset(changed_places(old, new))
        if any(column.place in changed for column in table.key):
            # Not documented for the stream: change data capture logs an update of a key as a delete and an insert.
            self._add(table, "DEL", old, None)
            self._add(table, "INS", None, new)
        elif any(column.place in changed for column in table.columns):
            columns = table.columns
            if not table.all_columns:
                columns = tuple(column for column in columns if column.is_key or column.place in changed)
            self._add(table, "UPD", old, new, columns)

    def _add(
        self,
        table: StreamedTable,
        operation: str,
        old: Fields | None,
        new: Fields | None,
        columns: tuple[StreamedColumn, ...] | None = None,
    ) -> None:
        self._sequence += 1
        columns = table.columns if columns is None else columns
        row = (old if new is None else new) or []
        kept = columns if table.old_lobs else [column for column in columns if not column.is_lob]
        change = OutgoingChange(
            self._name,
            table.schema,
            table.name,
            tuple((column.name, column.declared, column.index) for column in columns),
            tuple((column.name, value_text(column, row) or "") for column in table.key),
            table.table_id,
            self._lsn_at(self._begin.commit_position),
            self._lsn_at(self._begin_position),
            self._sequence,
            self._committed_at,
            operation,
            image(kept, old) if old is not None and table.old_values else {},
            image(columns, new) if new is not None else {},
        )
        key = _partition_key(table, row)
        for body in encode_change(change, table.group.form, _new_id):
            self._pending[table.group.hub].append(HubMessage(key, body))
            self._pending_bytes += len(body)

    def _lsn_at(self, position: int) -> bytes:
        return lsn_at(position - self._lsn_shift)

    def _publish(self) -> None:
        """Write what is pending, then store how far that was. Raises SqlServerError where that fails."""
        if not self._pending:
            return
        hubs = ", ".join(sorted({hub.path for hub in self._pending}))
        if self._faults.meets_stream(FaultKind.HUB_UNREACHABLE, self._database_id):
            raise stream_error(23679, hubs, "a fault that was asked for")
        for hub, messages in disturb(self._pending, self._faults, self._database_id).items():
            self._destination.send(hub, messages)
        if self._faults.meets_stream(FaultKind.STREAM_SESSION_LOST, self._database_id):
            raise stream_error(23692, hubs, "a fault that was asked for")
        self._pending.clear()
        self._pending_bytes = 0
        self._run(_STORE, (self._database_id, position_text(self._end)))
        self._stored = self._end


def wait_until_free(conninfo: str, slot: str, seconds: float) -> None:
    """Return when nobody reads the slot, or after so many seconds."""
    deadline = time.monotonic() + seconds
    with connect(conninfo) as connection:
        run = runner(connection)
        while run(_IS_READ, (slot,)) and time.monotonic() < deadline:
            time.sleep(_WAIT_SECONDS)


def _partition_key(table: StreamedTable, row: Fields) -> str | None:
    """Return the partition key of a change by the scheme of its group."""
    group = table.group
    if group.scheme == "None":
        return None
    if group.scheme == "Column":
        found = next((column for column in table.columns if column.name == group.column), None)
        return (value_text(found, row) or "") if found else ""
    return group.name if group.scheme == "StreamGroup" else table.table_id


def _new_id() -> str:
    return str(uuid.uuid4())


_DATABASE = """
SELECT d.name::text, e.slot_name, e.position::text, d.stream_lsn_shift FROM emulator.event_stream_databases e
JOIN emulator.databases d USING (database_id) WHERE e.database_id = $1::int
"""
_STORE = """
UPDATE emulator.event_stream_databases SET position = $2::pg_lsn, is_behind = false WHERE database_id = $1::int
"""
_IS_READ = "SELECT 1 FROM pg_replication_slots WHERE slot_name = $1::text::name AND active"
