"""The proof that the copy of the database behind a connection has what is about to be read from it.

A session stays with the server that accepted it, and the log of a copy only grows. So what the copy has before a SELECT
on the same connection, it has during it as well (docs/reference/sqlserver_cdc.md, "Readable copies").
"""

from __future__ import annotations

from floodmark.core.errors import SourceBehindError
from floodmark.core.lsn import read_lsn
from floodmark.core.source.history import LogEntry, explain_other_copy
from floodmark.sources.cdc.rows import statements
from floodmark.sources.sqlserver.driver import SourceSession

_HINT = "It is retried automatically. Where it persists, name one copy in the connection, or repair the copy that lags."


def require_entry(session: SourceSession, entry: LogEntry, subject: str) -> None:
    """Raise SourceBehindError unless the log behind the session has the entry, with its commit time."""
    [(max_lsn, found_at)] = session.fetch(statements.select_position(), (entry.lsn.value,))
    if cause := explain_other_copy(entry, read_lsn(max_lsn), found_at):
        raise SourceBehindError(subject, cause, _HINT)
