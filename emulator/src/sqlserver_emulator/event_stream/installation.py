"""The tables of change event streaming in PostgreSQL, made at every start, and the end of a database's stream."""

from __future__ import annotations

from importlib.resources import files

from sqlserver_emulator.cdc.metadata import Run
from sqlserver_emulator.cdc.postgres import SqlConnection
from sqlserver_emulator.engine.names import quote


def install_event_streams(connection: SqlConnection) -> None:
    """Install the tables that all databases share."""
    script = files("sqlserver_emulator.event_stream").joinpath("sql", "catalog.sql").read_text(encoding="utf-8")
    connection.execute(script.encode())


def disable_stream(run: Run, database_id: int, slot: str) -> None:
    """Drop the groups of a database and its stream. The slot is dropped later: slots know no transactions."""
    for (relation,) in run(_STREAMED_RELATIONS, (database_id,)):
        run(f"ALTER TABLE {relation} REPLICA IDENTITY DEFAULT", ())
    run(f"DROP PUBLICATION IF EXISTS {quote(slot)}", ())
    run("DELETE FROM emulator.event_stream_databases WHERE database_id = $1::int", (database_id,))
    run("UPDATE emulator.databases SET is_event_stream_enabled = false WHERE database_id = $1::int", (database_id,))
    run("UPDATE emulator.objects SET is_streamed = false WHERE database_id = $1::int AND is_streamed", (database_id,))


_STREAMED_RELATIONS = """
SELECT object_id::oid::regclass::text FROM emulator.event_stream_tables
JOIN pg_class ON oid = object_id::oid WHERE database_id = $1::int
"""
