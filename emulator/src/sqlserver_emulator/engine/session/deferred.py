"""Deferred updates in the log: which statement assigns key columns, and where what it changes ends.

SQL Server may carry such a statement out as deletes and inserts. Logical messages ``deferred`` say so: one before the
statement, and one with object id 0 before the next statement of the transaction that is no deferred update. Leaves to
``cdc.scan.row_changes`` what becomes of the rows between.
"""

from __future__ import annotations

import json

from sqlserver_emulator.engine.names import quote_literal
from sqlserver_emulator.engine.translation import Translated
from sqlserver_emulator.events import Command


class DeferredUpdates:
    """The deferred updates of one session. An end too many in the log does no harm, so when in doubt there is one."""

    def __init__(self) -> None:
        self._is_open = False

    def messages(self, translated: Translated) -> list[str]:
        """Return the SQL that writes to the log before a statement."""
        table = translated.deferred_update_of
        if table is not None:
            return [_message({"object_id": table.object_id, "statement": translated.command.name})]
        # A SELECT logs nothing and must not end the update, or a read inside would cost a message each.
        return [_message({"object_id": 0})] if self._is_open and translated.command is not Command.SELECT else []

    def done(self, translated: Translated) -> None:
        """The statement, and what went before it, is in the log."""
        if translated.deferred_update_of is not None:
            self._is_open = True
        elif translated.command is not Command.SELECT:
            self._is_open = False

    def transaction_begins(self) -> None:
        self._is_open = False

    def rolled_back_to_savepoint(self) -> None:
        """The end may be undone and its beginning not."""
        # An end too many does no harm; a missing one would mark later statements as deferred.
        self._is_open = True


def _message(content: dict[str, object]) -> str:
    return f"SELECT pg_logical_emit_message(true, 'deferred', {quote_literal(json.dumps(content))})"
