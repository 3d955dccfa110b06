"""Values that a session keeps for its own statements and triggers: SESSION_CONTEXT and CONTEXT_INFO.

PostgreSQL functions read them from settings of the connection. A rollback does not undo them; the reset of a pooled
connection forgets them.
"""

from __future__ import annotations

import json
from typing import Final

from sqlserver_emulator.engine.connection.transaction import TransactionalConnection
from sqlserver_emulator.errors import SqlServerError

_CONTEXT: Final = "emulator.session_context"
_INFO: Final = "emulator.context_info"
_INFO_BYTES: Final = 128


class SessionValues:
    """SESSION_CONTEXT and CONTEXT_INFO of one session."""

    def __init__(self, connection: TransactionalConnection) -> None:
        self._connection = connection
        self._values: dict[str, str] = {}
        self._read_only: set[str] = set()

    def set(self, key: str, value: object, *, read_only: bool) -> None:
        """sp_set_session_context. Raises 15664 for a key that was set as read only."""
        if key in self._read_only:
            message = f"Cannot set key '{key}' in the session context."
            raise SqlServerError(15664, f"{message} The key has been set as read_only for this session.")
        if value is None:
            self._values.pop(key, None)
        else:
            self._values[key] = f"0x{value.hex().upper()}" if isinstance(value, bytes) else str(value)
        if read_only:
            self._read_only.add(key)
        self._connection.set_context(_CONTEXT, json.dumps(self._values))

    def set_info(self, value: bytes) -> None:
        """SET CONTEXT_INFO: 128 bytes, those that are not given are zeros."""
        self._connection.set_context(_INFO, value[:_INFO_BYTES].ljust(_INFO_BYTES, b"\0").hex())

    def forget(self) -> None:
        self._values.clear()
        self._read_only.clear()
        # Only settings that were made are taken back, so that a plain reset sends nothing.
        for name in (_CONTEXT, _INFO):
            if name in self._connection.context:
                self._connection.set_context(name, "")
