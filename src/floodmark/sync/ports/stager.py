"""``Stager``: the engine that moves rows from the source to staging."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from floodmark.core.errors import FloodmarkError
from floodmark.core.source.history import LogEntry
from floodmark.core.window.chunks import Bound, LoadChunk
from floodmark.core.window.members import MemberRead
from floodmark.core.window.plan import WindowPlan
from floodmark.sync.ports.staging import StagedPart, StagingSink


@dataclass(frozen=True, slots=True)
class StagedRows:
    """The result of staging one table."""

    read_rows: int
    """Rows of the source."""
    staged_rows: int
    """Rows in staging."""
    parts: tuple[StagedPart, ...] = ()
    """The parts that have these rows; none for a first load, whose chunks the ledger has. The merge takes the rows of
    no other try of a part."""
    members: tuple[MemberRead, ...] = ()
    """The members of the table that were examined."""


@dataclass(frozen=True, slots=True)
class StagedCut:
    """The result of staging tables at one moment of the source."""

    end: LogEntry
    """The newest position of that moment, not below the end of the plan."""
    tables: Mapping[int, StagedRows | FloodmarkError]
    """By the index of the table in the plan."""


class Stager(Protocol):
    """An engine that reads rows from the source, nets changes, and writes them to a sink."""

    def stage_table(self, plan: WindowPlan, index: int, sink: StagingSink) -> StagedRows:
        """Read the changes of table ``index`` of the plan, and net them."""

    def stage_cut(self, plan: WindowPlan, sinks: Mapping[int, StagingSink]) -> StagedCut | None:
        """Stage the changes of tables at one moment of the source. Return None where it has no such moment to read.

        sinks: by the index of a table in the plan.
        """

    def stage_small(
        self, plan: WindowPlan, sinks: Mapping[int, StagingSink]
    ) -> Mapping[int, StagedRows | FloodmarkError]:
        """Stage those of the tables that have few changes, with few tasks and connections for all of them.

        sinks: by the index of a table in the plan. Return the result of each table that was staged so, which may be an
        error that does not stop the others; none for a table that ``stage_table`` has to stage.
        """

    def read_chunk_bounds(self, plan: WindowPlan, index: int) -> Sequence[Bound]:
        """Return the keys at which the server cuts table ``index`` for a first load."""

    def find_double_key(self, plan: WindowPlan, index: int) -> tuple[Bound, int] | None:
        """Return a key that several rows of table ``index`` have at the source, and their number; None for no key."""

    def stage_chunks(
        self, plan: WindowPlan, index: int, chunks: Sequence[LoadChunk], parallel_reads: int, sink: StagingSink
    ) -> Sequence[StagedPart]:
        """Read chunks of table ``index``, so many at a time. The part of a chunk has the chunk's number."""
