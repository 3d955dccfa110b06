"""The process from which Spark forks the Python workers of its tasks (``spark.python.daemon.module``).

A module that is imported here is imported once, not again by every worker. Arrow imports pandas for the first Python
value it converts, only to recognise pandas' types, which takes a second in every worker. No value of Floodmark is of
such a type, so in these processes pandas counts as not installed.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from socket import socket
from types import ModuleType

_PRELOADED = "floodmark.spark.tasks"


class WithoutPandas(MetaPathFinder):
    """A finder that hides pandas."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname == "pandas":
            raise ModuleNotFoundError("pandas is disabled in Floodmark's Spark workers", name=fullname)
        return None


def list_needless_archives(path: Sequence[str]) -> list[str]:
    """Return the archives that Spark's JVM adds to a search path and that are part of a pyspark on the same path.

    Its folder has the same modules, compiled. From the archives Python compiles them in each daemon, for 0.6 seconds,
    and each task reads the directories of all archives again (``importlib.invalidate_caches``), for 0.09 seconds.
    """
    homes = [Path(entry, "pyspark") for entry in path if Path(entry, "pyspark", "__init__.py").is_file()]
    archives = [entry for entry in path if entry.endswith((".zip", ".jar"))]
    return [entry for entry in archives if any(Path(entry).is_relative_to(home) for home in homes)]


def ending_with_spark(work: Callable[[socket, bool], int]) -> Callable[[socket, bool], int]:
    """Return ``work`` that ends without a stack trace when Spark's JVM has ended.

    In the log of a load that was killed the trace would only hide the messages of the load.
    """

    def work_quietly(connection: socket, authenticated: bool) -> int:
        try:
            return work(connection, authenticated)
        except (BrokenPipeError, ConnectionResetError):
            return 1

    return work_quietly


def main() -> None:
    """Run the daemon; called as ``python -m floodmark.spark.daemon pyspark.worker``."""
    sys.meta_path.insert(0, WithoutPandas())
    for archive in list_needless_archives(sys.path):
        sys.path.remove(archive)
        sys.path_importer_cache.pop(archive, None)
    # Arrow's own allocator keeps the memory of freed batches; malloc returns it to the system.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    importlib.import_module(_PRELOADED)
    # This module reads the arguments when it is imported.
    from pyspark import daemon  # noqa: PLC0415

    vars(daemon).update(worker=ending_with_spark(daemon.worker))
    # Spark collects garbage after every task; the objects imported here never become garbage.
    gc.freeze()
    daemon.manager()


if __name__ == "__main__":
    main()
