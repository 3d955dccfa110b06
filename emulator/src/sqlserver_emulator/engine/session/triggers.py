"""Triggers of a session: the changes that PostgreSQL reported, their rows before and after, the triggers' texts.

Running the triggers is the interpreter's (``tsql.triggers``); making them is ``engine.ddl.programs.triggers``'.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

from psycopg.errors import Diagnostic

from sqlserver_emulator.engine.access.session_access import SessionAccess
from sqlserver_emulator.engine.catalog.cache import Relation
from sqlserver_emulator.engine.translation import CatalogObject

_CHANGE = "emulator.change"
INSTEAD_OF = "emulator.instead_of"
"""The setting that names the table whose INSTEAD OF triggers do not take its rows."""
_TRIGGERS = """
SELECT t.object_id, o.name, s.name, o.definition FROM emulator.triggers t
JOIN emulator.objects o ON o.object_id = t.object_id
JOIN emulator.schemas s ON s.database_id = o.database_id AND s.schema_id = o.schema_id
WHERE t.parent_object_id = $1::int AND $2 = ANY (t.events) AND t.is_instead_of = $3::boolean AND NOT t.is_disabled
ORDER BY t.object_id
"""


@dataclass(frozen=True, slots=True)
class Change:
    """The change that one statement made to one table.

    ``updated``: lower-case names of the columns it assigned, None for all.
    """

    table: CatalogObject
    event: str
    is_instead_of: bool
    row_count: int
    images: tuple[CatalogObject, CatalogObject]
    updated: frozenset[str] | None

    @property
    def columns(self) -> tuple[tuple[str, int], ...]:
        return tuple((column.name.lower(), column.column_id) for column in self.table.columns)


@dataclass(frozen=True, slots=True)
class TriggerText:
    """A trigger that fires, with its stored text."""

    object_id: int
    schema: str
    name: str
    source: str


class SessionTriggers:
    """The changes of one session's statements, and the triggers that they fire."""

    def __init__(self, access: SessionAccess) -> None:
        self._access = access
        self._notices: list[dict[str, Any]] = []
        self._depth = 0
        self._running: list[tuple[int, int]] = []
        self._texts_of = 0
        self._known: dict[tuple[int, str, bool], list[TriggerText]] = {}
        self.assigned: frozenset[str] | None = None
        """Of the statement that runs: the columns that its SET list names."""
        # PostgreSQL's triggers report their changes as notices, in the order in which they happened.
        access.connection.pipeline.psycopg.add_notice_handler(self._notice)

    def _notice(self, notice: Diagnostic) -> None:
        if notice.message_primary == _CHANGE and notice.message_detail:
            self._notices.append(json.loads(notice.message_detail))

    @property
    def may_fire(self) -> bool:
        """Whether there is any trigger: only then need a change run in a transaction."""
        return self._access.catalog.has_triggers

    @property
    def has_changes(self) -> bool:
        return bool(self._notices)

    def forget(self) -> None:
        self._notices.clear()

    def take_changes(self) -> list[Change]:
        """Return what the last statement did, for tables with triggers, in the order it happened."""
        notices, self._notices = self._notices, []
        return [change for item in notices if (change := self._change(item)) is not None]

    def _change(self, notice: dict[str, Any]) -> Change | None:
        table = self._access.catalog.table_by_id(notice["table"])
        if table is None:
            return None
        images = (
            _image(table, notice["inserted_id"], "inserted", notice["inserted"]),
            _image(table, notice["deleted_id"], "deleted", notice["deleted"]),
        )
        event = notice["event"]
        # UPDATE() is true for every column in an INSERT trigger and for none in a DELETE trigger.
        updated = self.assigned if event == "UPDATE" else None if event == "INSERT" else frozenset[str]()
        return Change(table, event, notice["instead"], notice["rows"], images, updated)

    def triggers(self, change: Change) -> list[TriggerText]:
        """Return the triggers that fire; a trigger's own change does not fire it again (RECURSIVE_TRIGGERS is OFF)."""
        running = self._running[-1][0] if self._running else 0
        # A trigger of another trigger's change may fire: only the innermost running one is left out.
        return [trigger for trigger in self._texts(change) if trigger.object_id != running]

    def _texts(self, change: Change) -> list[TriggerText]:
        # The catalog's version, without temp tables: images come and go with every trigger.
        version = self._access.catalog.shared_version
        if version != self._texts_of:
            self._texts_of, self._known = version, {}
        key = (change.table.object_id, change.event, change.is_instead_of)
        if key not in self._known:
            rows = self._access.fetch(_TRIGGERS, key)
            found = [cast(tuple[int, str, str, str], (row[0], row[2], row[1], row[3])) for row in rows]
            self._known[key] = [TriggerText(*row) for row in found]
        return self._known[key]

    @contextmanager
    def inside(self, change: Change, trigger: TriggerText) -> Iterator[None]:
        """While a trigger runs: inserted and deleted are names, and further changes get images of their own."""
        connection = self._access.connection
        instead_of = change.table.object_id if change.is_instead_of else 0
        self._running.append((trigger.object_id, instead_of))
        relations = [_relation(image) for image in change.images]
        try:
            self._send_depth()
            with self._access.catalog.images(relations):
                yield
        finally:
            self._running.pop()
            # On a broken connection the session ends anyway, and a setting could not be sent.
            if not connection.pipeline.is_broken:
                self._send_depth()

    def _send_depth(self) -> None:
        connection = self._access.connection
        connection.set_context("emulator.trigger_depth", str(len(self._running)))
        instead_of = self._running[-1][1] if self._running else 0
        connection.set_context(INSTEAD_OF, str(instead_of or ""))


def _image(table: CatalogObject, object_id: int, name: str, postgres_name: str) -> CatalogObject:
    return CatalogObject(object_id, table.database, "", name, "U", "pg_temp", postgres_name, table.columns)


def _relation(image: CatalogObject) -> Relation:
    return Relation(image, dict(enumerate(image.columns, 1)))
