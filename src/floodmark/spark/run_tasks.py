"""Tasks of Spark that are given what to do: one for each group of parts, in Python, over Arrow batches.

Spark's Python data sources can do the same. Each read of one starts four processes of Python on the driver's machine,
one after the other: two seconds before the first row (ADR 56).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TypeVar

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from floodmark.spark.error_transport import transported_errors

_Part = TypeVar("_Part")
_Work = Callable[[Sequence[_Part]], Iterable[pa.RecordBatch]]


def run_tasks(session: SparkSession, groups: Sequence[Sequence[_Part]], work: _Work[_Part], schema: str) -> DataFrame:
    """Return the batches that ``work`` yields for each group, with a task for each.

    Groups and work are pickled, and every task gets all of them. No query plan shows them.
    """
    numbers = session.range(0, len(groups), 1, len(groups))
    return numbers.mapInArrow(partial(_run, groups, work), schema)


def deal_in_turn(parts: Sequence[_Part], groups: int) -> list[Sequence[_Part]]:
    """Assign parts to groups in turn, so that all tasks move through the table together. None is empty."""
    return [parts[first::groups] for first in range(min(groups, len(parts)))]


def _run(
    groups: Sequence[Sequence[_Part]], work: _Work[_Part], numbers: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    with transported_errors():
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                yield from work(groups[number])
