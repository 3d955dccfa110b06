"""Every DDL statement by its first words: how each is read, and what applies it."""

from __future__ import annotations

from collections.abc import Callable

from sqlserver_emulator.engine.ddl import alter, database_options
from sqlserver_emulator.engine.ddl.filegroups import check_data_spaces
from sqlserver_emulator.engine.ddl.programs import functions, sequences, synonyms, triggers, views
from sqlserver_emulator.engine.ddl.programs import procedures as programs
from sqlserver_emulator.engine.ddl.reading import read_program
from sqlserver_emulator.engine.ddl.reading.declarations import IndexDeclaration, ObjectName
from sqlserver_emulator.engine.ddl.reading.read_alter import Additions, read_alter_table
from sqlserver_emulator.engine.ddl.reading.read_table import read_create_table
from sqlserver_emulator.engine.ddl.reading.taking import (
    expect_end,
    refuse_what_is_not_storage,
    skip_storage_options,
    take_column_names,
    take_expression,
    take_index_columns,
    take_name,
    take_names,
)
from sqlserver_emulator.engine.ddl.scope import DdlScope
from sqlserver_emulator.engine.ddl.security import credentials, permissions, policies, principals
from sqlserver_emulator.engine.ddl.tables import indexes, tables
from sqlserver_emulator.errors import NotSupportedByEmulatorError, SqlServerError
from sqlserver_emulator.events import Command
from sqlserver_emulator.syntax.parsing.boundaries import skip_parentheses
from sqlserver_emulator.syntax.parsing.cursor import Cursor
from sqlserver_emulator.syntax.parsing.data_types import with_values
from sqlserver_emulator.types import TsqlType

Statement = Callable[[DdlScope, Cursor], Command]
"""Reads from after the statement's first words, and applies it."""


def _create_table(scope: DdlScope, cursor: Cursor) -> Command:
    declaration = read_create_table(cursor, scope.read_type)
    tables.create_table(scope, declaration)
    # A view may have lost its table, and a table of that name makes it valid again.
    if not declaration.name.is_temporary:
        database = declaration.name.database or scope.database
        views.attach_views(scope, database)
        functions.attach_functions(scope, database)
    return Command.CREATE_TABLE


def _drop_table(scope: DdlScope, cursor: Cursor) -> Command:
    if_exists = cursor.accept("IF", "EXISTS")
    names = take_names(cursor)
    expect_end(cursor)
    # Other sessions cannot see temp tables, so their catalogs stay as they are.
    scope.changes_catalog = not all(name.is_temporary for name in names)
    for name in names:
        table = scope.table(name)
        # SQL Server lets a table go from under its views; PostgreSQL does not.
        if table is not None and table.kind == "U" and not name.is_temporary:
            views.detach_views(scope, table)
        tables.drop_table(scope, name, if_exists=if_exists)
    return Command.NONE


def _truncate_table(scope: DdlScope, cursor: Cursor) -> Command:
    name = take_name(cursor)
    if cursor.accept("WITH", "(", "PARTITIONS"):
        raise NotSupportedByEmulatorError("TRUNCATE TABLE … WITH (PARTITIONS …)")
    expect_end(cursor)
    tables.truncate_table(scope, name)
    return Command.NONE


def _alter_table(scope: DdlScope, cursor: Cursor) -> Command:
    name = take_name(cursor)
    table = scope.existing_table(name)
    change = read_alter_table(cursor, scope.read_type)
    # An addition does not touch what the views select, so they can stay.
    if isinstance(change, Additions):
        alter.alter_table(scope, name, change)
        return Command.NONE
    views.detach_views(scope, table)
    alter.alter_table(scope, name, change)
    # The views are translated again and have to see the changed table.
    scope.access.catalog_changed()
    views.attach_views(scope, table.database)
    return Command.NONE


