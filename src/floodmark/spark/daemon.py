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
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

_PRELOADED = "floodmark.spark.stage"


class WithoutPandas(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname == "pandas":
            raise ModuleNotFoundError("pandas is kept out of Floodmark's Spark workers", name=fullname)
        return None


def main() -> None:
    """Called as ``python -m floodmark.spark.daemon pyspark.worker``."""
    sys.meta_path.insert(0, WithoutPandas())
    # Arrow's own allocator keeps what batches have used; malloc gives it back.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    importlib.import_module(_PRELOADED)
    # Reads the arguments when it is imported.
    from pyspark.daemon import manager  # noqa: PLC0415

    # Spark collects garbage after every task; what was imported here is none.
    gc.freeze()
    manager()


if __name__ == "__main__":
    main()
