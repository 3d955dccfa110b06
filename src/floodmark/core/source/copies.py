"""Copies of a database: what a snapshot of a readable replica that lags must not be taken for.

A replica applies the primary's log in order, seconds later, or hours where it has much to catch up with. An address may
lead to any of several replicas, so a snapshot may be older than the one before. That is no restore: the same position
comes to this replica, or another replica answers the next time.
"""

from __future__ import annotations

from floodmark.core.position import Position
from floodmark.core.source.history import LogEntry
from floodmark.core.source.snapshot import SourceSnapshot

REPLICA_LIMIT_SECONDS = 86400.0
"""The age of an entry above which a replica that lacks it no longer counts as late, but as restored. It is longer than
any difference between the time zones of two servers."""


def explain_behind(needed: LogEntry, snapshot: SourceSnapshot) -> str | None:
    """Return a sentence where a replica answered that does not have ``needed`` yet; None for any other snapshot."""
    if not snapshot.is_replica or (isinstance(snapshot.max_lsn, Position) and snapshot.max_lsn >= needed.lsn):
        return None
    newest = snapshot.max_lsn if isinstance(snapshot.max_lsn, Position) else "none"
    cause = f"a readable replica answered whose newest LSN is {newest}, and {needed.lsn} was read before"
    if needed.committed_at is None:
        return f"{cause}."
    age = (snapshot.taken_at - needed.committed_at).total_seconds()
    return None if age > REPLICA_LIMIT_SECONDS else f"{cause}, {max(age, 0.0):.0f} s after its commit."
