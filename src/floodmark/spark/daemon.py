"""The process from which Spark forks the Python workers of its tasks (``spark.python.daemon.module``).

What is imported here is imported once, and not again by every worker. Arrow would import pandas as soon as it is handed
a Python value, only to recognise pandas' types: a second in every worker. None of ours has such a value, so that in
these processes pandas counts as not installed.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from socket import socket
from types import ModuleType

_PRELOADED = "floodmark.spark.job"


class WithoutPandas(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname == "pandas":
            raise ModuleNotFoundError("pandas is kept out of Floodmark's Spark workers", name=fullname)
        return None


def ending_with_spark(work: Callable[[socket, bool], int]) -> Callable[[socket, bool], int]:
    """A worker that finds Spark's JVM gone has nobody left to tell; a stack trace in the log of a load that was killed
    would only hide what the load itself says."""

    def work_quietly(connection: socket, authenticated: bool) -> int:
        try:
            return work(connection, authenticated)
        except (BrokenPipeError, ConnectionResetError):
            return 1

    return work_quietly


def main() -> None:
    """Called as ``python -m floodmark.spark.daemon pyspark.worker``."""
    sys.meta_path.insert(0, WithoutPandas())
    # Arrow's own allocator keeps what batches have used; malloc gives it back.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    importlib.import_module(_PRELOADED)
    # Reads the arguments when it is imported.
    from pyspark import daemon  # noqa: PLC0415

    vars(daemon).update(worker=ending_with_spark(daemon.worker))
    # Spark collects garbage after every task; what was imported here is none.
    gc.freeze()
    daemon.manager()


if __name__ == "__main__":
    main()
