"""Logins, users, roles and role membership."""

from __future__ import annotations

from typing import Any

from sqlserver_emulator.engine.access.security import new_salt, password_hash
from sqlserver_emulator.engine.ddl.reading.taking import expect_end
from sqlserver_emulator.engine.ddl.scope import DdlScope
from sqlserver_emulator.engine.names import postgres_schema, quote
from sqlserver_emulator.errors import NotSupportedByEmulatorError, SqlServerError
from sqlserver_emulator.events import Command
from sqlserver_emulator.syntax.lexer import NSTRING, STRING, string_value
from sqlserver_emulator.syntax.parsing.cursor import Cursor

_PRINCIPAL = """
SELECT p.database_id, p.principal_id, p.name, p.type, p.postgres_role, p.is_fixed_role FROM emulator.principals p
JOIN emulator.databases d ON d.database_id = p.database_id WHERE d.name = $1 AND lower(p.name) = lower($2)
"""
_READERS = {"db_datareader": "SELECT", "db_datawriter": "INSERT, UPDATE, DELETE"}


def create_login(scope: DdlScope, cursor: Cursor) -> Command:
    """Apply CREATE LOGIN. Raises 15247 and 15025."""
    _require_sysadmin(scope)
    name = cursor.take_identifier()
    options = _take_options(cursor)
    if "PASSWORD" not in options:
        raise NotSupportedByEmulatorError("CREATE LOGIN without a password (FROM WINDOWS, CERTIFICATE…)")
    if scope.fetch("SELECT 1 FROM emulator.logins WHERE lower(name) = lower($1)", [name]):
        raise SqlServerError(15025, f"The server principal '{name}' already exists.")
    salt = new_salt()
    scope.fetch(
        "INSERT INTO emulator.logins (principal_id, name, password_salt, password_hash, default_database)"
        # Numbers below 256 are those of fixed server principals.
        " SELECT greatest(max(principal_id) + 1, 256), $1, $2::bytea, $3::bytea, $4 FROM emulator.logins",
        [name, salt, password_hash(salt, options["PASSWORD"]), options.get("DEFAULT_DATABASE", "master")],
    )
    # The PostgreSQL role of the login is made with the rights of its users.
    scope.fetch("SELECT emulator.refresh_login_role($1)", [name])
    return Command.NONE


def alter_login(scope: DdlScope, cursor: Cursor) -> Command:
    """Apply ALTER LOGIN. Raises 15247."""
    _require_sysadmin(scope)
    name = cursor.take_identifier()
    if cursor.word in ("ENABLE", "DISABLE"):
        disabled = cursor.take().word == "DISABLE"
        scope.fetch(
            "UPDATE emulator.logins SET is_disabled = $2::boolean WHERE lower(name) = lower($1)", [name, disabled]
        )
        return Command.NONE
    options = _take_options(cursor)
    if "PASSWORD" in options:
        salt = new_salt()
        scope.fetch(
            "UPDATE emulator.logins SET password_salt = $2::bytea, password_hash = $3::bytea WHERE "
            "lower(name) = lower($1)",
            [name, salt, password_hash(salt, options["PASSWORD"])],
        )
    if "DEFAULT_DATABASE" in options:
        sql = "UPDATE emulator.logins SET default_database = $2 WHERE lower(name) = lower($1)"
        scope.fetch(sql, [name, options["DEFAULT_DATABASE"]])
    return Command.NONE


def drop_login(scope: DdlScope, cursor: Cursor) -> Command:
    """Apply DROP LOGIN. Raises 15247 and 15151."""
    _require_sysadmin(scope)
    name = cursor.take_identifier()
    expect_end(cursor)
    role = scope.fetch("SELECT emulator.login_role($1)", [name])[0][0]
    if not scope.fetch("DELETE FROM emulator.logins WHERE lower(name) = lower($1) RETURNING name", [name]):
        message = f"Cannot drop the login '{name}', because it does not exist or you do not have permission."
        raise SqlServerError(15151, message)
    scope.run(f"DROP ROLE IF EXISTS {quote(role)}")
    return Command.NONE


