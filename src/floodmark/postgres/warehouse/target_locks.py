"""The locks of targets: those of Floodmark's merges, and those of other sessions that a merge waits for."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType
from zlib import crc32

import psycopg

from floodmark.core.errors import FloodmarkBugError, FloodmarkError, TargetRefusedError, WarehouseUnavailableError
from floodmark.core.schema import TableName
from floodmark.core.window.lane import MAIN_LANE
from floodmark.core.window.plan import TablePlan
from floodmark.postgres.session import CANCELED_HINT, Reachable, open_session, translated
from floodmark.postgres.sql import read_sql

# Separates Floodmark's advisory locks from those of other programs. Arbitrary, and fixed.
_MERGE_LOCK = 0x46_4C_4F_45
MERGE_LOCK_SECONDS = 60.0
"""The time that each statement of a merge waits for the lock of another session."""
_SNAPSHOTS = 6
"""The number of times that the blocking sessions are read while a statement waits."""


def lock_targets(session: psycopg.Connection, targets: Iterable[TableName]) -> None:
    """Lock targets until the transaction ends, so that each merge counts correctly. Readers are not blocked."""
    # In the order of the numbers, without duplicates: two targets may share a number.
    for number in sorted({crc32(str(target).encode()) - 2**31 for target in targets}):
        session.execute("SELECT pg_advisory_xact_lock(%s, %s)", [_MERGE_LOCK, number])


@dataclass(frozen=True, slots=True)
class BlockingSession:
    """A session of another program that holds a lock."""

    pid: int
    """The process, 0 for a prepared transaction."""
    user: str | None
    application: str | None
    since: datetime | None
    """The start of its transaction; None without the right to read it."""

    def __str__(self) -> str:
        if not self.pid:
            return "a prepared transaction"
        known = (
            f"user {self.user}" if self.user else "",
            f"application {self.application}" if self.application else "",
            f"in a transaction since {self.since:%Y-%m-%d %H:%M:%S %Z}" if self.since else "",
        )
        return f"session {self.pid} ({', '.join(filter(None, known))})".removesuffix(" ()")


class LockLimit:
    """A limit on the waits of a transaction for locks of other sessions, and the frame around the work on each table.

    PostgreSQL names them only while the statement waits, and to another session. So a thread asks, from a session that
    it opens when the block lasts longer than the time between two snapshots.
    """

    def __init__(self, session: psycopg.Connection, at: Reachable, lane: str, seconds: float | None = None) -> None:
        """Prepare the limit. seconds: MERGE_LOCK_SECONDS if None."""
        self._session = session
        self._at = at
        self._lane = lane
        self._seconds = MERGE_LOCK_SECONDS if seconds is None else seconds
        self._pid = session.info.backend_pid
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="floodmark-locks", daemon=True)
        self._blocking: tuple[BlockingSession, ...] = ()

    def __enter__(self) -> LockLimit:
        self._session.execute(f"SET LOCAL lock_timeout = {int(self._seconds * 1000)}")
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._ended.set()
        self._thread.join()

    @contextmanager
    def table(self, planned: TablePlan) -> Iterator[None]:
        """Raise every error as one about this table.

        A wait that was too long refuses the table, and only a load or a replay of this table alone is retried.
        """
        with translated(str(planned.source)):
            try:
                yield
            except psycopg.errors.LockNotAvailable as error:
                blocking = ", ".join(map(str, self._blocking)) or "another session"
                then = "; the next run merges the table." if self._lane == MAIN_LANE else ", and run again."
                raise self._refused(
                    planned,
                    f"{planned.target} or rows of it were locked for more than {self._seconds:g} s by {blocking}.",
                    f"End that transaction, or wait until it ends{then}",
                ) from error
            except psycopg.errors.QueryCanceled as error:
                raise self._refused(
                    planned, f"the warehouse canceled a statement about {planned.target}.", CANCELED_HINT
                ) from error
            except (psycopg.Error, FloodmarkError):
                raise
            except Exception as error:  # a bug that one table shows must not stop the others
                raise FloodmarkBugError(
                    str(planned.source), f"the merge failed ({type(error).__name__}).", "", str(error)
                ) from error

    def _refused(self, planned: TablePlan, message: str, hint: str) -> FloodmarkError:
        kind = TargetRefusedError if self._lane == MAIN_LANE else WarehouseUnavailableError
        return kind(str(planned.source), message, hint)

    def _watch(self) -> None:
        interval = self._seconds / _SNAPSHOTS
        if self._ended.wait(interval):
            return
        try:
            with open_session(self._at) as session:
                while not self._ended.wait(interval):
                    found = session.execute(read_sql("list_blocking_sessions"), {"pid": self._pid}).fetchall()
                    if found:
                        self._blocking = tuple(BlockingSession(*row) for row in found)
        except FloodmarkError:
            return  # the message then names no session
