"""The identity of the database that answered a snapshot."""

from __future__ import annotations

from floodmark.core.source.database import DatabaseIdentity


def build_identity(database: str, server: str | None, guid: object, group_id: object) -> DatabaseIdentity | None:
    """Return the identity from the columns of a snapshot; None where the server does not show its name."""
    if server is None:
        return None
    texts = (None if each is None else str(each).lower() for each in (guid, group_id))
    return DatabaseIdentity(server, database, *texts)