def _create_index(scope: DdlScope, cursor: Cursor) -> Command:
    unique = cursor.accept("UNIQUE")
    clustered = cursor.accept("CLUSTERED")
    cursor.accept("NONCLUSTERED")
    if cursor.word == "COLUMNSTORE":
        raise NotSupportedByEmulatorError("columnstore indexes")
    cursor.expect("INDEX")
    name = cursor.take_identifier()
    cursor.expect("ON")
    table = scope.existing_table(take_name(cursor))
    columns = take_index_columns(cursor)
    included = take_column_names(cursor) if cursor.accept("INCLUDE") else ()
    condition = take_expression(cursor, ("WITH", "ON")) if cursor.accept("WHERE") else ""
    drop_existing = "DROP_EXISTING" in (token.word for token in cursor.tokens)
    spaces = skip_storage_options(cursor)
    expect_end(cursor)
    if not table.name.startswith("#"):
        check_data_spaces(scope, table.database, spaces)
    declaration = IndexDeclaration(name, columns, included, unique, clustered, condition, drop_existing)
    indexes.create_index(scope, table, declaration)
    return Command.NONE


def _drop_index(scope: DdlScope, cursor: Cursor) -> Command:
    """`DROP INDEX i ON t, …` and the older `DROP INDEX t.i`."""
    if_exists = cursor.accept("IF", "EXISTS")
    while True:
        name = take_name(cursor)
        if cursor.accept("ON"):
            indexes.drop_index(scope, take_name(cursor), name.name, if_exists=if_exists)
        elif name.schema:
            table = ObjectName(name.schema, name.database)
            indexes.drop_index(scope, table, name.name, if_exists=if_exists)
        else:
            raise SqlServerError(
                159, "Must specify the table name and index name for the DROP INDEX statement.", severity=15
            )
        skip_storage_options(cursor)
        if not cursor.accept(","):
            expect_end(cursor)
            return Command.NONE


def _alter_index(scope: DdlScope, cursor: Cursor) -> Command:
    """REBUILD, REORGANIZE and SET change nothing a client can see, but for one option; DISABLE would."""
    words = {token.word for token in cursor.tokens}
    if not words & {"REBUILD", "REORGANIZE", "SET"}:
        # DISABLE is refused in any case, but a tracked table's index gives change data capture's own error first.
        if not cursor.accept("ALL"):
            name = cursor.take_identifier()
            cursor.expect("ON")
            indexes.before_disabling(scope, take_name(cursor), name)
        raise NotSupportedByEmulatorError("ALTER INDEX … DISABLE")
    refuse_what_is_not_storage(cursor.between(cursor.at, len(cursor.tokens) - 1))
    return Command.NONE


def _view(replace: str) -> Statement:
    def apply(scope: DdlScope, cursor: Cursor) -> Command:
        views.create_view(scope, read_program.take_view(cursor), replace=replace)
        return Command.NONE

    return apply


def _drop_view(scope: DdlScope, cursor: Cursor) -> Command:
    if_exists = cursor.accept("IF", "EXISTS")
    names = take_names(cursor)
    expect_end(cursor)
    for name in names:
        views.drop_view(scope, name, if_exists=if_exists)
    return Command.NONE


def _procedure(replace: str) -> Statement:
    def apply(scope: DdlScope, cursor: Cursor) -> Command:
        programs.create_procedure(scope, take_name(cursor), replace=replace)
        return Command.NONE

    return apply


def _drop_procedure(scope: DdlScope, cursor: Cursor) -> Command:
    if_exists = cursor.accept("IF", "EXISTS")
    names = take_names(cursor)
    expect_end(cursor)
    for name in names:
        programs.drop_procedure(scope, name, if_exists=if_exists)
    return Command.NONE


def _function(replace: str) -> Statement:
    def apply(scope: DdlScope, cursor: Cursor) -> Command:
        functions.create_function(scope, take_name(cursor), replace=replace)
        return Command.NONE

    return apply


def _drop_function(scope: DdlScope, cursor: Cursor) -> Command:
    if_exists = cursor.accept("IF", "EXISTS")
    names = take_names(cursor)
    expect_end(cursor)
    for name in names:
        functions.drop_function(scope, name, if_exists=if_exists)
    return Command.NONE


def _trigger(replace: str) -> Statement:
    def apply(scope: DdlScope, cursor: Cursor) -> Command:
        triggers.create_trigger(scope, replace=replace)
        return Command.NONE

    return apply