def _take_options(cursor: Cursor) -> dict[str, str]:
    """`WITH PASSWORD = N'…' MUST_CHANGE, DEFAULT_DATABASE = [x], CHECK_POLICY = OFF`."""
    if not cursor.accept("WITH"):
        return {}
    options: dict[str, str] = {}
    while True:
        name = cursor.take_identifier().upper()
        cursor.expect("=")
        if cursor.token.kind in (STRING, NSTRING):
            options[name] = string_value(cursor.take())
        elif cursor.at_identifier():
            options[name] = cursor.take_identifier()
        else:
            options[name] = cursor.take().text
        while cursor.word in ("HASHED", "MUST_CHANGE", "OLD_PASSWORD"):
            if cursor.take().word != "MUST_CHANGE":
                raise NotSupportedByEmulatorError("hashed and old passwords")
        if not cursor.accept(","):
            expect_end(cursor)
            return options


def create_user(scope: DdlScope, cursor: Cursor) -> Command:
    """Apply CREATE USER. Raises 15007 and 15023."""
    name = cursor.take_identifier()
    # CREATE USER without FOR LOGIN is for the login of the same name.
    login = name
    if cursor.accept("WITHOUT", "LOGIN"):
        login = ""
    elif cursor.accept("FOR", "LOGIN") or cursor.accept("FROM", "LOGIN"):
        login = cursor.take_identifier()
    options = _take_options(cursor)
    if "PASSWORD" in options:
        raise NotSupportedByEmulatorError("contained database users (CREATE USER … WITH PASSWORD)")
    if login and not scope.fetch("SELECT 1 FROM emulator.logins WHERE lower(name) = lower($1)", [login]):
        raise SqlServerError(15007, f"'{login}' is not a valid login or you do not have permission.")
    _create_principal(scope, name, "S", login or None, options.get("DEFAULT_SCHEMA", "dbo"))
    scope.fetch("SELECT emulator.refresh_login_role($1)", [login])
    return Command.NONE


def create_role(scope: DdlScope, cursor: Cursor) -> Command:
    """Apply CREATE ROLE. Raises 15023."""
    name = cursor.take_identifier()
    if cursor.accept("AUTHORIZATION"):
        cursor.take_identifier()
    expect_end(cursor)
    _create_principal(scope, name, "R", None, None)
    return Command.NONE


def _create_principal(scope: DdlScope, name: str, type_: str, login: str | None, default_schema: str | None) -> None:
    """Raises 15023 when the name is taken, 15063 when the login has a user already."""
    if find_principal(scope, name) is not None:
        message = f"User, group, or role '{name}' already exists in the current database."
        raise SqlServerError(15023, message)
    role = postgres_schema(scope.database, name)
    ensure_role(scope, role)
    scope.fetch(
        "INSERT INTO emulator.principals (database_id, principal_id, name, type, login, default_schema, postgres_role)"
        # 16384 and above are the fixed roles.
        " SELECT d.database_id, (SELECT greatest(max(p.principal_id) FILTER (WHERE p.principal_id < 16384) + 1, 5)"
        " FROM emulator.principals p WHERE p.database_id = d.database_id), $2, $3, $4, $5, $6"
        " FROM emulator.databases d WHERE d.name = $1",
        [scope.database, name, type_, login, default_schema, role],
    )


def ensure_role(scope: DdlScope, role: str) -> None:
    """Create the PostgreSQL role unless it exists."""
    if not scope.fetch("SELECT 1 FROM pg_roles WHERE rolname = $1", [role]):
        scope.run(f"CREATE ROLE {quote(role)} NOLOGIN")


def find_principal(scope: DdlScope, name: str) -> dict[str, Any] | None:
    """Return the catalog row of a user or role of the current database, or None."""
    rows = scope.fetch(_PRINCIPAL, [scope.database, name])
    keys = ("database_id", "principal_id", "name", "type", "postgres_role", "is_fixed_role")
    return dict(zip(keys, rows[0], strict=True)) if rows else None


