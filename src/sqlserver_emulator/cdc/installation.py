"""What CDC needs in PostgreSQL before any database enables it: shared tables and each database's functions.

``install_cluster`` runs at every start of the emulator, ``install_database`` when a database is created (and at every
start, so that a fix reaches old folders). Both may be repeated.
"""

from __future__ import annotations

import re
from importlib.resources import files

from sqlserver_emulator.cdc.metadata import CDC_SCHEMA, Run
from sqlserver_emulator.cdc.postgres import SqlConnection, runner
from sqlserver_emulator.engine.names import postgres_schema, qualified, quote, quote_literal
from sqlserver_emulator.types import BIT, DATETIME, INT, LSN, TsqlType

SCALAR_FUNCTIONS: dict[str, TsqlType] = {
    "fn_cdc_get_min_lsn": LSN,
    "fn_cdc_get_max_lsn": LSN,
    "fn_cdc_increment_lsn": LSN,
    "fn_cdc_decrement_lsn": LSN,
    "fn_cdc_map_lsn_to_time": DATETIME,
    "fn_cdc_map_time_to_lsn": LSN,
    "fn_cdc_get_column_ordinal": INT,
    "fn_cdc_is_bit_set": BIT,
    "fn_cdc_has_column_changed": BIT,
}
"""Scalar functions of schema sys and what they return."""

_VIEWS = ("dm_cdc_log_scan_sessions", "dm_cdc_errors")
_PLACEHOLDER = re.compile(r"(?<!:):(sys|cdc|database_id|'database')")


def install_cluster(connection: SqlConnection) -> None:
    """The tables and functions all databases share, then those of every database there is."""
    connection.execute(_script("catalog.sql").encode())
    run = runner(connection)
    for database_id, name in run("SELECT database_id, name::text FROM emulator.databases", ()):
        install_database(run, int(str(database_id)), str(name))


def install_database(run: Run, database_id: int, database: str) -> None:
    """The functions and views of schema sys that speak of CDC, entered into the catalog."""
    sys_schema = postgres_schema(database, "sys")
    values = {
        "sys": quote(sys_schema),
        "cdc": quote(postgres_schema(database, CDC_SCHEMA)),
        "database_id": str(database_id),
        "'database'": quote_literal(database),
    }
    for statement in _script("database.sql").split("--;\n"):
        run(_PLACEHOLDER.sub(lambda found: values[found[1]], statement), ())
    for name in SCALAR_FUNCTIONS:
        run(
            "INSERT INTO emulator.scalar_functions VALUES ($1::int, 'sys', $2::varchar, $3::text)"
            " ON CONFLICT (database_id, schema, name) DO UPDATE SET postgres_function = EXCLUDED.postgres_function",
            (database_id, name, qualified(sys_schema, name)),
        )
    for view in _VIEWS:
        run(
            "SELECT emulator.register_relation($1::int, 'sys', $2::text, 'V', true)"
            " WHERE NOT EXISTS (SELECT 1 FROM emulator.objects o JOIN emulator.schemas s USING (database_id, schema_id)"
            " WHERE o.database_id = $1::int AND s.name = 'sys' AND o.name = $2::text)",
            (database_id, view),
        )


def _script(name: str) -> str:
    return files(__package__).joinpath(f"sql/{name}").read_text(encoding="utf-8")
