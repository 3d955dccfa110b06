"""The objects of CDC in PostgreSQL before any database enables it: shared tables and each database's functions.

``install_cluster`` runs at every start of the emulator, ``install_database`` when a database is created (and at every
start, so that a fix reaches old folders). Both may be repeated.
"""

from __future__ import annotations

import hashlib
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

_AGENT_DATABASE = "msdb"
_AGENT_VIEWS = (
    "sysjobs",
    "sysjobactivity",
    "sysjobhistory",
    "sysjobsteps",
    "sysjobservers",
    "syssessions",
    "syscategories",
    "sysschedules",
    "sysjobschedules",
)
_VIEWS = ("dm_cdc_log_scan_sessions", "dm_cdc_errors")
# Not after a second colon: `::text` is a cast.
_PLACEHOLDER = re.compile(r"(?<!:):(sys|cdc|dbo|database_id|'database')")


def install_cluster(connection: SqlConnection) -> None:
    """Install the tables and functions that all databases share, then those of every database there is."""
    connection.execute(_script("catalog.sql").encode())
    run = runner(connection)
    for database_id, name in run("SELECT database_id, name::text FROM emulator.databases", ()):
        install_database(run, database_id, name)
        if name == _AGENT_DATABASE:
            _install_agent_views(run, database_id)


def install_database(run: Run, database_id: int, database: str) -> None:
    """Install the functions and views of CDC in the database's schema sys, and enter them into the catalog."""
    sys_schema = postgres_schema(database, "sys")
    values = {
        "sys": quote(sys_schema),
        "cdc": quote(postgres_schema(database, CDC_SCHEMA)),
        "database_id": str(database_id),
        "'database'": quote_literal(database),
    }
    # Bodies of functions have semicolons inside, so the scripts separate statements by a mark of their own.
    for statement in _script("database.sql").split("--;\n"):
        run(_PLACEHOLDER.sub(lambda found: values[found[1]], statement), ())
    for name in SCALAR_FUNCTIONS:
        run(_REGISTER_FUNCTION, (database_id, "sys", name, qualified(sys_schema, name)))
    for view in _VIEWS:
        run(f"GRANT SELECT ON {qualified(sys_schema, view)} TO PUBLIC", ())
        run(_REGISTER_VIEW, (database_id, "sys", view, True))


def _install_agent_views(run: Run, database_id: int) -> None:
    """Make the views again only where a version of the emulator changed them: rights on them are users' own."""
    run(_REGISTER_FUNCTION, (database_id, "dbo", "agent_datetime", "emulator_cdc.agent_datetime"))
    dbo, script = postgres_schema(_AGENT_DATABASE, "dbo"), _script("msdb.sql")
    digest = hashlib.sha256(script.encode()).hexdigest()
    if run("SELECT 1 FROM emulator.settings WHERE name = 'agent views' AND value = $1::text", (digest,)):
        return
    for view in _AGENT_VIEWS:
        _drop_agent_view(run, view)
    for statement in script.split("--;\n"):
        run(statement.replace(":dbo", quote(dbo)), ())
    for view in _AGENT_VIEWS:
        run(_REGISTER_VIEW, (database_id, "dbo", view, False))
    run(_SET_DIGEST, (digest,))


def _drop_agent_view(run: Run, view: str) -> None:
    run(f"DROP VIEW IF EXISTS {qualified(postgres_schema(_AGENT_DATABASE, 'dbo'), view)}", ())
    run(
        "DELETE FROM emulator.objects o USING emulator.databases d WHERE d.database_id = o.database_id"
        " AND d.name = $1::varchar AND o.name = $2::varchar",
        (_AGENT_DATABASE, view),
    )


# docs/reference/sqlserver_cdc.md, "Metadata tables": `msdb.dbo.cdc_jobs` exists only while a database has CDC.
def show_job_table(run: Run) -> None:
    """Create msdb.dbo.cdc_jobs, if it is not there: a database has CDC now."""
    dbo = postgres_schema(_AGENT_DATABASE, "dbo")
    agent = run("SELECT database_id FROM emulator.databases WHERE name = $1::varchar", (_AGENT_DATABASE,))
    if agent and run("SELECT to_regclass($1::text) IS NULL", (qualified(dbo, "cdc_jobs"),))[0][0]:
        run(_script("cdc_jobs.sql").replace(":dbo", quote(dbo)), ())
        run(_REGISTER_VIEW, (agent[0][0], "dbo", "cdc_jobs", False))


def hide_job_table(run: Run) -> None:
    """Drop msdb.dbo.cdc_jobs: no database has CDC now."""
    _drop_agent_view(run, "cdc_jobs")


def _script(name: str) -> str:
    return files(__package__).joinpath(f"sql/{name}").read_text(encoding="utf-8")


_REGISTER_FUNCTION = """
INSERT INTO emulator.scalar_functions VALUES ($1::int, $2::varchar, $3::varchar, $4::text)
ON CONFLICT (database_id, schema, name) DO UPDATE SET postgres_function = excluded.postgres_function
"""
_SET_DIGEST = """
INSERT INTO emulator.settings VALUES ('agent views', $1::text) ON CONFLICT (name) DO UPDATE SET value = excluded.value
"""
_REGISTER_VIEW = """
SELECT emulator.register_relation($1::int, $2::text, $3::text, 'V', $4::boolean)
WHERE NOT EXISTS (SELECT 1 FROM emulator.objects o JOIN emulator.schemas s USING (database_id, schema_id)
                  WHERE o.database_id = $1::int AND s.name = $2::varchar AND o.name = $3::varchar)
"""
