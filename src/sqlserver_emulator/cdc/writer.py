"""Write captured rows into change tables: buffered per instance, sent with COPY BINARY, in the caller's transaction.

One connection can run one COPY at a time and a transaction may touch many change tables, so rows gather in memory until
a few megabytes are there; a transaction of any size goes through.
"""

from __future__ import annotations

from sqlserver_emulator.cdc.instances import CaptureInstance
from sqlserver_emulator.cdc.postgres import SqlConnection
from sqlserver_emulator.cdc.rows import COPY_HEADER, COPY_TRAILER

_BUFFER_BYTES = 4 << 20


class ChangeTableWriter:
    """``append`` is the hot path; ``flush`` leaves nothing behind."""

    def __init__(self, connection: SqlConnection) -> None:
        self._connection = connection
        self._buffers: dict[int, list[bytes]] = {}
        self._instances: dict[int, CaptureInstance] = {}
        self._buffered_bytes = 0

    def append(self, instance: CaptureInstance, rows: bytes) -> None:
        """Rows of one change, in COPY BINARY's form."""
        buffer = self._buffers.get(instance.object_id)
        if buffer is None:
            buffer = self._buffers[instance.object_id] = []
            self._instances[instance.object_id] = instance
        buffer.append(rows)
        self._buffered_bytes += len(rows)
        if self._buffered_bytes > _BUFFER_BYTES:
            self.flush()

    def flush(self) -> None:
        """Send everything that is buffered."""
        buffers, self._buffers, self._buffered_bytes = self._buffers, {}, 0
        for object_id, buffer in buffers.items():
            with self._connection.cursor() as cursor, cursor.copy(self._instances[object_id].copy_statement()) as copy:
                copy.write(b"".join([COPY_HEADER, *buffer, COPY_TRAILER]))

    def discard(self) -> None:
        """Forget what is buffered: the transaction was rolled back."""
        self._buffers, self._buffered_bytes = {}, 0
