"""``TableReader``: the rows of one table of a plan, as Arrow batches. Each kind of source has one.

Readers are picklable: they travel to the engine's workers with the secrets of their connection, and are never logged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from floodmark.core.window.columns import ValueColumn

if TYPE_CHECKING:
    import pyarrow as pa

    from floodmark.core.errors import FloodmarkError
    from floodmark.core.interval import Interval
    from floodmark.core.schema import TableName
    from floodmark.core.source.history import LogEntry
    from floodmark.core.window.chunks import Bound, LoadChunk
    from floodmark.core.window.members import MemberRead
    from floodmark.core.window.plan import TablePlan, WindowPlan


@dataclass(frozen=True, slots=True)
class RowShape:
    """The columns of a reader's batches: those of the change itself, then the stored values."""

    key: tuple[str, ...]
    own: tuple[tuple[str, str], ...]
    """Name and type (binary or int) of each column of the change; none for rows of the table itself."""
    values: tuple[ValueColumn, ...]
    order: tuple[str, ...]
    """The columns that order the changes of a key."""
    position: str
    """The column of the commit's position, ten bytes."""
    operation: str
    """The column of the operation, a value of ``core.change.Operation``."""
    mask: str
    """The column whose bits, by ``ValueColumn.ordinal``, show which values a change row has."""

    remark: str = ""
    """A remark about the order for the log; "" for none."""

    @property
    def optional(self) -> tuple[ValueColumn, ...]:
        """Return the columns that a change row may leave out."""
        return tuple(column for column in self.values if column.is_optional)


class ChangeReader(Protocol):
    """The changes of a table. Every method raises from ``core.errors``.

    Rows are read only from a copy of the source whose log has the end of the window; SourceBehindError for any other.
    """

    @property
    def shape(self) -> RowShape:
        """Return the columns of the batches."""

    def read(self, interval: Interval) -> Iterator[pa.RecordBatch]:
        """Yield the changes of an interval, in no order."""


class SnapshotReader(Protocol):
    """The rows of a table itself, for its first load."""

    def read_chunk_bounds(self) -> Sequence[Bound]:
        """Return the keys at which the server cuts the table into chunks, in its own order."""

    def read_chunk(self, chunk: LoadChunk) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a chunk, in a shape without columns of a change."""

    def find_double_key(self) -> tuple[Bound, int] | None:
        """Return a key that several rows have, and their number; None where each key is unique."""


class TableReader(ChangeReader, SnapshotReader, Protocol):
    """The changes and the rows of a table."""


@dataclass(frozen=True, slots=True)
class TableParts:
    """How the changes of a table are read."""

    intervals: Sequence[Interval]
    """The parts that are read in parallel. No transaction is split."""
    changes: int | None = None
    """The number of changes; None where they were not counted, or are too many to count."""


class Cut(Protocol):
    """One moment of a source: all that is read of it has the state of that moment."""

    @property
    def end(self) -> LogEntry:
        """The newest position of the moment."""

    def read(self, table: TablePlan) -> Iterator[pa.RecordBatch]:
        """Yield the changes of a table since its watermark, in the shape of its reader.

        Raises InstanceReplacedError or WindowExpiredError where they are not complete.
        """


class CutReader(Protocol):
    """The way to a moment of a source. It is picklable, as readers are."""

    def open(self) -> AbstractContextManager[Cut | None]:
        """Open the present moment; None where the source does not allow it.

        Raises SourceBehindError for a copy of the source that does not have the planned end of the window.
        """


class SharedReader(Protocol):
    """One pass over a feed that has the changes of several tables. It is picklable, as readers are."""

    def count(self) -> int:
        """Return how many changes there are at most, from the plans alone."""

    def read(self) -> Iterator[tuple[int, pa.RecordBatch | FloodmarkError]]:
        """Yield the changes of each table since its marks, in the shape of its reader and in no order.

        Tables are known by their place in the plan. An error that concerns one table alone takes the place of its next
        batches. Raises any other error.
        """

    def split(self, most: int) -> Sequence[SharedReader]:
        """Return at most so many readers that may read the feed in parallel, together all of it."""

    def unite(self, reads: Mapping[int, Sequence[MemberRead]]) -> Mapping[int, Sequence[MemberRead]] | None:
        """Return how the members of each table were read, from what the readers of ``split`` said.

        None where they cannot know all of it, so that one reader must read the feed again.
        """


OpenShared = Callable[[Mapping[int, "TablePlan"]], SharedReader]
"""The factory of the reader of the tables of a window, by their places in the plan, that are read in one pass."""
OpenCut = Callable[["WindowPlan"], CutReader]
"""The factory of the reader of a window whose tables are read at one moment."""
PlanParts = Callable[["WindowPlan", int], Mapping["TableName", TableParts]]
"""The parts of each table of a window that has changes, at most the given number where its plan does not set it."""
OpenReader = Callable[["TablePlan", "LogEntry"], TableReader]
"""The factory of the reader of a table of a plan, with the entry of the log that a copy of the source must have to be
read (``WindowPlan.end``). The engine pickles it by name: it contains no secret."""
