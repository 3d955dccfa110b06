"""CREATE, ALTER and DROP DATABASE and SCHEMA as statements; ``databases`` does the work on the catalog."""

# ruff: noqa: S608  (only fixed texts are put together)

from __future__ import annotations

import time
from dataclasses import dataclass, field

from sqlserver_emulator.collations import DEFAULT_COLLATION, Collation, find_collation
from sqlserver_emulator.engine.ddl import databases, filegroups, hooks
from sqlserver_emulator.engine.ddl.reading.declarations import ObjectName
from sqlserver_emulator.engine.ddl.reading.read_files import (
    FileDeclaration,
    FilegroupDeclaration,
    take_filegroups,
    take_files,
)
from sqlserver_emulator.engine.ddl.reading.taking import expect_end, take_name, take_parenthesised
from sqlserver_emulator.engine.ddl.scope import DdlScope
from sqlserver_emulator.engine.ddl.tables import rows
from sqlserver_emulator.engine.ddl.tracking.database_switch import set_change_tracking
from sqlserver_emulator.engine.ddl.tracking.errors import tracking_error
from sqlserver_emulator.engine.names import postgres_schema, qualified, quote
from sqlserver_emulator.errors import NotSupportedByEmulatorError, SqlServerError
from sqlserver_emulator.events import Command
from sqlserver_emulator.release import RELEASES
from sqlserver_emulator.syntax.parsing.cursor import Cursor

_SWITCHES = {
    "ALLOW_SNAPSHOT_ISOLATION": "snapshot_isolation_state = CASE WHEN $2 = 'ON' THEN 1 ELSE 0 END",
    "READ_COMMITTED_SNAPSHOT": "is_read_committed_snapshot_on = ($2 = 'ON')",
}
_TRACKING = "CHANGE_TRACKING"
_RECOVERY = {"FULL": 1, "BULK_LOGGED": 2, "SIMPLE": 3}
_IGNORED = frozenset(
    ("AUTO_CLOSE", "AUTO_SHRINK", "AUTO_CREATE_STATISTICS", "AUTO_UPDATE_STATISTICS", "AUTO_UPDATE_STATISTICS_ASYNC",
     "PAGE_VERIFY", "QUERY_STORE", "DELAYED_DURABILITY", "TARGET_RECOVERY_TIME", "ACCELERATED_DATABASE_RECOVERY",
     "MULTI_USER", "SINGLE_USER", "RESTRICTED_USER",
     "PARAMETERIZATION", "TRUSTWORTHY", "ANSI_NULLS", "ANSI_PADDING", "ANSI_WARNINGS", "ARITHABORT",
     "CONCAT_NULL_YIELDS_NULL", "QUOTED_IDENTIFIER", "NUMERIC_ROUNDABORT", "RECURSIVE_TRIGGERS", "ANSI_NULL_DEFAULT",
     "COMPATIBILITY_LEVEL", "CURSOR_CLOSE_ON_COMMIT", "CURSOR_DEFAULT", "DB_CHAINING", "READ_WRITE")
)  # fmt: skip
"""Settings that change nothing a client of the emulator can see."""

_NEED_THE_DATABASE = frozenset(("SINGLE_USER", "READ_COMMITTED_SNAPSHOT"))
"""Options that no other session may be in the way of: WITH ROLLBACK ends them."""
_LEAVING_SECONDS = 2.0
_PAUSE_SECONDS = 0.05


def create_database(scope: DdlScope, cursor: Cursor) -> Command:
    """Apply CREATE DATABASE. Raises 226 and 1801."""
    name = cursor.take_identifier()
    _refuse_in_transaction(scope, "CREATE DATABASE")
    if scope.access.catalog.database(name) is not None:
        message = f"Database '{name}' already exists. Choose a different database name."
        raise SqlServerError(1801, message, state=3)
    if cursor.word in ("AS", "FOR") or any(t.word in ("ATTACH", "ATTACH_REBUILD_LOG") for t in cursor.tokens):
        raise NotSupportedByEmulatorError("CREATE DATABASE … AS SNAPSHOT and FOR ATTACH")
    declared = _take_declaration(cursor)
    database_id = databases.create_database(scope.fetch, scope.access.script, name, collation=declared.collation)
    filegroups.create_files(scope, name, declared.filegroups, declared.log_files)
    hooks.after_create_database(scope, database_id, name)
    return Command.NONE


@dataclass(slots=True)
class _DatabaseDeclaration:
    """The options of CREATE DATABASE that mean something here."""

    collation: Collation = DEFAULT_COLLATION
    filegroups: list[FilegroupDeclaration] = field(default_factory=list)
    log_files: tuple[FileDeclaration, ...] = ()


