"""A sink that refuses every row, for the workers of Spark too."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from floodmark.core.errors import TargetRefusedError
from floodmark.core.schema import TableName
from floodmark.sync.ports import StagedPart, StagingSink


@dataclass(frozen=True)
class RefusingSink:
    source: TableName

    def write(self, part: int, batches: Iterator[pa.RecordBatch]) -> StagedPart:
        for _ in batches:
            raise TargetRefusedError(str(self.source), "the test refuses its rows.")
        return StagedPart(part, 0)


if TYPE_CHECKING:
    # The test whose warehouse returns it is not read by mypy.
    _sink: StagingSink = RefusingSink(TableName("dbo", "Orders"))
