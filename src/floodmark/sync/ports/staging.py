"""``StagingSink``: the destination to which a worker of the engine writes the rows of one table of a window."""

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
    """The location of the part, for a warehouse whose staging does not record it; "" otherwise."""


class StagingSink(Protocol):
    """A writer of parts of one table of one attempt at a window. Picklable, with the warehouse's secrets."""

    def write(self, part: int, batches: Iterator[pa.RecordBatch]) -> StagedPart:
        """Write a part: stored values, ``__lsn``, ``__op`` and keep flags. Return when it is in staging.

        A part that is written several times, also at the same time, counts once. Raises from ``core.errors``;
        WatermarkConflictError, and writes nothing, for a load that a later attempt has replaced.
        """
