"""CREATE, ALTER, DROP, ENABLE and DISABLE TRIGGER: the catalog's rows, and PostgreSQL's triggers that report changes.

A table has one PostgreSQL trigger for each event that any of its T-SQL triggers wants, whatever their number.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlserver_emulator.engine.ddl.reading.declarations import ObjectName
from sqlserver_emulator.engine.ddl.scope import DdlScope
from sqlserver_emulator.engine.ddl.tables import rows
from sqlserver_emulator.engine.names import qualified
from sqlserver_emulator.engine.translation import CatalogObject
from sqlserver_emulator.errors import SqlServerError
from sqlserver_emulator.syntax.parsing.modules import parse_trigger
from sqlserver_emulator.syntax.statements import Name

_TRIGGER = """
SELECT t.object_id, t.parent_object_id FROM emulator.triggers t JOIN emulator.objects o ON o.object_id = t.object_id
WHERE o.database_id = $1::int AND o.schema_id = $2::int AND lower(o.name) = lower($3)
"""
_EVENTS_OF = """
SELECT DISTINCT e.event, t.is_instead_of FROM emulator.triggers t, unnest(t.events) AS e(event)
WHERE t.parent_object_id = $1::int AND NOT t.is_disabled
"""
_IMAGES = {
    "INSERT": "NEW TABLE AS inserted",
    "UPDATE": "NEW TABLE AS inserted OLD TABLE AS deleted",
    "DELETE": "OLD TABLE AS deleted",
}


def create_trigger(scope: DdlScope, *, replace: str) -> None:
    """``replace``: '' for CREATE, 'ALTER' (must exist: 208), 'CREATE OR ALTER'. Raises 8197 for a table not there."""
    trigger = parse_trigger(scope.statement)
    table = scope.table(_object_name(trigger.table))
    if table is None or table.kind == "S":
        message = f"The object '{trigger.table}' does not exist or is invalid for this operation."
        raise SqlServerError(8197, message, state=4)
    if table.kind == "V" and not trigger.is_instead_of:
        raise SqlServerError(
            8197, f"The object '{trigger.table}' does not exist or is invalid for this operation.", state=6
        )
    name = ObjectName(trigger.name.name, trigger.name.schema or table.schema, table.database)
    home = scope.schema(name)
    found = scope.fetch(_TRIGGER, [home.database_id, home.schema_id, name.name])
    if found and replace:
        object_id = int(found[0][0])
        sql = "UPDATE emulator.objects SET definition = $2 WHERE object_id = $1::int"
        scope.fetch(sql, [object_id, scope.statement])
        # The object keeps its number and creation date; only its text and events change.
        rows.touch(scope, object_id)
        scope.fetch("DELETE FROM emulator.triggers WHERE object_id = $1::int", [object_id])
    elif replace == "ALTER":
        raise SqlServerError(208, f"Invalid object name '{name}'.", state=6)
    else:
        object_id = rows.insert_object(scope, home, name.name, "TR", parent=table.object_id, definition=scope.statement)
    if trigger.is_instead_of:
        _refuse_second_instead_of(scope, table, trigger.events, name)
    scope.fetch(
        "INSERT INTO emulator.triggers (object_id, parent_object_id, events, is_instead_of)"
        " VALUES ($1::int, $2::int, string_to_array($3, ','), $4::boolean)",
        [object_id, table.object_id, ",".join(sorted(trigger.events)), trigger.is_instead_of],
    )
    _install(scope, table)


def _object_name(name: Name) -> ObjectName:
    return ObjectName(name.name, name.schema, name.database)


def _refuse_second_instead_of(scope: DdlScope, table: CatalogObject, events: frozenset[str], name: ObjectName) -> None:
    taken = {str(event) for event, instead in scope.fetch(_EVENTS_OF, [table.object_id]) if instead}
    for event in sorted(events & taken):
        message = (
            f"Cannot create trigger '{name.schema}.{name.name}' for {'view' if table.kind == 'V' else 'table'} "
            f"'{table.schema}.{table.name}' because an INSTEAD OF {event} trigger already exists on this object."
        )
        raise SqlServerError(2111, message)


def _install(scope: DdlScope, table: CatalogObject) -> None:
    """PostgreSQL's triggers as the catalog's rows want them."""
    target = qualified(table.postgres_schema, table.postgres_name)
    wanted = {(str(event), bool(instead)) for event, instead in scope.fetch(_EVENTS_OF, [table.object_id])}
    for event in _IMAGES:
        # All are dropped first: which ones are left depends on every trigger of the table.
        for part in ("after", "before instead", "each instead", "after instead"):
            scope.run(f'DROP TRIGGER IF EXISTS "~{event} {part}" ON {target}')
    for event, instead in sorted(wanted):
        if not instead:
            # ``after_change`` must not announce rows that an INSTEAD OF trigger has taken.
            has_instead = "'instead'" if (event, True) in wanted else ""
            scope.run(
                f'CREATE TRIGGER "~{event} after" AFTER {event} ON {target} REFERENCING {_IMAGES[event]}'
                f" FOR EACH STATEMENT EXECUTE FUNCTION emulator.after_change({has_instead})"
            )
            continue
        for part, when, level in (
            ("before", "BEFORE", "STATEMENT"),
            # A view takes INSTEAD OF triggers of rows; a table has to skip its row by BEFORE.
            ("each", "INSTEAD OF" if table.kind == "V" else "BEFORE", "ROW"),
            ("after", "AFTER", "STATEMENT"),
        ):
            scope.run(
                f'CREATE TRIGGER "~{event} {part} instead" {when} {event} ON {target} FOR EACH {level}'
                f" EXECUTE FUNCTION emulator.{part}_instead()"
            )


def drop_triggers(scope: DdlScope, names: Sequence[ObjectName], *, if_exists: bool) -> None:
    """Raises 3701."""
    for name in names:
        home = scope.schema(name)
        found = scope.fetch(_TRIGGER, [home.database_id, home.schema_id, name.name])
        if not found:
            if if_exists:
                continue
            message = f"Cannot drop the trigger '{name}', because it does not exist or you do not have permission."
            raise SqlServerError(3701, message, severity=11, state=5)
        scope.fetch("DELETE FROM emulator.objects WHERE object_id = $1::int", [found[0][0]])
        table = scope.access.catalog.table_by_id(int(found[0][1]))
        if table is not None:
            _install(scope, table)


def switch_triggers(scope: DdlScope, table: CatalogObject, names: Sequence[str], *, enabled: bool) -> None:
    """``names`` empty: all triggers of the table. Raises 1088 for a name that is no trigger of the table."""
    sql = (
        "UPDATE emulator.triggers t SET is_disabled = $3::boolean FROM emulator.objects o"
        " WHERE o.object_id = t.object_id AND t.parent_object_id = $1::int AND ($2 = '' OR lower(o.name) = lower($2))"
        " RETURNING t.object_id"
    )
    for name in names or ("",):
        if not scope.fetch(sql, [table.object_id, name, not enabled]) and name:
            message = f'Cannot find the object "{name}" because it does not exist or you do not have permissions.'
            raise SqlServerError(1088, message, state=20)
    _install(scope, table)
