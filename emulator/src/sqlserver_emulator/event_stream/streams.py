"""The streams of all databases, delivered by one thread, and on demand."""

from __future__ import annotations

import sys
import threading

import psycopg

from sqlserver_emulator.cdc.lsn import lsn_at, lsn_text
from sqlserver_emulator.cdc.postgres import connect, runner
from sqlserver_emulator.errors import SqlServerError
from sqlserver_emulator.event_stream.destination import Destination
from sqlserver_emulator.event_stream.stream import EventStream, wait_until_free
from sqlserver_emulator.event_stream.switches import begin_epoch, shown_positions
from sqlserver_emulator.faults import FaultBoard

_POLL_SECONDS = 0.5
_FREE_SECONDS = 5.0


_RECORD = "SELECT emulator.record_stream_error($1::int, $2::int, $3::int, $4::int, $5::text, $6::text)"


class EventStreams:
    """Delivers until it is closed."""

    def __init__(self, conninfo: str, destination: Destination, faults: FaultBoard) -> None:
        self._conninfo = conninfo
        self._destination = destination
        self._faults = faults
        self._streams: dict[int, EventStream] = {}
        self._reported: dict[int, str] = {}
        self._turn = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._deliver_forever, name="event-streams", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Return when the delivery that goes on has ended."""
        self._ended.set()
        self._thread.join()
        for database_id in list(self._streams):
            self._close(database_id)
        self._destination.close()

    def deliver(self, database_id: int) -> None:
        """Deliver all that is committed in a database.

        Raises LookupError when it has no stream, and SqlServerError where a delivery fails. What was read and not
        delivered is read again, and sys.dm_change_feed_errors shows the failure.
        """
        with self._turn:
            try:
                self._open(database_id).deliver()
            except BaseException as error:
                self._close(database_id)
                if isinstance(error, SqlServerError):
                    self._record(database_id, error)
                raise
            self._reported.pop(database_id, None)

    def start_epoch(self, database_id: int, lsn: bytes | None) -> None:
        """Begin a new epoch, as after a restore or a failover. What is not delivered is lost.

        lsn: the LSNs of later commits begin above it; None: they go on. Raises LookupError when the database has no
        stream, and ValueError for an LSN that the stream has not reached.
        """
        with self._turn, connect(self._conninfo) as connection, connection.transaction():
            self._close(database_id)
            begin_epoch(runner(connection), database_id, lsn)

    def _open(self, database_id: int) -> EventStream:
        with connect(self._conninfo) as connection:
            rows = runner(connection)(
                "SELECT slot_name FROM emulator.event_stream_databases WHERE database_id = $1::int", (database_id,)
            )
        found = self._streams.get(database_id)
        if found is not None and [(found.slot,)] != rows:
            self._close(database_id)
            found = None
        if found is None:
            found = EventStream(self._conninfo, database_id, self._destination, self._faults)
            self._streams[database_id] = found
        return found

    def _close(self, database_id: int) -> None:
        stream = self._streams.pop(database_id, None)
        if stream is not None:
            stream.close()
            wait_until_free(self._conninfo, stream.slot, _FREE_SECONDS)

    def _record(self, database_id: int, error: SqlServerError) -> None:
        with connect(self._conninfo) as connection:
            run = runner(connection)
            for position in shown_positions(run, database_id):
                start = lsn_text(lsn_at(position))
                given = (database_id, error.number, error.severity, error.state, error.message, start)
                run(_RECORD, given)

    def _deliver_forever(self) -> None:
        while not self._ended.wait(_POLL_SECONDS):
            try:
                self._deliver_all()
            except psycopg.Error as error:
                # The next round connects again.
                print(f"event streams: {error}", file=sys.stderr, flush=True)

    def _deliver_all(self) -> None:
        with connect(self._conninfo) as connection:
            rows = runner(connection)("SELECT database_id FROM emulator.event_stream_databases", ())
        for (database_id,) in rows:
            if self._ended.is_set():
                return
            try:
                self.deliver(database_id)
            except Exception as error:  # noqa: BLE001  (a fault of one stream must not end those of the others)
                self._report(database_id, repr(error))

    def _report(self, database_id: int, text: str) -> None:
        """Print an error of a stream, once while it lasts."""
        if self._reported.get(database_id) != text:
            self._reported[database_id] = text
            print(f"event stream of database {database_id}: {text}", file=sys.stderr, flush=True)
