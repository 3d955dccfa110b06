"""Sessions with source and warehouse that stay open between the short reads and writes of one step.

To open a session takes longer than most of its statements: a process of the server, TLS, a password that is hashed
thousands of times, and several round trips. A session is kept for seconds: some firewalls cut a connection that is idle
for longer. Whether it still lives, its next user finds out. Threads that run in the context of a block share what it
keeps, as many sessions as they had at once.
"""

from __future__ import annotations

import time
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, TypeVar

IDLE_SECONDS = 10.0


_Session = TypeVar("_Session")


@dataclass(frozen=True)
class _Idle:
    """The idle sessions of a block, with the time of their last use."""

    kinds: tuple[type[Any], ...]
    sessions: dict[tuple[type[Any], Hashable], list[tuple[Any, float]]] = field(default_factory=dict)


_idle: ContextVar[_Idle | None] = ContextVar("idle", default=None)


@contextmanager
def kept_sessions(*kinds: type[Any]) -> Iterator[None]:
    """Keep sessions, by server and driver, until the block ends; within another such block, until that one ends.

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
        for session, _ in chain.from_iterable(idle.sessions.values()):
            session.close()


def take_kept(kind: type[_Session], key: Hashable) -> _Session | None:
    """Return a kept session, which is no longer kept then; None where there is none that was used recently.

    key: what it was opened by. It has the settings with which it was kept.
    """
    idle = _idle.get()
    kept = idle.sessions.get((kind, key), []) if idle else []
    while True:
        try:
            session, since = kept.pop()
        except IndexError:  # also where another thread has taken the last one
            return None
        if time.monotonic() - since <= IDLE_SECONDS and isinstance(session, kind):
            return session
        session.close()


def keep_or_close(kind: type[Any], key: Hashable, session: Any, *, is_idle: bool) -> None:
    """Keep a session for the next use, or close it: outside of a block, or where it is not idle.

    is_idle: whether the session has no transaction, no lock and no rows that were not read.
    """
    idle = _idle.get()
    is_wanted = idle is not None and is_idle and (not idle.kinds or kind in idle.kinds)
    if idle is not None and is_wanted:
        idle.sessions.setdefault((kind, key), []).append((session, time.monotonic()))
    else:
        session.close()
