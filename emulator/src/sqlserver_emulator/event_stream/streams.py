"""The streams of all databases, delivered by one thread, and on demand."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import psycopg

from sqlserver_emulator.cdc.postgres import connect, runner
from sqlserver_emulator.event_stream.capture_folder import CaptureFolder
from sqlserver_emulator.event_stream.stream import EventStream, wait_until_free

_POLL_SECONDS = 0.5
_FREE_SECONDS = 5.0


class EventStreams:
    """Delivers until it is closed. ``folder``: where the messages of all hubs go."""

    def __init__(self, conninfo: str, folder: Path, partitions: int) -> None:
        self._conninfo = conninfo
        self._folder = CaptureFolder(folder, partitions)
        self._streams: dict[int, EventStream] = {}
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

    def deliver(self, database_id: int) -> None:
        """Deliver all that is committed in a database. Raises LookupError when it has no stream."""
        with self._turn:
            try:
                self._open(database_id).deliver()
            except BaseException:
                # What was read and not delivered is read again.
                self._close(database_id)
                raise

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
            found = self._streams[database_id] = EventStream(self._conninfo, database_id, self._folder)
        return found

    def _close(self, database_id: int) -> None:
        stream = self._streams.pop(database_id, None)
        if stream is not None:
            stream.close()
            wait_until_free(self._conninfo, stream.slot, _FREE_SECONDS)

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
                print(f"event stream of database {database_id}: {error!r}", file=sys.stderr, flush=True)
