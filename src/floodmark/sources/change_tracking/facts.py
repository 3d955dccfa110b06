"""Facts about a database with change tracking for ``core.doctor``, read over one connection with the login's rights."""

from __future__ import annotations

from floodmark.core.doctor.server_facts import TrackingFacts
from floodmark.sources.change_tracking.progress import minutes_of
from floodmark.sources.sqlserver.connection import SqlServerConnection
from floodmark.sources.sqlserver.driver import CONTROL_TIMEOUT_SECONDS, connect
from floodmark.sources.sqlserver.modules import list_truncating
from floodmark.sources.sqlserver.sql_files import read_sql


def read_tracking_facts(connection: SqlServerConnection) -> TrackingFacts:
    """Return the facts that the login may see."""
    with connect(connection, query_timeout_seconds=CONTROL_TIMEOUT_SECONDS) as session:
        [[row], modules] = session.fetch_sets(read_sql("read_tracking_facts"))
    (version, edition, database, user, owner, state, at_utc, offset, oldest, snapshot, *retention, policies) = row
    period, unit, cleans_up = retention
    return TrackingFacts(
        product_version=version,
        engine_edition=edition,
        database=database,
        user=user,
        is_db_owner=bool(owner),
        may_view_state=bool(state),
        taken_at_utc=at_utc,
        utc_offset_minutes=offset,
        retention_minutes=minutes_of(period, unit),
        cleans_up=bool(cleans_up),
        allows_snapshot=snapshot,
        oldest_seconds=oldest,
        sees_policies=bool(policies),
        truncating=list_truncating(modules),
    )
