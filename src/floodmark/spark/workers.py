"""The answer of a Spark worker about the Floodmark that it runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib.metadata import PackageNotFoundError, version

import pyarrow as pa

VERSION_SCHEMA = "version string"
"""The columns of ``report_version``."""


def _installed_version() -> str:
    try:
        return version("floodmark")
    except PackageNotFoundError:
        # Executors may have the folder of the package alone.
        return ""


LOADED_VERSION = _installed_version()
"""The version of this process's Floodmark, "" where it is unknown.

It is the one that was installed when the process began: a resident daemon goes on with it after an upgrade.
"""


def report_version(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield one row for a task that has rows. For ``DataFrame.mapInArrow`` with ``VERSION_SCHEMA``."""
    if sum(batch.num_rows for batch in batches):
        yield pa.RecordBatch.from_pydict({"version": [LOADED_VERSION]})