def _take_declaration(cursor: Cursor) -> _DatabaseDeclaration:
    """The options that are left out (CONTAINMENT, WITH …) mean nothing here."""
    declared = _DatabaseDeclaration()
    while not cursor.at_end:
        if cursor.accept("COLLATE"):
            declared.collation = find_collation(cursor.take_identifier())
        elif cursor.accept("LOG", "ON"):
            declared.log_files = take_files(cursor)
        elif cursor.accept("ON"):
            declared.filegroups += take_filegroups(cursor)
        else:
            cursor.take()
    return declared


def drop_database(scope: DdlScope, cursor: Cursor) -> Command:
    """Apply DROP DATABASE. Raises 226, 3701, 3702 and 3708."""
    if_exists = cursor.accept("IF", "EXISTS")
    _refuse_in_transaction(scope, "DROP DATABASE")
    names = [cursor.take_identifier()]
    while cursor.accept(","):
        names.append(cursor.take_identifier())
    for name in names:
        _drop(scope, name, if_exists)
    return Command.NONE


def _drop(scope: DdlScope, name: str, if_exists: bool) -> None:
    real = scope.access.catalog.database(name)
    if real is None:
        if if_exists:
            return
        message = f"Cannot drop the database '{name}', because it does not exist or you do not have permission."
        raise SqlServerError(3701, message, severity=11)
    if real in databases.SYSTEM_DATABASES:
        raise SqlServerError(3708, f"Cannot drop the database '{real}' because it is a system database.", state=4)
    if scope.database == real or _is_used_by_others(scope, real):
        raise SqlServerError(3702, f'Cannot drop database "{real}" because it is currently in use.', state=3)
    hooks.before_drop_database(scope, real)
    databases.drop_database(scope.fetch, scope.access.script, real)


def _is_used_by_others(scope: DdlScope, database: str) -> bool:
    """Whether another session is in the database; one that is just ending gets a moment."""
    deadline = time.monotonic() + _LEAVING_SECONDS
    while scope.access.others_in(database):
        if time.monotonic() > deadline:
            return True
        time.sleep(_PAUSE_SECONDS)
    return False


def alter_authorization(scope: DdlScope, cursor: Cursor) -> Command:
    """ALTER AUTHORIZATION ON DATABASE::d TO l: every database belongs to sa, and nothing depends on it."""
    cursor.expect("ON")
    kind = cursor.take().word
    if kind != "DATABASE":
        raise NotSupportedByEmulatorError(f"ALTER AUTHORIZATION ON {kind}")
    cursor.expect("::")
    name = cursor.take_identifier()
    if scope.access.catalog.database(name) is None:
        raise SqlServerError(15151, f"Cannot find the database '{name}', because it does not exist or you do not have "
                                    "permission.")  # fmt: skip
    cursor.at = len(cursor.tokens) - 1
    return Command.NONE


def _refuse_in_transaction(scope: DdlScope, what: str) -> None:
    if scope.access.was_in_transaction:
        raise SqlServerError(226, f"{what} statement not allowed within multi-statement transaction.", state=6)


def alter_database(scope: DdlScope, cursor: Cursor) -> Command:
    """Apply ALTER DATABASE: options, filegroups and files. Raises 226 and 5011."""
    name = scope.database if cursor.accept("CURRENT") else cursor.take_identifier()
    real = scope.access.catalog.database(name)
    if real is None:
        raise SqlServerError(5011, f"User does not have permission to alter database '{name}', the database does not "
                                   "exist, or the database is not in a state that allows access checks.", severity=14,
                             state=5)  # fmt: skip
    if not cursor.accept("SET"):
        _refuse_in_transaction(scope, "ALTER DATABASE")
        filegroups.change_filegroups(scope, cursor, real)
        return Command.NONE
    if cursor.accept(_TRACKING):
        set_change_tracking(scope, cursor, real)
        return Command.NONE
    options = [_set_option(scope, cursor, real)]
    while cursor.accept(","):
        if cursor.word == _TRACKING:
            raise tracking_error(22114)
        options.append(_set_option(scope, cursor, real))
    if cursor.accept("WITH"):
        if cursor.word == "ROLLBACK" and not _NEED_THE_DATABASE.isdisjoint(options):
            scope.access.end_others_in(real)
        # NO_WAIT: no session is ever waited for.
        cursor.at = len(cursor.tokens) - 1
    return Command.NONE


