"""``emulator.take_backup`` and ``restore_backup``: a database's rows and versions as they were, for Change Tracking.

A copy of every table and of what Change Tracking has of it, in PostgreSQL. ``restore_database`` is for databases with
change data capture instead, and goes to any of its LSNs.
"""

# ruff: noqa: S608  (names are quoted by ``names``)

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from psycopg import errors

from sqlserver_emulator.cdc.metadata import Run
from sqlserver_emulator.cdc.postgres import connect, runner
from sqlserver_emulator.contract import Parameter, ProcedureCall, SystemProcedure
from sqlserver_emulator.control.calls import control_procedure, existing_database, refusal, text
from sqlserver_emulator.engine.names import qualified, quote
from sqlserver_emulator.events import Event
from sqlserver_emulator.types import SYSNAME

_DATABASE: Final = (Parameter("@database", SYSNAME, None),)
_WRITERS_SECONDS: Final = 5


def backup_procedures(conninfo: str) -> tuple[SystemProcedure, ...]:
    """Return the procedures that copy a database's rows and bring them back."""

    def take(call: ProcedureCall) -> Iterator[Event]:
        database_id = _database_id(call)
        with connect(conninfo) as connection, connection.transaction():
            run = runner(connection)
            # All copies are of one moment.
            run("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ", ())
            _take(run, database_id)
        yield from ()

    def restore(call: ProcedureCall) -> Iterator[Event]:
        if call.in_transaction:
            raise refusal("emulator.restore_backup cannot run inside a transaction.")
        database_id = _database_id(call)
        with connect(conninfo) as connection, connection.transaction():
            run = runner(connection)
            run(f"SET LOCAL lock_timeout = '{_WRITERS_SECONDS}s'", ())
            try:
                _restore(run, database_id)
            except errors.LockNotAvailable:
                raise refusal("A transaction is open that wrote to a table of the database.") from None
        yield from ()

    return (
        control_procedure(
            "take_backup",
            _DATABASE,
            take,
            "Copy the rows of the database, and its versions and changes of Change Tracking. The next"
            " copy replaces it. Only without change data capture.",
        ),
        control_procedure(
            "restore_backup",
            _DATABASE,
            restore,
            "Return to the rows, versions and changes of the copy; versions after it are used again. "
            "Refused where tables were made, changed or dropped since, where tracking was switched, "
            "or while a transaction is open that wrote.",
        ),
    )


def _database_id(call: ProcedureCall) -> int:
    """Raises 49998, also where change data capture is on: its change tables are of another time than the rows."""
    name = existing_database(call, text(call, "@database") or call.engine.database)
    sql = "SELECT database_id, is_cdc_enabled FROM emulator.databases WHERE name = $1"
    ((database_id, has_cdc),) = call.engine.fetch_all(sql, (name,))
    if has_cdc:
        raise refusal(f"Database '{name}' has change data capture: use emulator.restore_database.")
    return int(str(database_id))


def _folder(database_id: int) -> str:
    return f"emulator_backup_{database_id}"


def _tables(run: Run, database_id: int) -> list[tuple[str, str, str]]:
    """The table, the name of its copy, and the columns that may be written: those of users, and side tables."""
    return [(str(table), str(name), str(columns)) for table, name, columns in run(_TABLES, (database_id,))]


def _take(run: Run, database_id: int) -> None:
    folder = quote(_folder(database_id))
    run(f"DROP SCHEMA IF EXISTS {folder} CASCADE", ())
    run(f"CREATE SCHEMA {folder}", ())
    for table, name, columns in _tables(run, database_id):
        run(f"CREATE TABLE {qualified(_folder(database_id), name)} AS SELECT {columns} FROM {table}", ())
    for name in _STATE:
        run(
            f"CREATE TABLE {qualified(_folder(database_id), name)} AS SELECT * FROM emulator.{name}"
            " WHERE database_id = $1::int",
            (database_id,),
        )


def _restore(run: Run, database_id: int) -> None:
    tables = _tables(run, database_id)
    for table, _, _ in tables:
        run(f"LOCK TABLE {table} IN SHARE ROW EXCLUSIVE MODE", ())
    _check(run, database_id, tables)
    # As a restore does: nothing of it is tracked, no trigger fires, no key is asked for until all tables are back.
    run("SET LOCAL session_replication_role = replica", ())
    for table, name, columns in tables:
        copy = qualified(_folder(database_id), name)
        run(f"DELETE FROM {table}", ())
        run(f"INSERT INTO {table} ({columns}) OVERRIDING SYSTEM VALUE SELECT {columns} FROM {copy}", ())
    for name in _STATE:
        run(f"DELETE FROM emulator.{name} WHERE database_id = $1::int", (database_id,))
        run(f"INSERT INTO emulator.{name} SELECT * FROM {qualified(_folder(database_id), name)}", ())
    run(_SET_COUNTER, (database_id,))


def _check(run: Run, database_id: int, tables: list[tuple[str, str, str]]) -> None:
    copies = {str(name): str(columns) for name, columns in run(_COPIES, (_folder(database_id),))}
    if not copies:
        raise refusal("There is no backup of the database: call emulator.take_backup first.")
    if {name: columns for _, name, columns in tables} != {n: c for n, c in copies.items() if n not in _STATE}:
        raise refusal("Tables were made, changed, dropped or began to be tracked since emulator.take_backup.")


_STATE: Final = ("change_tracking_databases", "change_tracking_tables", "change_tracking_commits")
_COLUMN_LIST: Final = """(SELECT string_agg(format('%I', a.attname), ', ' ORDER BY a.attnum) FROM pg_attribute a
    WHERE a.attrelid = {} AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = '')"""
_TABLES: Final = f"""
SELECT t.oid::regclass::text, t.oid::text, {_COLUMN_LIST.format("t.oid")}
FROM (SELECT o.object_id::oid AS oid FROM emulator.objects o
      WHERE o.database_id = $1::int AND o.type = 'U' AND NOT o.is_ms_shipped
      UNION ALL
      SELECT ('emulator.change_tracking_' || t.object_id)::regclass FROM emulator.change_tracking_tables t
      WHERE t.database_id = $1::int) AS t ORDER BY t.oid
"""
_COPIES: Final = f"""
SELECT c.relname::text, {_COLUMN_LIST.format("c.oid")} FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = $1 AND c.relkind = 'r'
"""
_SET_COUNTER: Final = """
SELECT setval(emulator.version_counter($1::int), greatest(d.last_version, (
    SELECT max(c.commit_ts) FROM emulator.change_tracking_commits c WHERE c.database_id = $1::int), 0))
FROM emulator.change_tracking_databases d WHERE d.database_id = $1::int
"""
