"""``TriedTwice``: an engine that runs each task twice, as a cluster does that believes the first try to be lost."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeVar

import pyarrow as pa

from floodmark.core.errors import FloodmarkError
from floodmark.core.plan import Bound, LoadChunk, WindowPlan
from floodmark.sync.ports import StagedPart, StagedRows, StagingSink
from in_process_stager import InProcessStager

_Result = TypeVar("_Result")


class Order(Enum):
    """The order in which two tries commit. The second reads after the first."""

    FIRST_IS_LOST = "the first commits first, and nobody hears of it"
    FIRST_WAKES_UP = "the second commits first and is heard, then the first commits"
    SECOND_IS_LATE = "the first commits first and is heard, then the second commits"


@dataclass(frozen=True)
class _PausedSink:
    """A sink that calls something when it has all rows of a part, before it commits them."""

    sink: StagingSink
    pause: Callable[[], None]

    def write(self, part: int, batches: Iterator[pa.RecordBatch]) -> StagedPart:
        def paused() -> Iterator[pa.RecordBatch]:
            yield from batches
            self.pause()

        return self.sink.write(part, paused())


@dataclass(frozen=True)
class _SpoilingSink:
    """A sink that writes 'unheard' in the place of the texts of a column."""

    sink: StagingSink
    column: str

    def write(self, part: int, batches: Iterator[pa.RecordBatch]) -> StagedPart:
        return self.sink.write(part, map(self._spoiled, batches))

    def _spoiled(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        place = batch.schema.get_field_index(self.column)
        if place < 0:
            return batch
        field = batch.schema.field(place)
        return batch.set_column(place, field, pa.array(["unheard"] * batch.num_rows, field.type))


@dataclass
class TriedTwice:
    """``sync.ports.Stager``. The driver hears of one of the tries."""

    stager: InProcessStager
    order: Order
    between: Callable[[], None]
    """Called after the first try of the tasks has read and before the second does."""
    spoils: str = ""
    """A column of texts in which the try that the driver does not hear of writes 'unheard'."""
    is_between: bool = field(default=False, init=False)
    _alone: threading.Lock = field(default_factory=threading.Lock, init=False)

    def stage_changes(
        self, plan: WindowPlan, sinks: Mapping[int, StagingSink]
    ) -> Mapping[int, StagedRows | FloodmarkError]:
        return self._twice(sinks, lambda given: self.stager.stage_changes(plan, given))

    def read_chunk_bounds(self, plan: WindowPlan, index: int) -> Sequence[Bound]:
        return self.stager.read_chunk_bounds(plan, index)

    def find_double_key(self, plan: WindowPlan, index: int) -> tuple[Bound, int] | None:
        return self.stager.find_double_key(plan, index)

    def stage_chunks(
        self, plan: WindowPlan, index: int, chunks: Sequence[LoadChunk], parallel_reads: int, sink: StagingSink
    ) -> Sequence[StagedPart]:
        return self.stager.stage_chunks(plan, index, chunks, parallel_reads, sink)

    def _let_change(self) -> None:
        # Tables are staged by several threads, and a client of the source has one connection.
        with self._alone:
            self.between()

    def _twice(
        self, sinks: Mapping[int, StagingSink], attempt: Callable[[Mapping[int, StagingSink]], _Result]
    ) -> _Result:
        unheard = {index: _SpoilingSink(sink, self.spoils) for index, sink in sinks.items()} if self.spoils else sinks
        if self.order is not Order.FIRST_WAKES_UP:
            is_lost = self.order is Order.FIRST_IS_LOST
            first = attempt(unheard if is_lost else sinks)
            self._let_change()
            second = attempt(sinks if is_lost else unheard)
            return second if is_lost else first
        heard: list[_Result] = []

        def meanwhile() -> None:
            if not self.is_between:
                self.is_between = True
                self._let_change()
                heard.append(attempt(sinks))

        first = attempt({index: _PausedSink(sink, meanwhile) for index, sink in unheard.items()})
        # A table without changes writes nothing, so that its tries do not differ.
        return heard[0] if heard else first
