"""GRANT, REVOKE and DENY, as GRANT and REVOKE of the PostgreSQL roles behind users and roles.

PostgreSQL knows no DENY: it is done as REVOKE, which differs where a right comes from a role as well. What was said is
kept in ``emulator.permissions`` (``sql/permissions.sql``), which also holds the rights that PostgreSQL does not know;
some of those no statement of the emulator checks (EXECUTE, CONNECT, VIEW SERVER STATE…).
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlserver_emulator.engine.ddl.reading.declarations import ObjectName
from sqlserver_emulator.engine.ddl.reading.taking import take_column_names, take_name
from sqlserver_emulator.engine.ddl.scope import DdlScope
from sqlserver_emulator.engine.ddl.security.principals import ensure_role, find_principal
from sqlserver_emulator.engine.names import qualified, quote
from sqlserver_emulator.engine.translation import CatalogObject
from sqlserver_emulator.errors import NotSupportedByEmulatorError, SqlServerError
from sqlserver_emulator.events import Command
from sqlserver_emulator.syntax.parsing.cursor import Cursor

_TABLE_RIGHTS = {"SELECT", "INSERT", "UPDATE", "DELETE", "REFERENCES"}
_EVERYTHING = {"ALL", "ALL PRIVILEGES", "CONTROL"}
_WITHOUT_EFFECT_HERE = frozenset(
    (
        "CONNECT",
        "VIEW DEFINITION",
        "VIEW SERVER STATE",
        "VIEW ANY DEFINITION",
        "EXECUTE",
        "VIEW SERVER PERFORMANCE STATE",
        "CREATE TABLE",
        "CREATE VIEW",
        "SHOWPLAN",
        "CREATE PROCEDURE",
        "CREATE SCHEMA",
        "TAKE OWNERSHIP",
        "VIEW ANY DATABASE",
        "ALTER ANY SCHEMA",
        "ALTER ANY MASK",
        "ALTER ANY SECURITY POLICY",
    )
)
_CHECKED_HERE = frozenset(
    ("VIEW DATABASE STATE", "VIEW DATABASE PERFORMANCE STATE", "VIEW CHANGE TRACKING", "ALTER", "CONTROL", "UNMASK")
)
_ON_SERVER = frozenset(
    ("VIEW SERVER STATE", "VIEW ANY DEFINITION", "VIEW ANY DATABASE", "VIEW SERVER PERFORMANCE STATE")
)


@dataclass(frozen=True, slots=True)
class Securable:
    """The object of the rights. ``schema`` for a whole schema, ``table`` for an object; else the database, or
    ``is_other``: something that the emulator has no rights on.
    """

    schema: str = ""
    table: ObjectName | None = None
    is_other: bool = False


def grant(scope: DdlScope, cursor: Cursor) -> Command:
    """Apply GRANT. Raises 15151."""
    return _change(scope, cursor, "GRANT", ("TO",), state="G")


def revoke(scope: DdlScope, cursor: Cursor) -> Command:
    """Apply REVOKE. Raises 15151."""
    cursor.accept("GRANT", "OPTION", "FOR")
    return _change(scope, cursor, "REVOKE", ("FROM", "TO"), state="")


def deny(scope: DdlScope, cursor: Cursor) -> Command:
    """Apply DENY, which PostgreSQL does as REVOKE. Raises 15151."""
    return _change(scope, cursor, "REVOKE", ("TO",), state="D")


def _change(scope: DdlScope, cursor: Cursor, verb: str, preposition: tuple[str, ...], *, state: str) -> Command:
    """``verb``: what PostgreSQL runs. ``state``: what is kept, '' for nothing."""
    if not scope.access.security.caller_is("db_owner", scope.database):
        message = "Cannot find the object, because it does not exist or you do not have permission."
        raise SqlServerError(15151, message)
    rights = _take_rights(cursor)
    securable = _take_securable(cursor) if cursor.accept("ON") else Securable()
    if cursor.word == "(":
        # Columns behind the object are those of every right that names none.
        listed = take_column_names(cursor)
        rights = [(right, columns or listed) for right, columns in rights]
    cursor.expect_one_of(preposition)
    grantees = [cursor.take_identifier()]
    while cursor.accept(","):
        grantees.append(cursor.take_identifier())
    if cursor.accept("WITH", "GRANT", "OPTION"):
        state = "W"
    cursor.at = len(cursor.tokens) - 1  # CASCADE, AS: nothing below depends on them
    # Kept and applied for each grantee: PostgreSQL's own catalog has no DENY and no schema rights.
    for grantee in grantees:
        role = _role(scope, grantee)
        for right, columns in rights:
            _keep(scope, state, right, columns, securable=securable, grantee=grantee)
            _apply(scope, verb, right, columns, securable=securable, role=role)
    return Command.NONE


def _take_rights(cursor: Cursor) -> list[tuple[str, tuple[str, ...]]]:
    """`SELECT, UPDATE (a, b), VIEW DEFINITION`."""
    rights = []
    while True:
        words = [cursor.take().word]
        while cursor.word not in (",", "(", "ON", "TO", "FROM"):
            words.append(cursor.take().word)
        columns = take_column_names(cursor) if cursor.word == "(" else ()
        rights.append((" ".join(words), columns))
        if not cursor.accept(","):
            return rights


def _take_securable(cursor: Cursor) -> Securable:
    if cursor.word_after() == "::":
        kind = cursor.take().word
        cursor.take()
        if kind == "SCHEMA":
            return Securable(schema=cursor.take_identifier())
        if kind in ("DATABASE", "LOGIN", "USER", "ROLE", "TYPE"):
            take_name(cursor)
            return Securable(is_other=kind != "DATABASE")
        if kind != "OBJECT":
            raise NotSupportedByEmulatorError(f"rights on {kind}::")
    return Securable(table=take_name(cursor))


def _role(scope: DdlScope, name: str) -> str:
    found = find_principal(scope, name)
    if found is None:
        message = f"Cannot find the user '{name}', because it does not exist or you do not have permission."
        raise SqlServerError(15151, message)
    # PostgreSQL's PUBLIC is a keyword, no role of that name.
    if found["name"] == "public":
        return "PUBLIC"
    # A fixed role has no PostgreSQL role before it is used for the first time.
    ensure_role(scope, found["postgres_role"])
    return quote(found["postgres_role"])


def _apply(
    scope: DdlScope, verb: str, right: str, columns: tuple[str, ...], *, securable: Securable, role: str
) -> None:
    if right in _WITHOUT_EFFECT_HERE or (right in _CHECKED_HERE and right not in _EVERYTHING):
        return
    if right not in _TABLE_RIGHTS | _EVERYTHING:
        raise NotSupportedByEmulatorError(f"{verb} {right}")
    postgres = "ALL" if right in _EVERYTHING else right
    preposition = "TO" if verb == "GRANT" else "FROM"
    if columns and securable.table is not None:
        table = scope.existing_table(securable.table)
        by_name = {c.name.lower(): c.postgres_name for c in table.columns}
        postgres += f" ({', '.join(quote(by_name.get(c.lower(), c)) for c in columns)})"
    for target in _targets(scope, securable):
        scope.run(f"{verb} {postgres} ON {target} {preposition} {role}")


def _keep(
    scope: DdlScope, state: str, right: str, columns: tuple[str, ...], *, securable: Securable, grantee: str
) -> None:
    """Keep the statement's rights, for sys.database_permissions and for what only the emulator checks."""
    principal = find_principal(scope, grantee)
    if principal is None or securable.is_other or right in _ON_SERVER:
        return
    object_id: int | None = None
    schema_id: int | None = None
    column_ids = [0]
    if securable.table is not None:
        object_id = _object_id(scope, securable.table)
        if columns:
            by_name = {c.name.lower(): c.column_id for c in scope.existing_table(securable.table).columns}
            column_ids = [by_name[c.lower()] for c in columns if c.lower() in by_name]
    elif securable.schema:
        schema_id = scope.schema(ObjectName("", securable.schema)).schema_id
    # ALL on a table or schema is shown as its single rights.
    every = sorted(_TABLE_RIGHTS) if right.startswith("ALL") and (object_id or schema_id) else [right]
    for column_id in column_ids:
        for each in every:
            keys = [principal["database_id"], principal["principal_id"], each, object_id, schema_id, column_id]
            # The newest statement about a right replaces what was kept.
            scope.fetch(_FORGET, keys)
            if state:
                scope.fetch(_KEEP, [*keys, state])