def drop_principal(scope: DdlScope, cursor: Cursor) -> Command:
    """DROP USER and DROP ROLE."""
    if_exists = cursor.accept("IF", "EXISTS")
    name = cursor.take_identifier()
    expect_end(cursor)
    found = find_principal(scope, name)
    if found is None:
        if if_exists:
            return Command.NONE
        message = f"Cannot drop the user '{name}', because it does not exist or you do not have permission."
        raise SqlServerError(15151, message)
    role = quote(found["postgres_role"])
    # PostgreSQL drops no role that still has rights.
    scope.run(f"DROP OWNED BY {role} CASCADE")
    scope.run(f"DROP ROLE {role}")
    scope.fetch(
        "DELETE FROM emulator.principals WHERE database_id = $1::int AND principal_id = $2::int",
        [found["database_id"], found["principal_id"]],
    )
    return Command.NONE


def alter_role(scope: DdlScope, cursor: Cursor) -> Command:
    """ALTER ROLE r ADD MEMBER u, DROP MEMBER u."""
    role = cursor.take_identifier()
    adds = cursor.expect_one_of(("ADD", "DROP")) == "ADD"
    cursor.expect("MEMBER")
    member = cursor.take_identifier()
    expect_end(cursor)
    change_membership(scope, role, member, adds=adds)
    return Command.NONE


def alter_server_role(scope: DdlScope, cursor: Cursor) -> Command:
    """ALTER SERVER ROLE sysadmin ADD MEMBER l: the one server role there is."""
    _require_sysadmin(scope)
    role = cursor.take_identifier()
    if role.lower() != "sysadmin":
        raise NotSupportedByEmulatorError(f"the server role {role}")
    adds = cursor.expect_one_of(("ADD", "DROP")) == "ADD"
    cursor.expect("MEMBER")
    login = cursor.take_identifier()
    scope.fetch("UPDATE emulator.logins SET is_sysadmin = $2::boolean WHERE lower(name) = lower($1)", [login, adds])
    return Command.NONE


def change_membership(scope: DdlScope, role_name: str, member_name: str, *, adds: bool) -> None:
    """Raises 15151 when either is missing."""
    role, member = _existing(scope, "role", role_name), _existing(scope, "user", member_name)
    keys = [role["database_id"], role["principal_id"], member["principal_id"]]
    if adds:
        scope.fetch("INSERT INTO emulator.role_members VALUES ($1::int, $2::int, $3::int) ON CONFLICT DO NOTHING", keys)
        _run_for(scope, member, "GRANT {} TO {}", role)
    else:
        scope.fetch(
            "DELETE FROM emulator.role_members WHERE database_id = $1::int AND role_principal_id = $2::int"
            " AND member_principal_id = $3::int",
            keys,
        )
        _run_for(scope, member, "REVOKE {} FROM {}", role)


def _run_for(scope: DdlScope, member: dict[str, Any], text: str, role: dict[str, Any]) -> None:
    """Nobody can be the user cdc, so PostgreSQL does not know it."""
    if member["postgres_role"]:
        scope.run(text.format(_role_of(scope, role), quote(member["postgres_role"])))


def _existing(scope: DdlScope, what: str, name: str) -> dict[str, Any]:
    found = find_principal(scope, name)
    if found is None:
        message = f"Cannot alter the {what} '{name}', because it does not exist or you do not have permission."
        raise SqlServerError(15151, message)
    return found


def _role_of(scope: DdlScope, role: dict[str, Any]) -> str:
    """The PostgreSQL role. Fixed roles get theirs, with its rights, when first used."""
    ensure_role(scope, role["postgres_role"])
    if role["is_fixed_role"]:
        _grant_fixed_rights(scope, role)
    return quote(role["postgres_role"])


def _grant_fixed_rights(scope: DdlScope, role: dict[str, Any]) -> None:
    """On all that exists and on all that will: tables come to be owned by the superuser."""
    rights = "ALL" if role["name"] == "db_owner" else _READERS.get(role["name"])
    if rights is None:
        return
    name = quote(role["postgres_role"])
    for (schema,) in scope.fetch(
        "SELECT postgres_name FROM emulator.schemas WHERE database_id = $1::int", [role["database_id"]]
    ):
        scope.run(f"GRANT {rights} ON ALL TABLES IN SCHEMA {quote(schema)} TO {name}")
        scope.run(f"ALTER DEFAULT PRIVILEGES IN SCHEMA {quote(schema)} GRANT {rights} ON TABLES TO {name}")


def _require_sysadmin(scope: DdlScope) -> None:
    if not scope.access.security.is_sysadmin:
        raise SqlServerError(15247, "User does not have permission to perform this action.")
