"""The tables of change event streaming in PostgreSQL; run at every start, and may be repeated."""

from __future__ import annotations

from importlib.resources import files

from sqlserver_emulator.cdc.postgres import SqlConnection


def install_event_streams(connection: SqlConnection) -> None:
    """Install the tables that all databases share."""
    script = files("sqlserver_emulator.event_stream").joinpath("sql", "catalog.sql").read_text(encoding="utf-8")
    connection.execute(script.encode())
