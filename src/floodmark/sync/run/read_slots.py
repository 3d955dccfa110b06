"""A limit for the reads of the source that run in parallel."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class ReadSlots:
    """A number of statements that may read the source at a time. Threads share it."""

    def __init__(self, slots: int) -> None:
        self._limit = slots
        self._free = slots
        self._changed = threading.Condition()

    @contextmanager
    def taken(self, wanted: int) -> Iterator[int]:
        """Hold as many slots as wanted, at most the limit, during the block. Waits until they are free."""
        slots = min(wanted, self._limit)
        with self._changed:
            self._changed.wait_for(lambda: self._free >= slots)
            self._free -= slots
        try:
            yield slots
        finally:
            with self._changed:
                self._free += slots
                self._changed.notify_all()
