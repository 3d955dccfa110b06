"""CREATE, ALTER and DROP SECURITY POLICY: filter predicates, which the translator adds to each read."""

# ruff: noqa: S608  (the statement is T-SQL to be translated)

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import sqlglot
from sqlglot import exp

from sqlserver_emulator.engine.ddl.reading.declarations import ObjectName
from sqlserver_emulator.engine.ddl.reading.taking import expect_end, take_name, take_parenthesised
from sqlserver_emulator.engine.ddl.scope import DdlScope, with_literals
from sqlserver_emulator.engine.ddl.tables import rows
from sqlserver_emulator.engine.names import bracketed
from sqlserver_emulator.engine.translation import FILTERED_ROW
from sqlserver_emulator.errors import NotSupportedByEmulatorError, SqlServerError
from sqlserver_emulator.events import Command
from sqlserver_emulator.syntax.parsing.cursor import Cursor

_FIND: Final = """
SELECT o.object_id, p.is_enabled, p.is_schema_bound FROM emulator.security_policies p
JOIN emulator.objects o ON o.object_id = p.object_id
WHERE o.database_id = $1::int AND o.schema_id = $2::int AND lower(o.name) = lower($3)
"""
_FUNCTION: Final = """
SELECT object_id FROM emulator.objects
WHERE database_id = $1::int AND schema_id = $2::int AND lower(name) = lower($3) AND type = 'IF'
"""
_ADD: Final = """
INSERT INTO emulator.security_predicates
SELECT $1::int, coalesce(max(predicate_id), 0) + 1, $2::int, $3::int, $4, $5 FROM emulator.security_predicates
WHERE object_id = $1::int
"""
_STATE: Final = """
UPDATE emulator.security_policies SET is_enabled = $2::boolean, is_schema_bound = $3::boolean WHERE object_id = $1::int
"""


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a policy."""

    is_enabled: bool = True
    is_schema_bound: bool = True


def create_policy(scope: DdlScope, cursor: Cursor) -> Command:
    """Apply CREATE SECURITY POLICY. Raises 2714 when the name is taken."""
    name = take_name(cursor)
    object_id = rows.insert_object(scope, scope.schema(name), name.name, "SP")
    scope.fetch("INSERT INTO emulator.security_policies VALUES ($1::int, true, true)", [object_id])
    _change(scope, cursor, object_id, Options())
    return Command.NONE


def alter_policy(scope: DdlScope, cursor: Cursor) -> Command:
    """Apply ALTER SECURITY POLICY. Raises 15151 for one that does not exist."""
    name = take_name(cursor)
    found = _find(scope, name)
    if found is None:
        message = f"Cannot alter the security policy '{name}', because it does not exist or you do not have permission."
        raise SqlServerError(15151, message)
    object_id, options = found
    _change(scope, cursor, object_id, options)
    rows.touch(scope, object_id)
    return Command.NONE


def drop_policy(scope: DdlScope, cursor: Cursor) -> Command:
    """Apply DROP SECURITY POLICY. Raises 3701."""
    if_exists = cursor.accept("IF", "EXISTS")
    name = take_name(cursor)
    expect_end(cursor)
    found = _find(scope, name)
    if found is not None:
        scope.fetch("DELETE FROM emulator.objects WHERE object_id = $1::int", [found[0]])
    elif not if_exists:
        message = f"Cannot drop the security policy '{name}', because it does not exist or you do not have permission."
        raise SqlServerError(3701, message, severity=11, state=5)
    return Command.NONE


def _find(scope: DdlScope, name: ObjectName) -> tuple[int, Options] | None:
    home = scope.schema(name)
    found = scope.fetch(_FIND, [home.database_id, home.schema_id, name.name])
    return (int(found[0][0]), Options(bool(found[0][1]), bool(found[0][2]))) if found else None


def _change(scope: DdlScope, cursor: Cursor, object_id: int, options: Options) -> None:
    """Apply the predicates and the options behind the name."""
    while cursor.word in ("ADD", "ALTER", "DROP"):
        verb = cursor.take().word
        if not cursor.accept("FILTER", "PREDICATE"):
            raise NotSupportedByEmulatorError(f"{cursor.word} predicates of security policies")
        if verb == "ALTER":
            raise NotSupportedByEmulatorError("ALTER FILTER PREDICATE; drop it and add the new one")
        (_add if verb == "ADD" else _drop)(scope, cursor, object_id)
        cursor.accept(",")
    if cursor.accept("WITH"):
        options = _options(cursor, options)
    cursor.accept("NOT", "FOR", "REPLICATION")
    expect_end(cursor)
    scope.fetch(_STATE, [object_id, options.is_enabled, options.is_schema_bound])


def _options(cursor: Cursor, options: Options) -> Options:
    cursor.expect("(")
    while not cursor.accept(")"):
        word = cursor.expect_one_of(("STATE", "SCHEMABINDING"))
        cursor.accept("=")
        is_on = cursor.expect_one_of(("ON", "OFF")) == "ON"
        options = replace(options, **{"is_enabled" if word == "STATE" else "is_schema_bound": is_on})
        cursor.accept(",")
    return options


def _add(scope: DdlScope, cursor: Cursor, object_id: int) -> None:
    function = take_name(cursor)
    arguments = take_parenthesised(cursor)
    cursor.expect("ON")
    table = scope.existing_table(take_name(cursor))
    home = scope.schema(function)
    found = scope.fetch(_FUNCTION, [home.database_id, home.schema_id, function.name])
    if not found:
        raise SqlServerError(208, f"Invalid object name '{function}'.")
    taken = "SELECT 1 FROM emulator.security_predicates WHERE target_object_id = $1::int"
    if table.kind != "U" or scope.fetch(taken, [table.object_id]):
        raise NotSupportedByEmulatorError("a filter predicate on a view, or a second one on a table")
    if scope.fetch("SELECT emulator.is_read_by_modules($1::int)", [table.object_id])[0][0]:
        raise NotSupportedByEmulatorError("a filter predicate on a table that views or functions read")
    definition = f"{bracketed(home.name)}.{bracketed(function.name)}({arguments})"
    target = ".".join(bracketed(part) for part in (table.database, table.schema, table.name))
    alias = bracketed(FILTERED_ROW.strip('"'))
    text = f"SELECT 1 AS x FROM {target} AS {alias} WHERE EXISTS (SELECT * FROM {definition})"
    condition = with_literals(scope.translate(text)).partition(f" AS {FILTERED_ROW} WHERE ")[2]
    if next(iter(sqlglot.parse_one(f"SELECT {condition}", read="postgres").find_all(exp.Table)), None):
        raise NotSupportedByEmulatorError("predicate functions of security policies that read tables")
    scope.fetch(_ADD, [object_id, table.object_id, found[0][0], definition, condition])


def _drop(scope: DdlScope, cursor: Cursor, object_id: int) -> None:
    cursor.expect("ON")
    table = scope.existing_table(take_name(cursor))
    scope.fetch(
        "DELETE FROM emulator.security_predicates WHERE object_id = $1::int AND target_object_id = $2::int",
        [object_id, table.object_id],
    )
