"""Net changes: all changes of a key in a window, reduced to one.

``gather_changes`` makes Spark bring the changes of a key into one task; ``collapse_changes`` reduces them there, on
Arrow batches that contain all changes of their keys. Three ways were measured on a million changes: a hash aggregation
(``max_by`` over a struct: Spark aggregates structs by sorting them, twice), Spark's own sort followed by a stream over
it, and this one, which is the fastest by far (see ``packing``).

A key whose first change is an insert and whose last is a delete still yields a delete: the merge then writes a
tombstone, and no older window can bring the row back.

Where an update gave a row another key in place, the image before the update is read as well: it is a delete of the old
key. One statement may pass keys on from row to row (SET n = n + 1). Then one row takes a key before another row gives
it up, and the order of the changes suggests that the key no longer exists. It does exist: the row that gave it up is
another row, with other values. Rows that differ only in their keys and in LOBs cannot be distinguished in this way.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from floodmark.core.change import Operation
from floodmark.core.naming import LSN_COLUMN, OPERATION_COLUMN, keep_column
from floodmark.core.position import POSITION_BYTES
from floodmark.core.window.columns import ValueColumn
from floodmark.sync.ports.reader import RowShape

_DROP_AT = 2
"""The average number of changes per key from which it pays to sort a batch in order to drop changes."""

_BRINGS = (Operation.INSERT, Operation.MOVED)
_TAKES = (Operation.DELETE, Operation.BEFORE_UPDATE)

_Positions = npt.NDArray[np.int64]
_Flags = npt.NDArray[np.bool_]


def gather_changes(packed: DataFrame) -> DataFrame:
    """Return the rows with all rows of a key in one partition, and those of a bucket one after the other."""
    return packed.repartition("bucket").sortWithinPartitions("bucket")


def collapse_changes(batches: Iterable[pa.RecordBatch], shape: RowShape) -> Iterator[pa.RecordBatch]:
    """Yield one row per key: the stored columns, ``__lsn``, ``__op``, keep flags.

    Each batch contains all changes of its keys. The values are those of the last change; the value of a LOB is that of
    the last change that has it.
    """
    collapse = _Collapse.of(shape)
    for batch in batches:
        if batch.num_rows:
            yield collapse.net(batch)


def drop_superseded_changes(batch: pa.RecordBatch, shape: RowShape) -> pa.RecordBatch:
    """Return a batch without the changes that no net change needs, whatever other batches contain.

    For each key, its first and last change in the batch and the last one that has the value of a LOB are enough. So a
    row that changes often costs no more than others.
    """
    if _distinct_keys(batch, shape.key) * _DROP_AT > batch.num_rows:
        return batch
    return _Collapse.of(shape).drop_superseded(batch)


@dataclass(frozen=True, slots=True)
class _Collapse:
    """The collapsing of the changes of a table."""

    shape: RowShape
    compared: tuple[str, ...]
    """The columns that distinguish rows: all but the key and LOBs."""
    not_null: frozenset[str]
    """The columns of which NULL in a delete is no value."""

    @classmethod
    def of(cls, shape: RowShape) -> _Collapse:
        others = (column.name for column in shape.values if not column.is_optional and column.name not in shape.key)
        not_null = (column.name for column in shape.values if not column.is_nullable)
        return cls(shape, tuple(others), frozenset(not_null).difference(shape.key))

    def net(self, changes: pa.RecordBatch) -> pa.RecordBatch:
        rows, starts, ends = self._runs(changes)
        ends = self._lasting(rows, starts, ends)
        last = rows.take(pa.array(ends))
        first_operation = _numpy(rows.column(self.shape.operation))[starts]
        net = net_operations(first_operation, _numpy(last.column(self.shape.operation)))
        values = {column.name: last.column(column.name) for column in self.shape.values}
        for name in self.not_null:
            if values[name].null_count:
                found, where = _last_true(_numpy(rows.column(name).is_valid()), starts, ends)
                found &= net == Operation.DELETE
                values[name] = rows.column(name).take(pa.array(np.where(found, where, ends)))
        keep = {}
        for column in self.shape.optional:
            found, where = _last_true(has_value(rows, column, self.shape), starts, ends)
            values[column.name] = rows.column(column.name).take(pa.array(where, mask=~found))
            keep[keep_column(column.name)] = pa.array(~found)
        own = {LSN_COLUMN: last.column(self.shape.position), OPERATION_COLUMN: pa.array(net)}
        columns = values | own | keep
        return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))

    def drop_superseded(self, changes: pa.RecordBatch) -> pa.RecordBatch:
        rows, starts, ends = self._runs(changes)
        # ``_lasting`` needs the second to last.
        needed = [starts, ends, np.maximum(starts, ends - 1)]
        for column in self.shape.optional:
            found, where = _last_true(has_value(rows, column, self.shape), starts, ends)
            needed.append(where[found])
        return rows.take(pa.array(np.unique(np.concatenate(needed))))

    def _runs(self, changes: pa.RecordBatch) -> tuple[pa.RecordBatch, _Positions, _Positions]:
        """Return the changes sorted by key and order, and the first and the last row of each key.

        A stream may bring a change again: it counts once, or ``_lasting`` would compare it with itself.
        """
        rows = changes.sort_by([(name, "ascending") for name in (*self.shape.key, *self.shape.order)])
        some, others = rows.slice(0, rows.num_rows - 1), rows.slice(1)
        differs = _differ(some, others, self.shape.key)
        if self.shape.order and not differs.all():
            comes_again = ~differs & ~_differ(some, others, self.shape.order)
            if comes_again.any():
                rows = rows.filter(pa.array(np.concatenate(([True], ~comes_again))))
                differs = differs[~comes_again]
        starts = np.concatenate(([0], np.flatnonzero(differs) + 1))
        return rows, starts, np.append(starts[1:], rows.num_rows) - 1

    def _lasting(self, rows: pa.RecordBatch, starts: _Positions, ends: _Positions) -> _Positions:
        """Return ``ends``, or the change before where the last change removed another row that had the key earlier."""
        operations = _numpy(rows.column(self.shape.operation))
        before, last = operations[ends - 1], operations[ends]
        passed_on = (last == Operation.BEFORE_UPDATE) & ((before == Operation.MOVED) | (before == Operation.INSERT))
        passed_on |= (last == Operation.DELETE) & (before == Operation.MOVED)
        suspects = np.flatnonzero(passed_on & (ends > starts))
        if len(suspects) == 0:
            return ends
        came, left = (rows.take(pa.array(ends[suspects] - back)) for back in (1, 0))
        # A statement is part of one transaction. A position may have a place in it, behind the LSN of the commit.
        commits = (pc.binary_slice(rows.column(self.shape.position), 0, POSITION_BYTES) for rows in (came, left))
        another = _numpy(pc.equal(*commits)) & _differ(came, left, self.compared, self.not_null)
        lasting = ends.copy()
        lasting[suspects[another]] -= 1
        return lasting


def _differ(
    some: pa.RecordBatch, others: pa.RecordBatch, columns: Sequence[str], not_null: Collection[str] = ()
) -> _Flags:
    """Return for each row whether the batches differ in one of the columns. NULL in ``not_null`` is no difference."""
    differs = np.zeros(some.num_rows, dtype=np.bool_)
    for name in columns:
        one, other = some.column(name), others.column(name)
        equal = pc.equal(one, other)
        if name in not_null:
            equal = pc.fill_null(equal, fill_value=True)
        elif equal.null_count:  # two NULLs are one value; NULL and a value are not
            equal = pc.if_else(equal.is_valid(), equal, pc.and_(one.is_null(), other.is_null()))
        differs |= ~_numpy(equal)
    return differs


def net_operations(first: npt.NDArray[np.int32], last: npt.NDArray[np.int32]) -> npt.NDArray[np.int16]:
    """Return the net operation of each key in the window, from its first and last operation."""
    is_new, is_gone = np.isin(first, _BRINGS), np.isin(last, _TAKES)
    came = np.where(is_new, np.int16(Operation.INSERT), np.int16(Operation.UPDATE))
    return np.where(is_gone, np.int16(Operation.DELETE), came).astype(np.int16)


def has_value(batch: pa.RecordBatch, column: ValueColumn, shape: RowShape) -> _Flags:
    """Return for each change row whether it has the LOB's value, which may be NULL, or leaves it out.

    An insert has it, and so has every row where it is not NULL. NULL in an update is a value where the mask shows that
    the column changed, or where there is no mask (net changes of a server with CLR off, which are only used for types
    that an update always writes). NULL in a delete is a value unless the type (text, ntext, image) is never written
    there. An image before an update has no new value. A row that got another key has all its values: earlier values of
    that key belong to another row.
    """
    operation = _numpy(batch.column(shape.operation))
    holds: _Flags = _numpy(batch.column(column.name).is_valid()) | np.isin(operation, _BRINGS)
    masks = batch.column(shape.mask)
    holds |= (operation == Operation.UPDATE) & (mask_bits(masks, column.ordinal) | _numpy(masks.is_null()))
    if column.keeps_value_on_delete:
        holds |= operation == Operation.DELETE
    holds &= operation != Operation.BEFORE_UPDATE
    return holds


def mask_bits(masks: pa.Array, ordinal: int) -> _Flags:
    """Return ``core.change.is_changed`` for an array of masks of one length. A NULL mask has no bit set."""
    lengths = pc.unique(pc.binary_length(masks).drop_null())
    if len(lengths) == 0:
        return np.zeros(len(masks), dtype=np.bool_)
    if len(lengths) > 1:
        raise ValueError(f"update masks of one instance must have one length, not {lengths.to_pylist()}")
    width = lengths[0].as_py()
    byte, bit = divmod(ordinal - 1, 8)
    if byte >= width:
        return np.zeros(len(masks), dtype=np.bool_)
    dense = pc.fill_null(masks, bytes(width)).cast(pa.binary(width))
    octets = np.frombuffer(dense.buffers()[1], dtype=np.uint8)[dense.offset * width :][: len(masks) * width]
    flags: _Flags = (octets.reshape(-1, width)[:, width - 1 - byte] >> bit & 1).astype(np.bool_)
    return flags


def _last_true(flags: _Flags, starts: _Positions, ends: _Positions) -> tuple[_Flags, _Positions]:
    """Return for each run whether a flag is set in it, and the position of the last one."""
    latest = np.maximum.accumulate(np.where(flags, np.arange(len(flags)), -1))[ends]
    return latest >= starts, latest


def _numpy(array: pa.Array) -> Any:
    return array.to_numpy(zero_copy_only=False)


def _distinct_keys(batch: pa.RecordBatch, key: tuple[str, ...]) -> int:
    """Return a lower bound of the number of keys: that of the column with the most values. Exact for one column."""
    return max(int(pc.count_distinct(batch.column(name)).as_py()) for name in key)
