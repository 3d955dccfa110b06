"""The end of a capture instance: ``sp_cdc_disable_table``, ``sp_cdc_disable_db``, DROP TABLE.

An instance goes at once, with all its rows, functions and history.
"""

from __future__ import annotations

from sqlserver_emulator.cdc.enabling.enable_database import drop_cdc_schema
from sqlserver_emulator.cdc.enabling.enumeration import drop_functions, drop_view
from sqlserver_emulator.cdc.instances import CdcDatabase, read_database
from sqlserver_emulator.cdc.metadata import Run
from sqlserver_emulator.engine.names import quote


def drop_instances(
    run: Run,
    database: CdcDatabase,
    source_object_id: int | None,
    instance: str | None = None,
    *,
    keeps_table: bool = True,
) -> int:
    """Drop the instances of a table (of all tables when None), or only the named one; returns how many there were.

    ``keeps_table`` False: the table itself is being dropped. The caller holds ``lock_instances``.
    """
    # The other side of the capture job's lock: wait for the scan that is writing, and keep the next one out.
    run(database.sql("LOCK TABLE :cdc.change_tables IN EXCLUSIVE MODE"), ())
    rows = run(
        database.sql(_INSTANCES),
        (source_object_id, instance),
    )
    for object_id, _, name in rows:
        _drop_instance(run, database, int(str(object_id)), str(name))
    for source in {int(str(row[1])) for row in rows}:
        if not run(database.sql("SELECT 1 FROM :cdc.change_tables WHERE source_object_id = $1::int"), (source,)):
            _stop_tracking(run, database, source, keeps_table=keeps_table)
    if rows and not run(database.sql("SELECT 1 FROM :cdc.change_tables"), ()):
        run(database.sql("DELETE FROM :cdc.lsn_time_mapping"), ())
    return len(rows)


def disable_database(run: Run, database: CdcDatabase) -> None:
    """Drop everything of CDC in a database."""
    drop_instances(run, database, None)
    drop_cdc_schema(run, database)


def forget_table(run: Run, database_id: int, object_id: int) -> None:
    """Drop the capture instances of a table that DROP TABLE is about to drop, in the same transaction."""
    database = read_database(run, database_id)
    if database is None:
        return
    # The row that `lock_instances` updates: DROP TABLE and the procedures wait for each other.
    run("UPDATE emulator.cdc_databases SET version = version + 1 WHERE database_id = $1::int", (database_id,))
    drop_instances(run, database, object_id, keeps_table=False)


def _drop_instance(run: Run, database: CdcDatabase, object_id: int, name: str) -> None:
    # The view is on the change table, so it goes first.
    drop_view(run, database, object_id)
    drop_functions(run, database, name, object_id)
    ((table,),) = run("SELECT $1::int::oid::regclass::text", (object_id,))
    run(f"DROP TABLE {table}", ())
    run("DELETE FROM emulator.objects WHERE object_id = $1::int", (object_id,))
    for metadata in ("change_tables", "captured_columns", "index_columns", "ddl_history"):
        run(database.sql("DELETE FROM :cdc.? WHERE object_id = $1::int").replace("?", metadata), (object_id,))
    run("DELETE FROM emulator.cdc_instances WHERE object_id = $1::int", (object_id,))


def _stop_tracking(run: Run, database: CdcDatabase, source: int, *, keeps_table: bool) -> None:
    run("UPDATE emulator.objects SET is_tracked_by_cdc = false WHERE object_id = $1::int", (source,))
    # DROP TABLE takes the table out of its publications.
    if not keeps_table:
        return
    ((table,),) = run("SELECT $1::int::oid::regclass::text", (source,))
    run(f"ALTER PUBLICATION {quote(database.slot)} DROP TABLE {table}", ())
    run(f"ALTER TABLE {table} REPLICA IDENTITY DEFAULT", ())


_INSTANCES = """
SELECT object_id, source_object_id, capture_instance::text FROM :cdc.change_tables
WHERE ($1::int IS NULL OR source_object_id = $1::int)
  AND ($2::varchar IS NULL OR lower(capture_instance) = lower($2::varchar))
"""