def _drop_trigger(scope: DdlScope, cursor: Cursor) -> Command:
    if_exists = cursor.accept("IF", "EXISTS")
    names = take_names(cursor)
    if cursor.word == "ON":
        raise NotSupportedByEmulatorError(f"triggers ON {cursor.word_after()}")
    expect_end(cursor)
    triggers.drop_triggers(scope, names, if_exists=if_exists)
    return Command.NONE


def _switch_trigger(enabled: bool) -> Statement:
    """`ENABLE TRIGGER a, b ON t`, `DISABLE TRIGGER ALL ON t`."""

    def apply(scope: DdlScope, cursor: Cursor) -> Command:
        names = [] if cursor.accept("ALL") else [name.name for name in take_names(cursor)]
        cursor.expect("ON")
        if cursor.word in ("DATABASE", "ALL"):
            raise NotSupportedByEmulatorError(f"triggers ON {cursor.word}")
        table = scope.existing_table(take_name(cursor))
        expect_end(cursor)
        triggers.switch_triggers(scope, table, names, enabled=enabled)
        return Command.NONE

    return apply


def _create_sequence(scope: DdlScope, cursor: Cursor) -> Command:
    sequences.create_sequence(scope, cursor, take_name(cursor))
    return Command.NONE


def _alter_sequence(scope: DdlScope, cursor: Cursor) -> Command:
    sequences.alter_sequence(scope, cursor, take_name(cursor))
    return Command.NONE


def _drop_sequence(scope: DdlScope, cursor: Cursor) -> Command:
    if_exists = cursor.accept("IF", "EXISTS")
    names = take_names(cursor)
    expect_end(cursor)
    for name in names:
        sequences.drop_sequence(scope, name, if_exists=if_exists)
    return Command.NONE


def _no_effect(scope: DdlScope, cursor: Cursor) -> Command:
    """CREATE, ALTER and DROP STATISTICS: PostgreSQL keeps its own."""
    scope.changes_catalog = False
    return Command.NONE


def _create_type(scope: DdlScope, cursor: Cursor) -> Command:
    name = take_name(cursor)
    if cursor.accept("AS", "TABLE"):
        programs.create_type(scope, name, _TABLE_TYPE, nullable=False, columns=_table_columns(scope, cursor))
        return Command.NONE
    if not cursor.accept("FROM"):
        raise NotSupportedByEmulatorError(f"CREATE TYPE … {cursor.word} {cursor.word_after()}".rstrip())
    base = with_values(scope.read_type(cursor)[0])
    nullable = not cursor.accept("NOT", "NULL")
    cursor.accept("NULL")
    expect_end(cursor)
    programs.create_type(scope, name, base, nullable=nullable)
    return Command.NONE


_TABLE_TYPE = TsqlType("table")


def _table_columns(scope: DdlScope, cursor: Cursor) -> str:
    """The column list of a table type, checked but kept as text: each table variable is made from it."""
    start = cursor.at
    cursor.at = skip_parentheses(cursor.tokens, start)
    columns = cursor.between(start, cursor.at)
    # WITH (MEMORY_OPTIMIZED = ON) is refused by its name.
    skip_storage_options(cursor)
    expect_end(cursor)
    # Read once for its errors only: the declaration is not used.
    read_create_table(Cursor(f"@t {columns}"), scope.read_type)
    return columns


def _drop_type(scope: DdlScope, cursor: Cursor) -> Command:
    if_exists = cursor.accept("IF", "EXISTS")
    name = take_name(cursor)
    expect_end(cursor)
    programs.drop_type(scope, name, if_exists=if_exists)
    return Command.NONE


