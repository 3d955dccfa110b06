"""``StagingSink``: the destination to which a worker of the engine writes the rows of one table of a window."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class StagedPart:
    """A part of a table, as one try of a task has brought it to staging."""

    part: int
    rows: int
    receipt: str = ""
    """What names the rows of this try in staging, in any form; "" for a part without rows, and for a chunk of a first
    load, whose rows the ledger records."""


class StagingSink(Protocol):
    """A writer of parts of one table of one attempt at a window. Picklable, with the warehouse's secrets."""

    def write(self, part: int, batches: Iterator[pa.RecordBatch]) -> StagedPart:
        """Write a part: stored values, ``__lsn``, ``__op`` and keep flags. Return when it is in staging.

        A part may be written several times, also at the same time: each try of a task reads the source as it is at its
        moment. Of a part of changes the rows of each try are kept apart, and the merge takes those of the try whose
        result it is given, whichever writes last. Of a chunk the rows of one try are kept. Raises from ``core.errors``;
        WatermarkConflictError, and writes nothing, for a load that a later attempt has replaced, or that is merged.
        """
