"""Sessions with source and warehouse that stay open between the short reads and writes of one step.

To open a session takes longer than most of its statements: a process of the server, TLS, a password that is hashed
thousands of times, and several round trips. A session is kept in the thread that opened it, for seconds: some firewalls
cut a connection that is idle for longer. Whether it still lives, its next user finds out.
"""

from __future__ import annotations

import time
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

IDLE_SECONDS = 10.0


class KeptSession(Protocol):
    """A session of any driver."""

    def close(self) -> None:
        """End the session."""


_Session = TypeVar("_Session", bound=KeptSession)


@dataclass(frozen=True)
class _Idle:
    """The idle sessions of a block, with the time of their last use."""

    kinds: tuple[type[Any], ...]
    sessions: dict[tuple[type[Any], Hashable], tuple[KeptSession, float]] = field(default_factory=dict)


_idle: ContextVar[_Idle | None] = ContextVar("idle", default=None)


@contextmanager
def kept_sessions(*kinds: type[Any]) -> Iterator[None]:
    """Keep one session per server and driver until the block ends; within another such block, until that one ends.

    kinds: the classes of the sessions that are kept; every class without one.
    """
    if _idle.get() is not None:
        yield
        return
    idle = _Idle(kinds)
    token = _idle.set(idle)
    try:
        yield
    finally:
        _idle.reset(token)
        for session, _ in idle.sessions.values():
            session.close()


def take_kept(kind: type[_Session], key: Hashable) -> _Session | None:
    """Return the kept session, which is no longer kept then; None where there is none that was used recently.

    key: what it was opened by. It has the settings with which it was kept.
    """
    idle = _idle.get()
    session, since = idle.sessions.pop((kind, key), (None, 0.0)) if idle else (None, 0.0)
    if session is not None and time.monotonic() - since > IDLE_SECONDS:
        session.close()
        return None
    return session if isinstance(session, kind) else None


def keep_or_close(kind: type[_Session], key: Hashable, session: _Session, *, is_idle: bool) -> None:
    """Keep a session for the next use, or close it: outside of a block, or where another one is kept.

    is_idle: whether the session has no transaction, no lock and no rows that were not read.
    """
    idle = _idle.get()
    is_wanted = idle is not None and is_idle and (not idle.kinds or kind in idle.kinds)
    if idle is not None and is_wanted and (kind, key) not in idle.sessions:
        idle.sessions[kind, key] = (session, time.monotonic())
    else:
        session.close()
