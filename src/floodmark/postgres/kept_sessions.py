"""Sessions that stay open between the short transactions of one step, so that the step opens one instead of dozens.

To open a session takes longer than most of the ledger's statements: a process of the server, TLS, a password that is
hashed thousands of times, and several round trips. A session is kept in the thread that opened it, for seconds: some
firewalls cut a connection that is idle for longer. Whether it still lives, its next user finds out.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import psycopg
from psycopg.pq import TransactionStatus

IDLE_SECONDS = 10.0
_Idle = dict[str, tuple[psycopg.Connection, float]]
_idle: ContextVar[_Idle | None] = ContextVar("idle", default=None)


@contextmanager
def kept_sessions() -> Iterator[None]:
    """Keep one session per database until the block ends; within another such block, until that one ends."""
    if _idle.get() is not None:
        yield
        return
    idle: _Idle = {}
    token = _idle.set(idle)
    try:
        yield
    finally:
        _idle.reset(token)
        for session, _ in idle.values():
            session.close()


def take_kept(conninfo: str) -> psycopg.Connection | None:
    """Return the kept session, which is no longer kept then; None where there is none that was used recently."""
    session, since = (_idle.get() or {}).pop(conninfo, (None, 0.0))
    if session is not None and time.monotonic() - since > IDLE_SECONDS:
        session.close()
        return None
    return session


def keep_or_close(conninfo: str, session: psycopg.Connection) -> None:
    """Keep a session for the next transaction, or close it: outside of a block, or where another one is kept."""
    idle = _idle.get()
    is_idle = session.info.transaction_status is TransactionStatus.IDLE
    if idle is not None and is_idle and conninfo not in idle:
        idle[conninfo] = (session, time.monotonic())
    else:
        session.close()
