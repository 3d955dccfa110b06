"""``SharedPassStager``: the one pass of Spark's job over a stream for several tables, in this process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import Row

from floodmark.core.errors import FloodmarkError
from floodmark.core.plan import TablePlan, WindowPlan
from floodmark.spark import shared_pass
from floodmark.spark.shared_pass import PassTable
from floodmark.sync.ports import SharedReader, StagedRows, StagingSink
from in_process_stager import InProcessStager

_NO_LIMIT = 1 << 40
OpenPass = Callable[[Mapping[int, TablePlan]], SharedReader]


@dataclass
class SharedPassStager(InProcessStager):
    """``Stager``. The changes of a window are netted in one task, or go through the shuffle of a large window."""

    open_shared: OpenPass | None = None
    readers: int = 0
    """The tasks that read a large window; 0 for a window that one task stages."""

    def stage_small(  # type: ignore[override]  # the port has it so
        self, plan: WindowPlan, sinks: Mapping[int, StagingSink]
    ) -> Mapping[int, StagedRows | FloodmarkError]:
        assert self.open_shared is not None
        wanted = {index: plan.tables[index] for index in sinks}
        tables = [PassTable(i, each.source, self._writer(plan, i, sinks[i])) for i, each in wanted.items()]
        reader = self.open_shared(wanted)
        if not self.readers:
            return _results(tables, list(shared_pass._stage_in_memory(reader, _NO_LIMIT, tables)))
        readers = reader.split(self.readers)
        results = _stage_packed(readers, tables)
        if not readers[1:]:
            return results
        staged = {number: each for number, each in results.items() if isinstance(each, StagedRows)}
        united = reader.unite({number: each.members for number, each in staged.items()})
        if united is None:
            return _stage_packed([reader], tables)
        for number, each in staged.items():
            results[number] = StagedRows(each.read_rows, each.staged_rows, each.parts, tuple(united[number]))
        return results


def _stage_packed(
    readers: Sequence[SharedReader], tables: Sequence[PassTable]
) -> dict[int, StagedRows | FloodmarkError]:
    """Read and stage as Spark does, which puts the rows of a bucket into one task, one after the other."""
    packed = pa.Table.from_batches([batch for each in readers for batch in shared_pass._pack(tables, [each])])
    return _results(tables, list(shared_pass._write_packed(tables, iter(packed.sort_by("bucket").to_batches()))))


def _results(tables: Sequence[PassTable], batches: Sequence[pa.RecordBatch]) -> dict[int, StagedRows | FloodmarkError]:
    return shared_pass._results(tables, [Row(**row) for batch in batches for row in batch.to_pylist()])
