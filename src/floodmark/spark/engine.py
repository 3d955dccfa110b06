"""The engine of a load: an open Spark, in this process's Java or behind a Spark Connect server.

It opens in a thread of its own. Half of the time of a small load is Spark's start, in which Java works and Python
waits. Meanwhile the driver imports its modules, begins the load in the ledger and prepares staging.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from pyspark.sql import SparkSession


class Engine(Protocol):
    """An open Spark."""

    @property
    def session(self) -> SparkSession:
        """Its session."""

    @property
    def masters(self) -> Sequence[str]:
        """The URLs that say on which machines its executors are: of the master and, where there is one, the server."""

    def cores(self) -> int:
        """Return how many tasks run at a time."""

    def stop(self) -> None:
        """End the session and what still runs in it, for a process that then ends."""


class OpeningEngine:
    """An engine that is being opened."""

    def __init__(self, open_engine: Callable[[], Engine]) -> None:
        self.waited_seconds = 0.0
        """The time that calls of ``get`` have waited for the engine."""
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="spark")
        self._engine = self._pool.submit(open_engine)

    def get(self) -> Engine:
        """Return the engine when it is open. Raises the error of its start."""
        began = time.monotonic()
        try:
            return self._engine.result()
        finally:
            self.waited_seconds += time.monotonic() - began

    def stop(self) -> None:
        """Stop the engine, for a process that then ends. It may not have been opened."""
        self._pool.shutdown()
        if self._engine.exception() is None:
            self._engine.result().stop()