def _object_id(scope: DdlScope, name: ObjectName) -> int | None:
    home = scope.schema(name)
    rows = scope.fetch(_OBJECT, [home.database_id, home.schema_id, name.name])
    return int(rows[0][0]) if rows else None


def may_alter(scope: DdlScope, table: CatalogObject) -> bool:
    """Whether the caller, who is no db_ddladmin, was given ALTER on the table."""
    rows = scope.fetch(_MAY_ALTER, [table.database, table.object_id])
    return bool(rows[0][0])


def _targets(scope: DdlScope, securable: Securable) -> list[str]:
    """A right on a schema or database is one on all its tables (those that come later get it by default privileges)."""
    if securable.table is not None:
        found = scope.table(securable.table)
        if found is None:
            return _program(scope, securable.table)
        return [qualified(found.postgres_schema, found.postgres_name)]
    schemas = (
        [securable.schema]
        if securable.schema
        else [
            str(name)
            for (name,) in scope.fetch(
                "SELECT s.name FROM emulator.schemas s JOIN emulator.databases d ON d.database_id = s.database_id"
                " WHERE d.name = $1",
                [scope.database],
            )
        ]
    )
    return [f"ALL TABLES IN SCHEMA {quote(scope.schema(ObjectName('', s)).postgres_name)}" for s in schemas]


