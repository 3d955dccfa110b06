"""The start and the end of CDC in a database: schema cdc with its tables, the publication and the slot."""

from __future__ import annotations

from sqlserver_emulator.cdc.installation import hide_job_table, show_job_table
from sqlserver_emulator.cdc.instances import CdcDatabase, read_database
from sqlserver_emulator.cdc.jobs import drop_job, list_jobs
from sqlserver_emulator.cdc.log.slots import create_slot
from sqlserver_emulator.cdc.messages import cdc_error
from sqlserver_emulator.cdc.metadata import CDC_SCHEMA, TABLES, Home, Run, create_table
from sqlserver_emulator.cdc.postgres import server_conninfo
from sqlserver_emulator.engine.names import postgres_schema, quote

# The ids below are those of dbo, guest, INFORMATION_SCHEMA and sys; from 16384 on they are the fixed roles'.
_FIRST_USER_ID = 5
_DBO_ID = 1


def database_id_of(run: Run, database: str) -> int:
    """Return the id of a database that exists."""
    ((database_id,),) = run("SELECT database_id FROM emulator.databases WHERE name = $1::varchar", (database,))
    return int(str(database_id))


def find_database(run: Run, database: str) -> CdcDatabase | None:
    """Return the CDC entry of a database by its real name, None when CDC is off."""
    return read_database(run, database_id_of(run, database))


def enable_database(run: Run, database: str) -> CdcDatabase:
    """Enable CDC; the caller checked rights and that it is off. Raises 22898, 22906 and 22989."""
    database_id = database_id_of(run, database)
    if run("SELECT 1 FROM emulator.databases WHERE database_id = $1::int AND is_system", (database_id,)):
        raise cdc_error(22989, database)
    if run("SELECT 1 FROM emulator.event_stream_databases WHERE database_id = $1::int", (database_id,)):
        raise cdc_error(22898, database)
    taken = run(
        "SELECT 1 FROM emulator.schemas WHERE database_id = $1::int AND lower(name) = $2::varchar"
        " UNION ALL SELECT 1 FROM emulator.principals WHERE database_id = $1::int AND lower(name) = $2::varchar",
        (database_id, CDC_SCHEMA),
    )
    if taken:
        raise cdc_error(22906, database)
    # First, as this transaction has written nothing yet: where there is no spare slot, a new one waits for every
    # transaction that has.
    slot = create_slot(run, server_conninfo(run), database_id)
    schema = postgres_schema(database, CDC_SCHEMA)
    _create_schema(run, database_id, schema)
    # PostgreSQL refuses updates of a fully identified table whose generated columns are not published.
    options = "publish = 'insert, update, delete', publish_generated_columns = stored"
    run(f"CREATE PUBLICATION {quote(slot)} WITH ({options})", ())
    run(
        "INSERT INTO emulator.cdc_databases (database_id, slot_name, cdc_schema) VALUES ($1::int, $2::text, $3::text)",
        (database_id, slot, schema),
    )
    run(
        "INSERT INTO emulator.cdc_positions VALUES ($1::int, pg_current_wal_insert_lsn())",
        (database_id,),
    )
    run("UPDATE emulator.databases SET is_cdc_enabled = true WHERE database_id = $1::int", (database_id,))
    show_job_table(run)
    return CdcDatabase(database_id, database, slot, schema, version=1)


def _create_schema(run: Run, database_id: int, schema: str) -> None:
    run(f"CREATE SCHEMA {quote(schema)}", ())
    # Least-privilege readers may read lsn_time_mapping, and change tables they were granted.
    run(f"GRANT USAGE ON SCHEMA {quote(schema)} TO PUBLIC", ())
    ((principal_id,),) = run(
        "INSERT INTO emulator.principals (database_id, principal_id, name, type, default_schema, postgres_role)"
        " SELECT $1::int, greatest(max(principal_id) FILTER (WHERE principal_id < 16384), $2::int - 1) + 1,"
        " $3::varchar, 'S', $3::varchar, '' FROM emulator.principals WHERE database_id = $1::int"
        " RETURNING principal_id",
        (database_id, _FIRST_USER_ID, CDC_SCHEMA),
    )
    run(
        "INSERT INTO emulator.schemas (database_id, schema_id, name, principal_id, postgres_name)"
        " SELECT $1::int, greatest(max(schema_id) FILTER (WHERE schema_id < 16384), $2::int - 1) + 1, $3::varchar,"
        " $4::int, $5::text FROM emulator.schemas WHERE database_id = $1::int",
        (database_id, _FIRST_USER_ID, CDC_SCHEMA, principal_id, schema),
    )
    run(_JOIN_DB_OWNER, (database_id, principal_id))
    home = Home(database_id, CDC_SCHEMA, schema)
    for name, (columns, primary_key) in TABLES.items():
        create_table(run, home, name, columns, primary_key)
    run(f"GRANT SELECT ON {quote(schema)}.lsn_time_mapping TO PUBLIC", ())


def drop_cdc_schema(run: Run, database: CdcDatabase) -> None:
    """Drop schema cdc of a database without instances. The slot is dropped by ``slots.drop_abandoned`` later."""
    database_id = database.database_id
    run(f"DROP PUBLICATION IF EXISTS {quote(database.slot)}", ())
    run(f"DROP SCHEMA {quote(database.schema)} CASCADE", ())
    run("DELETE FROM emulator.schemas WHERE database_id = $1::int AND name = $2::varchar", (database_id, CDC_SCHEMA))
    run("DELETE FROM emulator.principals WHERE database_id = $1::int AND name = $2::varchar", (database_id, CDC_SCHEMA))
    run("DELETE FROM emulator.cdc_databases WHERE database_id = $1::int", (database_id,))
    run("UPDATE emulator.databases SET is_cdc_enabled = false WHERE database_id = $1::int", (database_id,))
    for job in list_jobs(run, database_id):
        drop_job(run, job)
    for statement in _FORGET_SCANS:
        run(statement, (database_id,))
    if not run("SELECT 1 FROM emulator.cdc_databases", ()):
        hide_job_table(run)


_JOIN_DB_OWNER = """
INSERT INTO emulator.role_members (database_id, role_principal_id, member_principal_id)
SELECT $1::int, r.principal_id, $2::int FROM emulator.principals r
WHERE r.database_id = $1::int AND r.name = 'db_owner'
"""
_FORGET_SCANS = (
    "DELETE FROM emulator.cdc_log_scan_sessions WHERE database_id = $1::int",
    "DELETE FROM emulator.cdc_log_scan_totals WHERE database_id = $1::int",
    "DELETE FROM emulator.cdc_errors WHERE database_id = $1::int",
)
"""A later database may have the same id."""
