"""Net changes: of all changes of a key in a window, what is left of them.

``sort_changes`` brings the changes of a key together and in order, by Spark, which spills what does not fit;
``collapse_changes`` is a stream over Arrow batches that follows it inside the same task, so that its memory is that of
a batch. A hash aggregation (``max_by`` over a struct) was measured against it and is slower: Spark aggregates structs
by sorting them too, and twice.

A key whose first change is an insert and whose last is a delete still yields a delete: the merge then leaves a
tombstone, and no older window can bring the row back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from floodmark.core.change import Operation
from floodmark.core.naming import LSN_COLUMN, OPERATION_COLUMN, keep_column
from floodmark.core.window import TablePlan
from floodmark.spark.columns import CarriedColumn, carried_columns
from floodmark.spark.statements import OPERATION, START_LSN, UPDATE_MASK, order_columns

_FIRST = "first operation"
_Positions = npt.NDArray[np.int64]
_Flags = npt.NDArray[np.bool_]


def sort_changes(changes: DataFrame, plan: TablePlan) -> DataFrame:
    """All changes of a key in one partition, one after the other, in the order in which they happened."""
    key = [changes[_quoted(name)] for name in plan.instance.table.key]
    order = [changes[_quoted(name)] for name in order_columns(plan)]
    return changes.repartition(*key).sortWithinPartitions(*key, *order)


def collapse_changes(batches: Iterable[pa.RecordBatch], plan: TablePlan) -> Iterator[pa.RecordBatch]:
    """One row per key, from batches sorted by ``sort_changes``: the stored columns, ``__lsn``, ``__op``, keep flags.

    The values are those of the last change; of a LOB, those of the last change that held it. The last key of a batch
    may go on in the next one: its row so far is held back and joins that.
    """
    collapse = _Collapse.of(plan)
    held: pa.RecordBatch | None = None
    for batch in batches:
        if batch.num_rows == 0:
            continue
        rows = collapse.prepare(batch)
        if held is not None:
            rows = pa.concat_batches([held, rows])
        rows = collapse.reduce(rows)
        if rows.num_rows > 1:
            yield collapse.finish(rows.slice(0, rows.num_rows - 1))
        held = rows.slice(rows.num_rows - 1)
    if held is not None:
        yield collapse.finish(held)


@dataclass(frozen=True, slots=True)
class _Collapse:
    """key: names of the key columns. lobs: columns that a change row may leave out."""

    key: tuple[str, ...]
    columns: tuple[CarriedColumn, ...]
    lobs: tuple[CarriedColumn, ...]

    @classmethod
    def of(cls, plan: TablePlan) -> _Collapse:
        columns = carried_columns(plan.instance.table, plan.temporal)
        return cls(plan.instance.table.key, columns, tuple(column for column in columns if column.is_lob))

    def prepare(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The columns that are needed from here on, with the operation of each row as its key's first so far."""
        operation = batch.column(OPERATION)
        arrays = [batch.column(column.name) for column in self.columns]
        arrays += [batch.column(START_LSN), operation, operation]
        names = [column.name for column in self.columns] + [START_LSN, OPERATION, _FIRST]
        for column in self.lobs:
            arrays.append(pa.array(has_value(batch, column)))
            names.append(keep_column(column.name))
        return pa.RecordBatch.from_arrays(arrays, names=names)

    def reduce(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """One row per run of equal keys; afterwards ``keep_column`` says whether the LOB's value was found."""
        starts = self._starts(rows)
        ends = np.append(starts[1:], rows.num_rows) - 1
        reduced = rows if len(starts) == rows.num_rows else rows.take(pa.array(ends))
        if reduced is rows:
            return rows
        reduced = _with(reduced, _FIRST, rows.column(_FIRST).take(pa.array(starts)))
        for column in self.lobs:
            keep = keep_column(column.name)
            found, where = _last_true(_numpy(rows.column(keep)), starts, ends)
            values = rows.column(column.name).take(pa.array(where, mask=~found))
            reduced = _with(_with(reduced, column.name, values), keep, pa.array(found))
        return reduced

    def finish(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        net = net_operations(_numpy(rows.column(_FIRST)), _numpy(rows.column(OPERATION)))
        arrays = [rows.column(column.name) for column in self.columns]
        arrays += [rows.column(START_LSN), pa.array(net)]
        names = [column.name for column in self.columns] + [LSN_COLUMN, OPERATION_COLUMN]
        for column in self.lobs:
            keep = keep_column(column.name)
            arrays.append(pc.invert(rows.column(keep)))
            names.append(keep)
        return pa.RecordBatch.from_arrays(arrays, names=names)

    def _starts(self, rows: pa.RecordBatch) -> _Positions:
        """Where each run of equal keys begins."""
        differs = np.zeros(rows.num_rows - 1, dtype=np.bool_)
        for name in self.key:
            column = rows.column(name)
            before, after = column.slice(0, rows.num_rows - 1), column.slice(1)
            equal = pc.equal(before, after)
            if equal.null_count:  # two NULLs are one key; NULL and a value are not
                equal = pc.if_else(equal.is_valid(), equal, pc.and_(before.is_null(), after.is_null()))
            differs |= ~_numpy(equal)
        return np.concatenate(([0], np.flatnonzero(differs) + 1))


def net_operations(first: npt.NDArray[np.int32], last: npt.NDArray[np.int32]) -> npt.NDArray[np.int16]:
    """What happened to a key between the beginning and the end of the window, by its first and last operation."""
    came = np.where(first == Operation.INSERT, np.int16(Operation.INSERT), np.int16(Operation.UPDATE))
    return np.where(last == Operation.DELETE, np.int16(Operation.DELETE), came).astype(np.int16)


def has_value(batch: pa.RecordBatch, column: CarriedColumn) -> _Flags:
    """For each change row, whether it holds the LOB's value, which may be NULL, or leaves it out.

    An insert holds it, and so does whatever is not NULL. NULL in an update is a value where the mask says that the
    column changed, or where there is no mask (net changes of a server with CLR off; it is asked only for types that an
    update always writes). NULL in a delete is one unless the type (text, ntext, image) is never written there.
    """
    operation = _numpy(batch.column(OPERATION))
    holds: _Flags = _numpy(batch.column(column.name).is_valid()) | (operation == Operation.INSERT)
    masks = batch.column(UPDATE_MASK)
    holds |= (operation == Operation.UPDATE) & (mask_bits(masks, column.ordinal) | _numpy(masks.is_null()))
    if column.keeps_value_on_delete:
        holds |= operation == Operation.DELETE
    return holds


def mask_bits(masks: pa.Array, ordinal: int) -> _Flags:
    """``core.change.is_changed`` for an array of masks of one length. A NULL mask has no bit set."""
    lengths = pc.unique(pc.binary_length(masks).drop_null())
    if len(lengths) == 0:
        return np.zeros(len(masks), dtype=np.bool_)
    if len(lengths) > 1:
        raise ValueError(f"update masks of one instance have one length, not {lengths.to_pylist()}")
    width = lengths[0].as_py()
    byte, bit = divmod(ordinal - 1, 8)
    if byte >= width:
        return np.zeros(len(masks), dtype=np.bool_)
    dense = pc.fill_null(masks, bytes(width)).cast(pa.binary(width))
    octets = np.frombuffer(dense.buffers()[1], dtype=np.uint8)[dense.offset * width :][: len(masks) * width]
    flags: _Flags = (octets.reshape(-1, width)[:, width - 1 - byte] >> bit & 1).astype(np.bool_)
    return flags


def _last_true(flags: _Flags, starts: _Positions, ends: _Positions) -> tuple[_Flags, _Positions]:
    """For each run, whether a flag is set in it and where the last one is."""
    latest = np.maximum.accumulate(np.where(flags, np.arange(len(flags)), -1))[ends]
    return latest >= starts, latest


def _with(batch: pa.RecordBatch, name: str, values: pa.Array) -> pa.RecordBatch:
    return batch.set_column(batch.schema.get_field_index(name), name, values)


def _numpy(array: pa.Array) -> Any:
    return array.to_numpy(zero_copy_only=False)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def describe_order(plan: TablePlan) -> Sequence[str]:
    """What the log says of the order, if there is anything to say."""
    if plan.instance.has_command_id:
        return ()
    return (
        f"{plan.source}: the change table has no __$command_id; changes of one transaction are ordered by __$seqval, "
        "which is not always the order in which they happened",
    )