def _set_option(scope: DdlScope, cursor: Cursor, database: str) -> str:
    option = cursor.take_identifier().upper() if cursor.at_identifier() else cursor.take().word
    cursor.accept("=")
    if option in _SWITCHES:
        sql = f"UPDATE emulator.databases SET {_SWITCHES[option]} WHERE name = $1"
        scope.fetch(sql, [database, cursor.expect_one_of(("ON", "OFF"))])
    elif option == "RECOVERY":
        model = _RECOVERY[cursor.expect_one_of(_RECOVERY)]
        scope.fetch("UPDATE emulator.databases SET recovery_model = $2::int WHERE name = $1", [database, model])
    elif option in _IGNORED:
        while not cursor.at_end and cursor.word not in (",", "WITH", ";"):
            take_parenthesised(cursor) if cursor.word == "(" else cursor.take()
    else:
        raise NotSupportedByEmulatorError(f"ALTER DATABASE … SET {option}")
    return option


def alter_scoped_configuration(scope: DdlScope, cursor: Cursor) -> Command:
    """Apply ALTER DATABASE SCOPED CONFIGURATION SET PREVIEW_FEATURES, of SQL Server 2025. The parser takes others."""
    cursor.expect("SET", "PREVIEW_FEATURES", "=")
    is_on = cursor.expect_one_of(("ON", "OFF")) == "ON"
    expect_end(cursor)
    ((year,),) = scope.fetch("SELECT emulator.setting('release_year')::int")
    if not RELEASES[year].has_event_streaming:
        raise NotSupportedByEmulatorError("ALTER DATABASE SCOPED CONFIGURATION SET PREVIEW_FEATURES")
    sql = "UPDATE emulator.databases SET has_preview_features = $2::boolean WHERE name = $1"
    scope.fetch(sql, [scope.database, is_on])
    return Command.NONE


def create_schema(scope: DdlScope, cursor: Cursor) -> Command:
    """Apply CREATE SCHEMA. Raises 2714."""
    name = "" if cursor.word == "AUTHORIZATION" else cursor.take_identifier()
    if cursor.accept("AUTHORIZATION"):
        owner = cursor.take_identifier()
        name = name or owner
    cursor.accept(";")
    if not cursor.at_end:
        raise NotSupportedByEmulatorError(f"CREATE SCHEMA with {cursor.word} in it")
    entry = scope.access.catalog.database_entry(scope.database)
    taken = scope.fetch(
        "SELECT 1 FROM emulator.schemas s JOIN emulator.databases d ON d.database_id = s.database_id"
        " WHERE d.name = $1 AND lower(s.name) = lower($2)",
        [scope.database, name],
    )
    if taken or entry is None:
        raise SqlServerError(2714, f"There is already an object named '{name}' in the database.", state=6)
    databases.create_schema(scope.fetch, scope.access.script, entry.database_id, entry.name, name)
    return Command.NONE


def drop_schema(scope: DdlScope, cursor: Cursor) -> Command:
    """Apply DROP SCHEMA. Raises 15151 and 3729."""
    if_exists = cursor.accept("IF", "EXISTS")
    name = cursor.take_identifier()
    try:
        home = scope.schema(ObjectName("", name))
    except SqlServerError:
        if if_exists:
            return Command.NONE
        message = f"Cannot drop the schema '{name}', because it does not exist or you do not have permission."
        raise SqlServerError(15151, message) from None
    used = scope.fetch(
        "SELECT name FROM emulator.objects WHERE database_id = $1::int AND schema_id = $2::int LIMIT 1",
        [home.database_id, home.schema_id],
    )
    if used:
        message = f"Cannot drop schema '{home.name}' because it is being referenced by object '{used[0][0]}'."
        raise SqlServerError(3729, message)
    # Empty, so no CASCADE: a left-over object should fail here.
    scope.run(f"DROP SCHEMA {quote(home.postgres_name)}")
    scope.fetch(
        "DELETE FROM emulator.schemas WHERE database_id = $1::int AND schema_id = $2::int",
        [home.database_id, home.schema_id],
    )
    return Command.NONE


def transfer(scope: DdlScope, cursor: Cursor) -> Command:
    """ALTER SCHEMA s TRANSFER [OBJECT::]t."""
    target = scope.schema(ObjectName("", cursor.take_identifier()))
    cursor.expect("TRANSFER")
    cursor.accept("OBJECT", "::")
    name = take_name(cursor)
    table = scope.existing_table(name)
    hooks.before_transfer(scope, table)
    source = qualified(table.postgres_schema, table.postgres_name)
    kind = "VIEW" if table.kind == "V" else "TABLE"
    scope.run(f"ALTER {kind} {source} SET SCHEMA {quote(postgres_schema(target.database, target.name))}")
    scope.fetch(
        # Constraints and triggers of the table move with it.
        "UPDATE emulator.objects SET schema_id = $2::int WHERE object_id = $1::int OR parent_object_id = $1::int",
        [table.object_id, target.schema_id],
    )
    rows.touch(scope, table.object_id)
    return Command.NONE
