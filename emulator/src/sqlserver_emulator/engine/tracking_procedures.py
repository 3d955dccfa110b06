"""Change Tracking's cleanup by hand: sp_flush_CT_internal_table_on_demand and sp_flush_commit_table_on_demand."""

from __future__ import annotations

from collections.abc import Iterator

from sqlserver_emulator.contract import Parameter, ProcedureCall, SystemProcedure
from sqlserver_emulator.errors import SqlServerError, not_tracked
from sqlserver_emulator.events import Event, Info
from sqlserver_emulator.types import BIGINT, SYSNAME

_STATE = """
SELECT d.database_id, emulator.expired_version(d.database_id) FROM emulator.change_tracking_databases d
JOIN emulator.databases n ON n.database_id = d.database_id WHERE n.name = $1 AND d.is_on
"""
_TABLES = """
SELECT object_id FROM emulator.change_tracking_tables
WHERE database_id = $1::int AND ($2::varchar IS NULL OR object_id = tsql.object_id($2, NULL, $3)) ORDER BY object_id
"""
_MOST_COMMITS = 2**62


def _state(call: ProcedureCall) -> tuple[int, int]:
    """The database's number and the newest version that has expired. Raises 5089 and 15247."""
    if not call.engine.caller_is("db_owner"):
        raise SqlServerError(15247, "User does not have permission to perform this action.")
    rows = call.engine.fetch_all(_STATE, [call.engine.database])
    if not rows:
        raise SqlServerError(
            5089,
            f"Change tracking is disabled for database '{call.engine.database}'. Change tracking must be enabled on a"
            " database to modify change tracking settings.",
        )
    database_id, version = rows[0]
    return int(str(database_id)), int(str(version or 0))


def _flush_tables(call: ProcedureCall) -> Iterator[Event]:
    database_id, version = _state(call)
    name = call.arguments["@tabletoclean"]
    tables = call.engine.fetch_all(_TABLES, [database_id, name, call.engine.database])
    if name is not None and not tables:
        raise not_tracked(str(name))
    yield Info(0, f"Cleanup Watermark = {version}")
    for (object_id,) in tables:
        ((removed,),) = call.engine.fetch_all(
            "SELECT emulator.clean_tracked_table($1::int, $2::bigint)", [object_id, version]
        )
        yield Info(0, f"Internal Change Tracking table name : change_tracking_{object_id}")
        yield Info(0, f"Total rows deleted: {removed}.")


def _flush_commits(call: ProcedureCall) -> Iterator[Event]:
    database_id, version = _state(call)
    most = call.arguments["@numrows"]
    ((removed,),) = call.engine.fetch_all(
        "SELECT emulator.clean_commit_table($1::int, $2::bigint)",
        [database_id, _MOST_COMMITS if most is None else most],
    )
    yield Info(0, f"Cleanup Watermark = {version}")
    yield Info(0, f"Total rows deleted: {removed}.")


TRACKING_PROCEDURES = (
    SystemProcedure(
        "sp_flush_ct_internal_table_on_demand", (Parameter("@tabletoclean", SYSNAME, default=None),), _flush_tables
    ),
    SystemProcedure("sp_flush_commit_table_on_demand", (Parameter("@numrows", BIGINT, default=None),), _flush_commits),
)
