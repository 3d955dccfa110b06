"""Reads of the sources for the status page: each pipeline's at most once in some seconds, and few at a time.

Every viewer may ask for the current state, and each answer costs the source some statements.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

KEPT_SECONDS = 15.0
AT_ONCE = 4
"""The most requests that wait for sources in a process of Airflow's API server, which has few threads."""


class LiveReads:
    """The results of the latest reads by key, each shared by all who ask while it is new."""

    def __init__(self, kept_seconds: float = KEPT_SECONDS, at_once: int = AT_ONCE) -> None:
        self._kept_seconds = kept_seconds
        self._slots = threading.BoundedSemaphore(at_once)
        self._guard = threading.Lock()
        self._locks: dict[object, threading.Lock] = {}
        self._kept: dict[object, tuple[float, Any]] = {}

    @contextmanager
    def slot(self) -> Iterator[bool]:
        """Take a place for one request. False where all are taken: it must not read."""
        taken = self._slots.acquire(blocking=False)
        try:
            yield taken
        finally:
            if taken:
                self._slots.release()

    def read(self, key: object, read: Callable[[], Any]) -> Any:
        """Return what ``read`` returned for the key a few seconds ago, or read now. An exception is not kept."""
        with self._guard:
            lock = self._locks.setdefault(key, threading.Lock())
        with lock:
            at, found = self._kept.get(key, (float("-inf"), None))
            if time.monotonic() - at >= self._kept_seconds:
                found = read()
                self._kept[key] = (time.monotonic(), found)
            return found
