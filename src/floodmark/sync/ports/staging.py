"""``StagingSink``: where a worker of the engine writes the rows of one table of a window."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class StagedPart:
    """A part of a table that is in staging."""

    part: int
    rows: int
    receipt: str = ""
    """Where the part is, for a warehouse whose staging does not know; "" where it does."""


class StagingSink(Protocol):
    """Writes parts of one table of one attempt at a window. Picklable, with the warehouse's secrets inside."""

    def write(self, part: int, batches: Iterator[pa.RecordBatch]) -> StagedPart:
        """Write a part: stored values, ``__lsn``, ``__op`` and keep flags. Returns when it is in staging.

        A part that is written several times, by tries that overtake each other, counts once. Raises from
        ``core.errors``; WatermarkConflictError, and leaves nothing, for a load that was overtaken.
        """
