"""Stored procedures (kept as text for the interpreter) and alias types."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from sqlserver_emulator.engine.ddl.reading.declarations import ObjectName
from sqlserver_emulator.engine.ddl.scope import DdlScope
from sqlserver_emulator.engine.ddl.tables import rows
from sqlserver_emulator.engine.names import postgres_name, quote
from sqlserver_emulator.engine.values.bind import to_literal
from sqlserver_emulator.errors import NotSupportedByEmulatorError, SqlServerError
from sqlserver_emulator.syntax.parsing.data_types import unknown_type
from sqlserver_emulator.syntax.parsing.modules import parse_procedure
from sqlserver_emulator.types import TsqlType

_PROCEDURE = """
SELECT o.object_id FROM emulator.objects o WHERE o.database_id = $1::int AND o.schema_id = $2::int
AND lower(o.name) = lower($3) AND o.type = 'P'
"""
_FIRST_USER_TYPE_ID = 257
Fetch = Callable[[str, Sequence[object]], list[tuple[object, ...]]]


_TEMPORARY = """
SELECT pg_catalog.obj_description(p.oid, 'pg_proc') FROM pg_catalog.pg_proc p
WHERE p.pronamespace = pg_catalog.pg_my_temp_schema() AND p.proname = $1
"""


def temporary_procedure(fetch: Fetch, name: str) -> str | None:
    """Return the text of a procedure #name of this session."""
    found = fetch(_TEMPORARY, [postgres_name(name.lower())])
    return str(found[0][0]) if found else None


def _create_temporary(scope: DdlScope, name: str, *, replace: str) -> None:
    """Keep the text as the comment of a function in the session's own schema, which ends as #tables end."""
    if name.startswith("##"):
        raise NotSupportedByEmulatorError("temporary procedures of all sessions (##)")
    exists = temporary_procedure(scope.fetch, name) is not None
    if exists and not replace:
        raise SqlServerError(2714, f"There is already an object named '{name}' in the database.", state=3)
    if replace == "ALTER" and not exists:
        raise SqlServerError(208, f"Invalid object name '{name}'.", state=6)
    function = f"pg_temp.{quote(postgres_name(name.lower()))}()"
    if not exists:
        scope.fetch(f"CREATE FUNCTION {function} RETURNS void LANGUAGE sql AS ''", [])
    scope.fetch(f"COMMENT ON FUNCTION {function} IS {to_literal(scope.statement)}", [])
    scope.access.catalog.has_made_temporary = True
    scope.changes_catalog = False


def _drop_temporary(scope: DdlScope, name: str) -> bool:
    if temporary_procedure(scope.fetch, name) is None:
        return False
    scope.fetch(f"DROP FUNCTION pg_temp.{quote(postgres_name(name.lower()))}()", [])
    return True


def create_procedure(scope: DdlScope, name: ObjectName, *, replace: str) -> None:
    """``replace``: '' for CREATE, 'ALTER' (must exist: 208), 'CREATE OR ALTER'."""
    home = scope.schema(name)
    _check_types(scope)
    if name.is_temporary:
        _create_temporary(scope, name.name, replace=replace)
        return
    existing = scope.fetch(_PROCEDURE, [home.database_id, home.schema_id, name.name])
    if existing and replace:
        scope.fetch(
            "UPDATE emulator.objects SET definition = $2, modify_date = emulator.now() WHERE object_id = $1::int",
            [existing[0][0], scope.statement],
        )
        _keep_parameters(scope, int(existing[0][0]))
    elif replace == "ALTER":
        raise SqlServerError(208, f"Invalid object name '{name}'.", state=6)
    else:
        _keep_parameters(scope, rows.insert_object(scope, home, name.name, "P", definition=scope.statement))


