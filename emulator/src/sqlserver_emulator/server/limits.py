"""Limits of what one client, and all together, may take from the server: connections, sessions, time and memory.

The real server bounds these by its machine; the emulator has fixed bounds, far above what a pipeline or a test needs.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """``stalled_seconds``: how long a client may leave what was sent to it unread; the real server waits for ever."""

    clients: int = 500
    sessions: int = 250
    login_seconds: float = 30.0
    stalled_seconds: float = 1800.0
    login_bytes: int = 128 << 10
    message_bytes: int = 256 << 20
    """65,536 packets of the default size: the real server's limit for a batch."""
    all_messages_bytes: int = 512 << 20


class Allowance:
    """An amount that the threads of all clients share."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._taken = 0
        self._lock = threading.Lock()

    @property
    def taken(self) -> int:
        return self._taken

    def take(self, amount: int) -> bool:
        """False, and nothing is taken, when not so much is left."""
        with self._lock:
            if self._taken + amount > self.most:
                return False
            self._taken += amount
            return True

    def give_back(self, amount: int) -> None:
        with self._lock:
            self._taken -= amount


class Capacity:
    """The limits, and what is left of those that clients share."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.sessions = Allowance(limits.sessions)
        self.message_bytes = Allowance(limits.all_messages_bytes)
