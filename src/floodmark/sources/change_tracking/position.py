"""Versions, and the proof that the database behind a connection has the version at which a window ends."""

from __future__ import annotations

from floodmark.core.errors import FloodmarkBugError, SourceBehindError
from floodmark.core.lsn import LsnAbsence
from floodmark.core.position import Position
from floodmark.core.source.history import LogEntry, explain_other_copy
from floodmark.core.version import Version
from floodmark.sources.change_tracking import statements
from floodmark.sources.sqlserver.driver import SourceSession

_HINT = "It is retried automatically. Where it persists, check whether the database was restored or failed over."


def number_of(position: Position) -> int:
    """Return the number of a version. Raises FloodmarkBugError for a position of another kind."""
    if not isinstance(position, Version):
        raise FloodmarkBugError("change tracking", f"{position} is not a version.")
    return position.number


def require_version(session: SourceSession, entry: LogEntry, subject: str) -> LogEntry:
    """Return the current version. Raises SourceBehindError unless the database has a version, with its commit time.

    Without VIEW DATABASE STATE there are no commit times, and none is compared.
    """
    knows_times = entry.committed_at is not None
    text = statements.select_versions(with_times=knows_times)
    [(current, current_at, found_at)] = session.fetch(text, (number_of(entry.lsn),))
    newest = LsnAbsence.NULL if current is None else Version.of(current)
    if cause := explain_other_copy(entry, newest, found_at):
        raise SourceBehindError(subject, cause, _HINT)
    return LogEntry(Version.of(current), current_at)