STATEMENTS: tuple[tuple[str, Statement], ...] = (
    ("CREATE TABLE", _create_table),
    ("DROP TABLE", _drop_table),
    ("TRUNCATE TABLE", _truncate_table),
    ("ALTER TABLE", _alter_table),
    ("CREATE VIEW", _view("")),
    ("CREATE OR ALTER VIEW", _view("CREATE OR ALTER")),
    ("ALTER VIEW", _view("ALTER")),
    ("DROP VIEW", _drop_view),
    *((f"CREATE {word}", _procedure("")) for word in ("PROCEDURE", "PROC")),
    *((f"CREATE OR ALTER {word}", _procedure("CREATE OR ALTER")) for word in ("PROCEDURE", "PROC")),
    *((f"ALTER {word}", _procedure("ALTER")) for word in ("PROCEDURE", "PROC")),
    *((f"DROP {word}", _drop_procedure) for word in ("PROCEDURE", "PROC")),
    ("CREATE FUNCTION", _function("")),
    ("CREATE OR ALTER FUNCTION", _function("CREATE OR ALTER")),
    ("ALTER FUNCTION", _function("ALTER")),
    ("DROP FUNCTION", _drop_function),
    ("CREATE TRIGGER", _trigger("")),
    ("CREATE OR ALTER TRIGGER", _trigger("CREATE OR ALTER")),
    ("ALTER TRIGGER", _trigger("ALTER")),
    ("DROP TRIGGER", _drop_trigger),
    ("ENABLE TRIGGER", _switch_trigger(True)),
    ("DISABLE TRIGGER", _switch_trigger(False)),
    ("CREATE SEQUENCE", _create_sequence),
    ("ALTER SEQUENCE", _alter_sequence),
    ("DROP SEQUENCE", _drop_sequence),
    ("CREATE SYNONYM", synonyms.create_synonym),
    ("DROP SYNONYM", synonyms.drop_synonym),
    ("CREATE SECURITY POLICY", policies.create_policy),
    ("ALTER SECURITY POLICY", policies.alter_policy),
    ("DROP SECURITY POLICY", policies.drop_policy),
    ("CREATE STATISTICS", _no_effect),
    ("DROP STATISTICS", _no_effect),
    ("RECONFIGURE", _no_effect),
    ("CREATE TYPE", _create_type),
    ("DROP TYPE", _drop_type),
    ("CREATE MASTER KEY", credentials.create_master_key),
    ("DROP MASTER KEY", credentials.drop_master_key),
    # Before the statements that begin with the first two of these words.
    ("CREATE DATABASE SCOPED CREDENTIAL", credentials.create_credential),
    ("ALTER DATABASE SCOPED CREDENTIAL", credentials.alter_credential),
    ("DROP DATABASE SCOPED CREDENTIAL", credentials.drop_credential),
    ("ALTER DATABASE SCOPED CONFIGURATION", database_options.alter_scoped_configuration),
    ("CREATE DATABASE", database_options.create_database),
    ("ALTER DATABASE", database_options.alter_database),
    ("DROP DATABASE", database_options.drop_database),
    ("ALTER AUTHORIZATION", database_options.alter_authorization),
    ("CREATE SCHEMA", database_options.create_schema),
    ("ALTER SCHEMA", database_options.transfer),
    ("DROP SCHEMA", database_options.drop_schema),
    ("CREATE LOGIN", principals.create_login),
    ("ALTER LOGIN", principals.alter_login),
    ("DROP LOGIN", principals.drop_login),
    ("CREATE USER", principals.create_user),
    ("DROP USER", principals.drop_principal),
    ("CREATE ROLE", principals.create_role),
    ("ALTER ROLE", principals.alter_role),
    ("ALTER SERVER ROLE", principals.alter_server_role),
    ("DROP ROLE", principals.drop_principal),
    ("GRANT", permissions.grant),
    ("REVOKE", permissions.revoke),
    ("DENY", permissions.deny),
    ("DROP INDEX", _drop_index),
    ("ALTER INDEX", _alter_index),
)
"""First words -> statement. CREATE … INDEX has optional words before INDEX: ``find_statement``."""

_INDEX_WORDS = frozenset(("UNIQUE", "CLUSTERED", "NONCLUSTERED", "INDEX", "COLUMNSTORE"))


def find_statement(cursor: Cursor) -> Statement:
    """Steps over the statement's first words. Raises NotSupportedByEmulatorError naming them."""
    if cursor.word == "CREATE" and cursor.word_after() in _INDEX_WORDS:
        cursor.take()
        return _create_index
    for words, apply in STATEMENTS:
        if cursor.accept(*words.split()):
            return apply
    words = " ".join(token.text for token in cursor.tokens[:3] if token.text)
    raise NotSupportedByEmulatorError(f"the statement {words.upper()}")