def _program(scope: DdlScope, name: ObjectName) -> list[str]:
    """A procedure or function: no rights of its own in PostgreSQL, but it must exist. Those of a change enumeration
    function are held by a view."""
    home = scope.schema(name)
    rows = scope.fetch(
        "SELECT postgres_name FROM emulator.objects WHERE database_id = $1::int AND schema_id = $2::int AND "
        "lower(name) = lower($3)",
        [home.database_id, home.schema_id, name.name],
    )
    if not rows:
        message = f"Cannot find the object '{name}', because it does not exist or you do not have permission."
        raise SqlServerError(15151, message)
    # A change enumeration function is expanded to a view, and the view is what has rights.
    return [str(view) for (view,) in rows if str(view).startswith("emulator_cdc.")]


_OBJECT = """
SELECT object_id FROM emulator.objects
WHERE database_id = $1::int AND schema_id = $2::int AND lower(name) = lower($3) ORDER BY name = $3 DESC LIMIT 1
"""
_FORGET = """
DELETE FROM emulator.permissions WHERE database_id = $1::int AND principal_id = $2::int AND permission = $3::varchar
AND object_id IS NOT DISTINCT FROM $4::int AND schema_id IS NOT DISTINCT FROM $5::int AND column_id = $6::int
"""
_KEEP = """
INSERT INTO emulator.permissions (database_id, principal_id, permission, object_id, schema_id, column_id, state)
VALUES ($1::int, $2::int, $3::varchar, $4::int, $5::int, $6::int, $7::text::"char")
"""
_MAY_ALTER = """
SELECT emulator.caller_holds(d.database_id, '{ALTER,CONTROL}', $2::int) FROM emulator.databases d
WHERE d.name = $1::varchar
"""
