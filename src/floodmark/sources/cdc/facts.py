"""Facts about a server for ``core.doctor.server_facts``, read over one connection with the login's rights."""

from __future__ import annotations

from collections.abc import Iterable

from floodmark.core.doctor.server_facts import CdcFacts, Jobs
from floodmark.core.schema import TableName
from floodmark.sources.cdc.hazards import read_hazards
from floodmark.sources.sqlserver.connection import SqlServerConnection
from floodmark.sources.sqlserver.driver import CONTROL_TIMEOUT_SECONDS, connect
from floodmark.sources.sqlserver.sql_files import read_sql
from floodmark.sources.sqlserver.tables import Row

_INSTANCE, _ROLE = 2, 9
_JOB_TYPE, _CONTINUOUS, _RETENTION = 1, -4, -2


def read_facts(connection: SqlServerConnection) -> CdcFacts:
    """Return the facts that the login may see."""
    with connect(connection, query_timeout_seconds=CONTROL_TIMEOUT_SECONDS) as session:
        sets = session.fetch_sets(read_sql("read_facts"))
        jobs = session.fetch_sets(read_sql("read_jobs"))
        hazards = read_hazards(session)
    (version, edition, database, user, owner, collation, lob_limit, agent, state, at_utc, offset) = sets[0][0]
    return CdcFacts(
        product_version=version,
        engine_edition=edition,
        database=database,
        user=user,
        is_db_owner=bool(owner),
        collation=collation,
        lob_limit_bytes=lob_limit,
        agent_running=None if agent is None else bool(agent),
        may_view_state=bool(state),
        taken_at_utc=at_utc,
        utc_offset_minutes=offset,
        jobs=build_jobs(jobs[0]) if jobs else None,
        other_collations=_by_table(sets[1]),
        roles={row[_INSTANCE]: row[_ROLE] for row in (sets[2] if len(sets) > 2 else []) if row[_ROLE]},
        hazards=hazards,
    )


def build_jobs(rows: Iterable[Row]) -> Jobs:
    """Return the jobs of the rows of ``read_jobs.sql``."""
    by_type = {row[_JOB_TYPE]: row for row in rows}
    capture, cleanup = by_type.get("capture"), by_type.get("cleanup")
    return Jobs(
        capture is not None,
        int(cleanup[_RETENTION]) if cleanup else None,
        is_continuous=capture is None or bool(capture[_CONTINUOUS]),
    )


def _by_table(rows: Iterable[Row]) -> dict[TableName, tuple[str, ...]]:
    found: dict[TableName, tuple[str, ...]] = {}
    for schema, table, column, collation in rows:
        name = TableName(schema, table)
        found[name] = (*found.get(name, ()), f"{column} ({collation})")
    return found