def _keep_parameters(scope: DdlScope, object_id: int) -> None:
    """For sys.parameters: a call reads them from the text."""
    described = [
        {
            "name": parameter.shown or parameter.name,
            "type": parameter.type.name,
            "length": parameter.type.length,
            "precision": parameter.type.precision,
            "scale": parameter.type.scale,
            "output": parameter.output,
            "has_default": parameter.default is not None,
        }
        for parameter in parse_procedure(scope.statement).parameters
    ]
    scope.fetch(
        "INSERT INTO emulator.procedure_parameters VALUES ($1::int, $2::jsonb)"
        " ON CONFLICT (object_id) DO UPDATE SET parameters = excluded.parameters",
        [object_id, json.dumps(described)],
    )


def _check_types(scope: DdlScope) -> None:
    """Raises 2715 for a parameter or variable of a type that is not there."""
    procedure = parse_procedure(scope.statement)
    parameters = [parameter.type for parameter in procedure.parameters]
    variables = [declaration.type for declaration in procedure.body.declarations]
    for types in (parameters, variables):
        for position, type in enumerate(types, 1):
            schema, dot, name = type.name.partition(".")
            if dot and scope.access.catalog.declared_type(scope.database, schema or None, name) is None:
                raise unknown_type(type.name.lstrip("."), position)


def drop_procedure(scope: DdlScope, name: ObjectName, *, if_exists: bool) -> None:
    """Apply DROP PROCEDURE. Raises 3701."""
    if name.is_temporary and _drop_temporary(scope, name.name):
        return
    home = scope.schema(name)
    existing = scope.fetch(_PROCEDURE, [home.database_id, home.schema_id, name.name])
    if existing:
        scope.fetch("DELETE FROM emulator.objects WHERE object_id = $1::int", [existing[0][0]])
    elif not if_exists:
        message = f"Cannot drop the procedure '{name}', because it does not exist or you do not have permission."
        raise SqlServerError(3701, message, severity=11, state=5)


def create_type(scope: DdlScope, name: ObjectName, base: TsqlType, *, nullable: bool, columns: str = "") -> None:
    """CREATE TYPE … FROM, or AS TABLE with its ``columns``. Raises 219 when there is one."""
    home = scope.schema(name)
    taken = scope.access.catalog.declared_type(home.database, home.name, name.name)
    if taken is not None:
        raise SqlServerError(219, f"The type '{name}' already exists, or you do not have permission to create it.")
    scope.fetch(
        "INSERT INTO emulator.user_types SELECT $1::int, greatest(coalesce(max(user_type_id) + 1, 0), "
        "$9::int), $2::int, $3,"
        " $4, $5::int, $6::int, $7::int, $8::boolean, $10 FROM emulator.user_types WHERE database_id = $1::int",
        [
            home.database_id,
            home.schema_id,
            name.name,
            base.name,
            base.length,
            base.precision,
            base.scale,
            nullable,
            _FIRST_USER_TYPE_ID,
            columns,
        ],
    )


def drop_type(scope: DdlScope, name: ObjectName, *, if_exists: bool) -> None:
    """Raises 218 when there is none, 3732 when a column is declared with it."""
    home = scope.schema(name)
    found = scope.access.catalog.declared_type(home.database, home.name, name.name)
    if found is None:
        if if_exists:
            return
        raise SqlServerError(
            218,
            f"Could not find the type '{name}'. Either it does not exist or you do not have the necessary permission.",
        )
    used = scope.fetch(
        "SELECT o.name FROM emulator.columns c JOIN emulator.objects o ON o.object_id = c.object_id"
        " WHERE o.database_id = $1::int AND c.user_type_id = $2::int LIMIT 1",
        [home.database_id, found.user_type_id],
    )
    if used:
        message = f"Cannot drop type '{name}' because it is being referenced by object '{used[0][0]}'."
        raise SqlServerError(3732, f"{message} There may be other objects that reference this type.")
    scope.fetch(
        "DELETE FROM emulator.user_types WHERE database_id = $1::int AND user_type_id = $2::int",
        [home.database_id, found.user_type_id],
    )
