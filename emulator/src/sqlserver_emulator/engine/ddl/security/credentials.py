"""The master key of a database, and database scoped credentials, with which event streams log in at a broker."""

from __future__ import annotations

from sqlserver_emulator.engine.ddl import hooks
from sqlserver_emulator.engine.ddl.reading.taking import expect_end
from sqlserver_emulator.engine.ddl.scope import DdlScope
from sqlserver_emulator.errors import SqlServerError
from sqlserver_emulator.events import Command
from sqlserver_emulator.syntax.lexer import NSTRING, STRING, string_value
from sqlserver_emulator.syntax.parsing.cursor import Cursor

_KEY_OF = """
SELECT d.database_id, k.created_at FROM emulator.databases d LEFT JOIN emulator.master_keys k USING (database_id)
WHERE d.name = $1
"""
_CREDENTIAL = "SELECT credential_id FROM emulator.credentials WHERE database_id = $1::int AND lower(name) = lower($2)"


def create_master_key(scope: DdlScope, cursor: Cursor) -> Command:
    """Apply CREATE MASTER KEY. Raises 15247 and 15578."""
    database_id, has_key = _master_key(scope)
    # Azure SQL Database needs no password, and neither does a server whose service master key protects the key.
    if cursor.accept("ENCRYPTION", "BY", "PASSWORD"):
        cursor.expect("=")
        _take_string(cursor)
    expect_end(cursor)
    if has_key:
        text = "There is already a master key in the database. Please drop it before performing this statement."
        raise SqlServerError(15578, text)
    scope.fetch("INSERT INTO emulator.master_keys (database_id) VALUES ($1::int)", [database_id])
    return Command.NONE


def drop_master_key(scope: DdlScope, cursor: Cursor) -> Command:
    """Apply DROP MASTER KEY. Raises 15151, 15247 and 15580."""
    expect_end(cursor)
    database_id, has_key = _master_key(scope)
    if not has_key:
        raise _missing("drop", "symmetric key", "master key")
    for (name,) in scope.fetch(
        "SELECT name FROM emulator.credentials WHERE database_id = $1::int LIMIT 1", [database_id]
    ):
        raise SqlServerError(15580, f"Cannot drop master key because database credential '{name}' is encrypted by it.")
    scope.fetch("DELETE FROM emulator.master_keys WHERE database_id = $1::int", [database_id])
    return Command.NONE


def create_credential(scope: DdlScope, cursor: Cursor) -> Command:
    """Apply CREATE DATABASE SCOPED CREDENTIAL. Raises 15247, 15530 and 15581."""
    database_id, has_key = _master_key(scope)
    name = cursor.take_identifier()
    identity, secret = _take_options(cursor)
    if secret is not None and not has_key:
        text = (
            "Please create a master key in the database or open the master key in the session before performing this"
            " operation."
        )
        raise SqlServerError(15581, text, state=6)
    if scope.fetch(_CREDENTIAL, [database_id, name]):
        raise SqlServerError(15530, f'The credential with name "{name}" already exists.')
    scope.fetch(
        "INSERT INTO emulator.credentials (database_id, credential_id, name, identity, secret)"
        # The server's numbers of these begin above 65536.
        " SELECT $1::int, coalesce(max(credential_id), 65536) + 1, $2, $3, $4::text FROM emulator.credentials"
        " WHERE database_id = $1::int",
        [database_id, name, identity, secret],
    )
    return Command.NONE


def alter_credential(scope: DdlScope, cursor: Cursor) -> Command:
    """Apply ALTER DATABASE SCOPED CREDENTIAL: without a secret, none is left. Raises 15151 and 15247."""
    database_id, _ = _master_key(scope)
    name = cursor.take_identifier()
    identity, secret = _take_options(cursor)
    if not scope.fetch(_CREDENTIAL, [database_id, name]):
        raise _missing("alter", "credential", name)
    scope.fetch(
        "UPDATE emulator.credentials SET identity = $3, secret = $4::text, modified_at = emulator.now()"
        " WHERE database_id = $1::int AND lower(name) = lower($2)",
        [database_id, name, identity, secret],
    )
    return Command.NONE


def drop_credential(scope: DdlScope, cursor: Cursor) -> Command:
    """Apply DROP DATABASE SCOPED CREDENTIAL. Raises 15151, 15247, and 23803 (event streams use it)."""
    database_id, _ = _master_key(scope)
    name = cursor.take_identifier()
    expect_end(cursor)
    hooks.before_drop_credential(scope, scope.database, name)
    sql = "DELETE FROM emulator.credentials WHERE database_id = $1::int AND lower(name) = lower($2) RETURNING name"
    if not scope.fetch(sql, [database_id, name]):
        raise _missing("drop", "credential", name)
    return Command.NONE


def _master_key(scope: DdlScope) -> tuple[int, bool]:
    """Return the id of the current database and whether it has a master key. Raises 15247 without CONTROL."""
    if not scope.access.security.caller_is("db_owner", scope.database):
        raise SqlServerError(15247, "User does not have permission to perform this action.")
    ((database_id, created_at),) = scope.fetch(_KEY_OF, [scope.database])
    return int(database_id), created_at is not None


def _take_options(cursor: Cursor) -> tuple[str, str | None]:
    """`WITH IDENTITY = '…' [, SECRET = '…']`: the identity and the secret."""
    cursor.expect("WITH", "IDENTITY", "=")
    identity, secret = _take_string(cursor), None
    if cursor.accept(","):
        cursor.expect("SECRET", "=")
        secret = _take_string(cursor)
    expect_end(cursor)
    return identity, secret


def _take_string(cursor: Cursor) -> str:
    if cursor.token.kind not in (STRING, NSTRING):
        raise cursor.syntax_error(cursor.at)
    return string_value(cursor.take())


def _missing(verb: str, kind: str, name: str) -> SqlServerError:
    text = f"Cannot {verb} the {kind} '{name}', because it does not exist or you do not have permission."
    return SqlServerError(15151, text)
