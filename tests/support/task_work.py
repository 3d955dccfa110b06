"""Work of tasks: it is counted, it goes on and leaves a trace, or it ends with an error of Floodmark."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa

from floodmark.core.errors import DataQualityError
from floodmark.spark.stage import transported_errors

_BEATS = 600
PAUSE_SECONDS = 0.2


def beat(path: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Append a byte to a file five times a second, for two minutes."""
    for _ in batches:
        for _ in range(_BEATS):
            with Path(path).open("ab") as file:
                file.write(b".")
            time.sleep(PAUSE_SECONDS)
    yield pa.RecordBatch.from_pydict({"beats": [_BEATS]})


def one_row_each(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield one row for a task, after it has read all of its own."""
    for _ in batches:
        pass
    yield pa.RecordBatch.from_pydict({"one": pa.array([1], pa.int32())})


def is_beating(path: Path) -> bool:
    """Return whether the work goes on."""
    before = path.stat().st_size
    time.sleep(5 * PAUSE_SECONDS)
    return path.stat().st_size != before


def refuse(value: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Raise an error with a value of a row in its detail."""
    with transported_errors():
        for _ in batches:
            raise DataQualityError("dbo.T", "a rule is broken.", "Correct it.", value)
    yield pa.RecordBatch.from_pydict({"refused": pa.array([], pa.int64())})
