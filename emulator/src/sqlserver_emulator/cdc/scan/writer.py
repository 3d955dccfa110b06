"""Write captured rows into change tables with COPY BINARY, in the caller's transaction.

One connection can run one COPY at a time and a transaction may touch many change tables. So the COPY of one table stays
open and takes its rows in small pieces, which PostgreSQL inserts while the job decodes the next; rows of other tables
gather in memory until there are a few megabytes, when the COPY changes over. A transaction of any size goes through.

A table that has grown gets its statistics here, as SQL Server updates them before a statement needs them. The job of
PostgreSQL comes a minute later: until then a plan may read what is joined to the changes once for each of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from psycopg import Copy

from sqlserver_emulator.cdc.instances import CaptureInstance
from sqlserver_emulator.cdc.metadata import Run
from sqlserver_emulator.cdc.postgres import SqlConnection, runner
from sqlserver_emulator.cdc.rows import COPY_HEADER, COPY_TRAILER

# Pieces of the open COPY are small, as PostgreSQL works meanwhile; others wait for a large one, as each change of the
# COPY ends the one before.
_PIECE_BYTES = 32 << 10
_WAITING_BYTES = 4 << 20
_ANALYZED_BYTES = 256 << 10
"""The rows for which a change table gets its first statistics; further ones when it is twice as long."""


class ChangeTableWriter:
    """The writer of change tables. ``append`` is the hot path; ``run`` is for other statements meanwhile."""

    def __init__(self, connection: SqlConnection) -> None:
        self._connection = connection
        self._run_on_connection = runner(connection)
        self._buffers: dict[int, list[bytes]] = {}
        self._sizes: dict[int, int] = {}
        self._written: dict[int, int] = {}
        self._analyzed: dict[int, int] = {}
        self._instances: dict[int, CaptureInstance] = {}
        self._open_id = 0
        self._copy: Copy | None = None
        self._stack = ExitStack()
        self.run: Run = self._run_between_copies

    def append(self, instance: CaptureInstance, rows: bytes) -> None:
        """Add the rows of one change, in COPY BINARY's form."""
        object_id = instance.object_id
        buffer = self._buffers.get(object_id)
        if buffer is None:
            buffer = self._buffers[object_id] = []
            self._sizes[object_id] = 0
            self._instances[object_id] = instance
        buffer.append(rows)
        size = self._sizes[object_id] = self._sizes[object_id] + len(rows)
        if size > (_PIECE_BYTES if object_id == self._open_id else _WAITING_BYTES):
            self._send(object_id)

    def flush(self) -> None:
        """Send everything and end the open COPY."""
        # The table whose COPY is open goes first, or its COPY would be ended and opened again.
        if self._open_id and self._buffers.get(self._open_id):
            self._send(self._open_id)
        for object_id, buffer in self._buffers.items():
            if buffer:
                self._send(object_id)
        self._end_copy()
        for object_id in self._sizes:
            self._analyze_grown(object_id)
        self._buffers, self._sizes = {}, {}

    def _analyze_grown(self, object_id: int) -> None:
        written = self._written.get(object_id, 0)
        if written >= max(_ANALYZED_BYTES, 2 * self._analyzed.get(object_id, 0)):
            # Another job that has the table's lock is about to do the same.
            self._run_on_connection(f"ANALYZE (SKIP_LOCKED) {self._instances[object_id].change_table}", ())
            self._analyzed[object_id] = written

    def _send(self, object_id: int) -> None:
        copy = self._copy
        if copy is None or object_id != self._open_id:
            self._end_copy()
            copy = self._begin_copy(object_id)
        rows = b"".join(self._buffers[object_id])
        copy.write(rows)
        self._written[object_id] = self._written.get(object_id, 0) + len(rows)
        self._buffers[object_id] = []
        self._sizes[object_id] = 0

    def _begin_copy(self, object_id: int) -> Copy:
        cursor = self._stack.enter_context(self._connection.cursor())
        copy = self._stack.enter_context(cursor.copy(self._instances[object_id].copy_statement()))
        copy.write(COPY_HEADER)
        self._copy, self._open_id = copy, object_id
        return copy

    def _end_copy(self) -> None:
        copy, self._copy = self._copy, None
        self._open_id = 0
        if copy is not None:
            copy.write(COPY_TRAILER)
        self._stack.close()

    def _run_between_copies(self, sql: str, parameters: Sequence[object]) -> list[tuple[Any, ...]]:
        self._end_copy()
        # The COPY had to end: a connection in a COPY takes no other statement.
        return self._run_on_connection(sql, parameters)
