"""Logged transactions, message by message: where they begin and end, what DDL and new instances in them do.

Works inside the transaction of one scan and owns what is written besides rows: ``lsn_time_mapping``, history, the low
end of new instances. Rows are ``row_changes``'.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable

from sqlserver_emulator.cdc.instances import (
    CdcDatabase,
    CdcDisabledError,
    TrackedTable,
    keep_instances,
    read_database,
    read_nulls_in_deletes,
)
from sqlserver_emulator.cdc.log import pgoutput
from sqlserver_emulator.cdc.log.pgoutput import LogicalMessage
from sqlserver_emulator.cdc.log.reader import PAYLOAD_AT, message_position
from sqlserver_emulator.cdc.lsn import IDLE_SLOT
from sqlserver_emulator.cdc.postgres import SqlConnection
from sqlserver_emulator.cdc.scan.row_changes import ROW_KINDS, RowChanges
from sqlserver_emulator.cdc.scan.scan_sessions import ScanSession
from sqlserver_emulator.cdc.scan.schema_changes import apply_schema_change, parse_schema_change
from sqlserver_emulator.cdc.scan.timeline import Timeline, datetime_seconds
from sqlserver_emulator.cdc.scan.writer import ChangeTableWriter
from sqlserver_emulator.clock import LoggedClock

# A scan is one PostgreSQL transaction; this bounds it, but for a single large transaction of the source.
_SCAN_BYTES = 64 << 20


class TransactionTaker:
    """The taker of messages in order. A scan: ``begin_scan``, ``add_messages`` and ``take`` until done, ``flush``."""

    def __init__(self, connection: SqlConnection, database: CdcDatabase) -> None:
        self._connection = connection
        self._database = database
        self._writer = ChangeTableWriter(connection)
        self._run = self._writer.run
        self._rows = RowChanges(self._run, database, self._writer)
        self.clock = LoggedClock(self._run)
        self._timeline: Timeline | None = None
        self._queue: deque[bytes] = deque()
        self._version: tuple[int, list[tuple[int, int]]] = (-1, [])
        self.end_position = 0
        """The end of the last whole transaction that was taken."""
        self.is_in_transaction = False
        # Only sets the fields of a scan; each scan begins with a call of its own.
        self.begin_scan(1, ScanSession())

    # -- the scan ---------------------------------------------------------------------------------------------------

    def begin_scan(self, max_transactions: int, session: ScanSession) -> None:
        """Start a scan of at most ``max_transactions``, which is counted in ``session``."""
        self.scan_transactions = 0
        self.has_written = False
        self._max_transactions = max_transactions
        self._session = session
        self._rows.written_bytes = 0
        self._is_open = False
        self._hold_after: int | None = None
        self.is_holding = False

    def hold_after(self, microseconds: int) -> None:
        """Until the next scan, leave transactions that were committed after that moment by the emulator's clock."""
        self._hold_after = microseconds

    @property
    def has_messages(self) -> bool:
        """True while messages wait to be taken."""
        return bool(self._queue)

    def add_messages(self, messages: Iterable[bytes]) -> None:
        """Append messages of the reader to those that wait."""
        self._queue.extend(messages)

    def take(self) -> bool:
        """Take the messages that are there; True when the scan is full, which is only between two transactions."""
        queue, take_row = self._queue, self._rows.take
        while queue:
            message = queue.popleft()
            kind = message[PAYLOAD_AT]
            if kind in ROW_KINDS:
                take_row(kind, message)
            elif kind == pgoutput.COMMIT:
                self._take_commit(message)
                if self.scan_transactions >= self._max_transactions or self._rows.written_bytes > _SCAN_BYTES:
                    return True
            elif self._hold_after is not None and self._is_too_young(kind, message):
                # BEGIN goes back, so that the next scan starts with the whole transaction.
                queue.appendleft(message)
                self.is_holding = True
                return True
            else:
                self._take_other(kind, message)
        return False

    def _is_too_young(self, kind: int, message: bytes) -> bool:
        if kind != pgoutput.BEGIN or self._hold_after is None:
            return False
        return self.clock.shown(pgoutput.read_begin(message, PAYLOAD_AT).commit_time) > self._hold_after

    def flush(self) -> None:
        """Write what the scan gathered."""
        self._writer.flush()
        if self._timeline is not None and self._is_open:
            self._timeline.flush()

    def idle_lsn_at(self, position: int) -> bytes:
        """Return the LSN of an idle row at a position of the log."""
        return self._database.lsn_at(position, IDLE_SLOT)

    def open_timeline(self) -> Timeline:
        """Open ``lsn_time_mapping`` in the caller's transaction, which is that of one scan.

        No instance is dropped under it; new ones may come.
        """
        # Before anything is read: `disable` takes its locks in the same order.
        keep_instances(self._run, self._database)
        current = read_database(self._run, self._database.database_id)
        # Another slot means that CDC was disabled and enabled again since: this log is not that database's.
        if current is None or current.slot != self._database.slot:
            raise CdcDisabledError(self._database.name)
        # Every change of a database's instances raises its version (`lock_instances`).
        version = current.version, read_nulls_in_deletes(self._run)
        if version != self._version:
            self._version, self._database = version, current
            self._rows.set_database(current)
        self._timeline = Timeline(self._connection, self._database, self.clock)
        return self._timeline

    # -- messages ---------------------------------------------------------------------------------------------------

    def _take_other(self, kind: int, message: bytes) -> None:
        if kind == pgoutput.BEGIN:
            self._take_begin(message)
        elif kind == pgoutput.RELATION:
            self._rows.set_relation(pgoutput.read_relation(message, PAYLOAD_AT))
        elif kind == pgoutput.MESSAGE:
            self._take_logical_message(pgoutput.read_message(message, PAYLOAD_AT))
        self._session.log_records += 1

    def _take_begin(self, message: bytes) -> None:
        begin = pgoutput.read_begin(message, PAYLOAD_AT)
        if not self._is_open:
            self.open_timeline()
            self._is_open = True
        self.is_in_transaction = True
        self._begin = begin
        self._committed_at = self.clock.shown(begin.commit_time)
        self._seconds = datetime_seconds(self._committed_at)
        # BEGIN knows the commit: version 1 of the protocol sends a transaction only when it has committed. So rows are
        # written with their final `__$start_lsn` at once.
        self._commit_lsn = self._database.lsn_at(begin.commit_position)
        self._begin_lsn = self._database.lsn_at(message_position(message))
        self._left_trace = False
        self._new_instances: list[int] = []
        self._rows.begin(begin, self._commit_lsn)

    def _take_commit(self, message: bytes) -> None:
        commit = pgoutput.read_commit(message, PAYLOAD_AT)
        rows, timeline = self._rows, self._timeline or self.open_timeline()
        rows.release_held()
        # An instance's mark lies below the commit of its transaction, and entries are added in the order of LSNs.
        for object_id in self._new_instances:
            self._begin_instance(timeline, object_id)
        # docs/reference/sqlserver_cdc.md, "Time mapping": only captured transactions have an entry; writes to untracked
        # tables move nothing.
        if self._left_trace or rows.command_id:
            begin = self._begin
            timeline.add_transaction(self._commit_lsn, self._begin_lsn, begin.transaction_id, self._committed_at)
            self._session.note_transaction(self._begin_lsn, self._commit_lsn, self._seconds)
            self._session.commands += rows.command_id
            self.scan_transactions += 1
            self.has_written = True
        self.end_position = commit.end_position
        self.is_in_transaction = False

    def _take_logical_message(self, message: LogicalMessage) -> None:
        # Others are read even when their transaction was rolled back.
        if not message.transactional:
            return
        if message.prefix == "deferred":
            # docs/reference/sqlserver_cdc.md, "Row shapes": a MERGE that assigns a key to itself is a pair 1 and 2,
            # even if nothing changed.
            deferred = json.loads(message.content)
            self._rows.defer_updates(
                int(deferred["object_id"]), is_certain=deferred.get("statement", "MERGE") == "MERGE"
            )
        elif message.prefix == "cdc":
            enabled = json.loads(message.content)
            # All databases share one log (docs/adr/0002), and a publication filters tables, not messages.
            if enabled["database_id"] == self._database.database_id:
                self._new_instances.append(int(enabled["object_id"]))
                self._rows.load_instances()
        elif message.prefix == "ddl":
            self._take_schema_change(message.content)

    def _take_schema_change(self, content: bytes) -> None:
        change = parse_schema_change(content)
        table = self._rows.tables.get(change.object_id)
        if table is None:
            return
        # docs/reference/sqlserver_cdc.md, "DDL": the history has a row for each instance that existed then.
        existing = tuple(i for i in table.instances if i.enabled_at <= self._begin.commit_position)
        self._rows.release_held()
        self._writer.flush()  # rows so far have the column types of before
        if apply_schema_change(
            self._run,
            self._database,
            TrackedTable(table.object_id, existing, table.key_columns, table.unique_keys),
            change,
            commit_lsn=self._commit_lsn,
            seconds=self._seconds,
        ):
            self._left_trace = True
            self._session.schema_changes += 1
            self._rows.load_instances()

    def _begin_instance(self, timeline: Timeline, object_id: int) -> None:
        """Make the instance's low end valid: its start_lsn if no entry has passed that, else this commit's LSN."""
        rows = self._run(self._database.sql(_START_OF_INSTANCE), (object_id,))
        if not rows:
            return  # disabled since
        start_lsn, created = bytes(rows[0][0]), float(rows[0][1])
        # docs/adr/0003: both positions cut the table's history at the same place, but no entry may appear below an LSN
        # that a reader has seen.
        if start_lsn <= timeline.newest_lsn:
            self._run(self._database.sql(_SET_START_OF_INSTANCE), (object_id, self._commit_lsn))
            self._left_trace = True
        else:
            timeline.add_mark(start_lsn, created)
        self.has_written = True


_START_OF_INSTANCE = """
SELECT start_lsn, extract(epoch FROM create_date AT TIME ZONE current_setting('TimeZone'))::float8
FROM :cdc.change_tables WHERE object_id = $1::int
"""
_SET_START_OF_INSTANCE = "UPDATE :cdc.change_tables SET start_lsn = $2::bytea WHERE object_id = $1::int"
