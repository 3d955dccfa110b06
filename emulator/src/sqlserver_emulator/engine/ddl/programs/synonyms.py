"""CREATE and DROP SYNONYM: other names of tables, views, procedures and functions, which need not exist yet.

The session's catalog finds what a synonym is for when it is used. DDL does not follow synonyms.
"""

from __future__ import annotations

from sqlserver_emulator.engine.ddl.reading.declarations import ObjectName
from sqlserver_emulator.engine.ddl.reading.taking import expect_end, take_name
from sqlserver_emulator.engine.ddl.scope import DdlScope
from sqlserver_emulator.engine.ddl.tables import rows
from sqlserver_emulator.engine.names import bracketed
from sqlserver_emulator.errors import SqlServerError
from sqlserver_emulator.events import Command
from sqlserver_emulator.syntax.parsing.cursor import Cursor

_FIND = """
SELECT o.object_id FROM emulator.synonyms y JOIN emulator.objects o ON o.object_id = y.object_id
WHERE o.database_id = $1::int AND o.schema_id = $2::int AND lower(o.name) = lower($3)
"""
_KEEP = "INSERT INTO emulator.synonyms VALUES ($1::int, $2, $3, $4, $5)"


def create_synonym(scope: DdlScope, cursor: Cursor) -> Command:
    """Raises 2714 when the name is taken."""
    name = take_name(cursor)
    cursor.expect("FOR")
    base = take_name(cursor)
    expect_end(cursor)
    object_id = rows.insert_object(scope, scope.schema(name), name.name, "SN")
    parts = (base.database, base.schema, base.name)
    shown = ".".join(bracketed(part) for part in parts if part)
    scope.fetch(_KEEP, [object_id, shown, base.database or scope.database, base.schema, base.name])
    return Command.NONE


def drop_synonym(scope: DdlScope, cursor: Cursor) -> Command:
    """Apply DROP SYNONYM. Raises 3701."""
    if_exists = cursor.accept("IF", "EXISTS")
    name: ObjectName = take_name(cursor)
    expect_end(cursor)
    home = scope.schema(name)
    found = scope.fetch(_FIND, [home.database_id, home.schema_id, name.name])
    if found:
        scope.fetch("DELETE FROM emulator.objects WHERE object_id = $1::int", [found[0][0]])
    elif not if_exists:
        message = f"Cannot drop the synonym '{name}', because it does not exist or you do not have permission."
        raise SqlServerError(3701, message, severity=11, state=5)
    return Command.NONE
