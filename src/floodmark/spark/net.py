"""Net changes: all changes of a key in a window, reduced to one, and the batches that carry them through Spark."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from floodmark.core.plan import ValueColumn
from floodmark.core.position import POSITION_BYTES
from floodmark.core.schema import (
    CHANGED_COLUMN,
    COMMAND_COLUMN,
    COMMITTED_COLUMN,
    OPERATION_COLUMN,
    POSITION_COLUMN,
    SEQUENCE_COLUMN,
    Operation,
    is_changed,
    keep_column,
)
from floodmark.sync.ports import RowShape

# --------------------------------------------------------------------------------------------------------------------
# Net changes: all changes of a key in a window, reduced to one.
#
# ``gather_changes`` makes Spark bring the changes of a key into one task; ``collapse_changes`` reduces them there, on
# Arrow batches that contain all changes of their keys. Three ways were measured on a million changes: a hash
# aggregation (``max_by`` over a struct: Spark aggregates structs by sorting them, twice), Spark's own sort followed by
# a stream over it, and this one, which is the fastest by far (see ``packing``).
#
# A key whose first change is an insert and whose last is a delete still yields a delete: the merge then writes a
# tombstone, and no older window can bring the row back.
#
# Where an update gave a row another key in place, the image before the update is read as well: it is a delete of the
# old key. One statement may pass keys on from row to row (SET n = n + 1). Then one row takes a key before another row
# gives it up, and the order of the changes suggests that the key no longer exists. It does exist: the row that gave it
# up is another row, with other values. Rows that differ only in their keys and in LOBs cannot be distinguished in this
# way.


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
    """Yield one row per key: the stored columns, ``__lsn``, ``__op``, keep flags; ``__committed_at`` where it is read.

    Each batch contains all changes of its keys. The values are those of the last change; the value of a LOB is that of
    the last change that has it. A shape with the position in its key has a row per key and commit, and none for a row
    that was inserted and deleted in one commit.
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
        own = {POSITION_COLUMN: last.column(self.shape.position), OPERATION_COLUMN: pa.array(net)}
        if self.shape.committed_at:
            own[COMMITTED_COLUMN] = last.column(self.shape.committed_at).cast(_MOMENT)
        columns = values | own | keep
        found = pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
        if self.shape.position not in self.shape.key:
            return found
        return found.filter(pa.array((net != Operation.DELETE) | _existed_before(rows, starts, self.shape)))

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


def _existed_before(rows: pa.RecordBatch, starts: _Positions, shape: RowShape) -> _Flags:
    """Return for each run that ends without its row whether the row was there before the commit.

    The first change does not show it: a statement that passes keys on may give the key to a row before another one
    leaves it. So the changes that bring and those that take the key are counted.
    """
    operations = _numpy(rows.column(shape.operation))
    balance = np.isin(operations, _TAKES).astype(np.int64) - np.isin(operations, _BRINGS)
    flags: _Flags = np.add.reduceat(balance, starts) > 0
    return flags


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
    """Return ``core.schema.is_changed`` for an array of masks of one length. A NULL mask has no bit set."""
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


# --------------------------------------------------------------------------------------------------------------------
# Reads that need no collapsing, in the shape of ``net.collapse_changes``: stored columns, ``__lsn``, ``__op``, flags.
#
# The rows of a first load have no changes, and the server's own net changes are net already.


Batches = Iterable[pa.RecordBatch]


def stamp_first_load(batches: Batches, shape: RowShape, rows_at: bytes) -> Iterator[pa.RecordBatch]:
    """Yield rows of the table itself as inserts at a position."""
    for batch in batches:
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        if shape.committed_at:
            columns[COMMITTED_COLUMN] = columns.pop(shape.committed_at).cast(_MOMENT)
        columns[POSITION_COLUMN] = pa.repeat(rows_at, batch.num_rows)
        columns[OPERATION_COLUMN] = _operations(Operation.INSERT, batch.num_rows)
        columns |= {keep_column(column.name): pa.repeat(False, batch.num_rows) for column in shape.optional}
        yield pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def adapt_net_changes(batches: Batches, shape: RowShape) -> Iterator[pa.RecordBatch]:
    """Yield rows of the server's net changes function."""
    columns, optional = shape.values, shape.optional
    for batch in batches:
        arrays = [batch.column(column.name) for column in columns]
        arrays += [batch.column(shape.position), batch.column(shape.operation).cast(pa.int16())]
        arrays += [pa.array(~has_value(batch, column, shape)) for column in optional]
        names = [*(column.name for column in columns), POSITION_COLUMN, OPERATION_COLUMN]
        names += [keep_column(column.name) for column in optional]
        if shape.committed_at:
            arrays.append(batch.column(shape.committed_at).cast(_MOMENT))
            names.append(COMMITTED_COLUMN)
        yield pa.RecordBatch.from_arrays(arrays, names=names)


def _operations(operation: Operation, rows: int) -> pa.Array:
    return pa.repeat(pa.scalar(operation.value, pa.int16()), rows)


# --------------------------------------------------------------------------------------------------------------------
# The rows of a log: every change, and the rows of a load, each with its place.


_UPDATES = (Operation.BEFORE_UPDATE.value, Operation.UPDATE.value)
_MOMENT = pa.timestamp("us", tz="UTC")
_NO_SEQUENCE = pa.scalar(bytes(POSITION_BYTES), pa.binary())
"""The place in a statement of a change that has none. Its key is part of its place in the log."""
_ROW_BYTES = 6
"""The bytes of the number of a row in its chunk; those before them have the number of the chunk."""


def list_changes(batches: Batches, shape: RowShape) -> Iterator[pa.RecordBatch]:
    """Yield all changes, in no order: stored columns, ``__lsn``, ``__op``, and those that only a log has.

    ``__changed`` has the names of the columns that an update changed. It is NULL for any other operation, and where the
    source does not show them.
    ``__committed_at`` is NULL where the source does not show it.
    """
    for batch in batches:
        columns = {column.name: batch.column(column.name) for column in shape.values}
        columns[POSITION_COLUMN] = batch.column(shape.position)
        columns[OPERATION_COLUMN] = batch.column(shape.operation).cast(pa.int16())
        command = batch.column(shape.command) if shape.command else _zeros(batch.num_rows)
        sequence = batch.column(shape.sequence) if shape.sequence else pa.repeat(_NO_SEQUENCE, batch.num_rows)
        columns |= {COMMAND_COLUMN: command, SEQUENCE_COLUMN: sequence}
        columns[CHANGED_COLUMN] = _changed_columns(batch, shape, columns[OPERATION_COLUMN])
        at = batch.column(shape.committed_at) if shape.committed_at else pa.nulls(batch.num_rows)
        columns[COMMITTED_COLUMN] = at.cast(_MOMENT)
        yield pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def drop_repeated_changes(batches: Batches, shape: RowShape) -> Iterator[pa.RecordBatch]:
    """Yield batches without the changes that they have again. A change is known by what orders it."""
    for batch in batches:
        rows = batch.sort_by([(name, "ascending") for name in shape.order])
        if rows.num_rows:
            some, others = rows.slice(0, rows.num_rows - 1), rows.slice(1)
            rows = rows.filter(pa.array(np.concatenate(([True], _differ(some, others, shape.order)))))
        yield rows


def stamp_loaded(batches: Batches, rows_at: bytes, chunk: int) -> Iterator[pa.RecordBatch]:
    """Yield rows of a chunk of the table itself, as rows of a log at a position."""
    rows = 0
    for batch in batches:
        numbers = np.arange(rows, rows + batch.num_rows, dtype=">u8")
        rows += batch.num_rows
        octets = np.empty((batch.num_rows, POSITION_BYTES), np.uint8)
        octets[:, :-_ROW_BYTES] = np.frombuffer(chunk.to_bytes(POSITION_BYTES - _ROW_BYTES), np.uint8)
        octets[:, -_ROW_BYTES:] = numbers.view(np.uint8).reshape(-1, 8)[:, -_ROW_BYTES:]
        buffers = [None, pa.py_buffer(octets)]
        places = pa.FixedSizeBinaryArray.from_buffers(pa.binary(POSITION_BYTES), batch.num_rows, buffers)
        own = {
            POSITION_COLUMN: pa.repeat(rows_at, batch.num_rows),
            OPERATION_COLUMN: _operations(Operation.LOADED, batch.num_rows),
            COMMAND_COLUMN: _zeros(batch.num_rows),
            SEQUENCE_COLUMN: places.cast(pa.binary()),
            CHANGED_COLUMN: pa.nulls(batch.num_rows, pa.list_(pa.string())),
            COMMITTED_COLUMN: pa.nulls(batch.num_rows, _MOMENT),
        }
        names = [*batch.schema.names, *own]
        yield pa.RecordBatch.from_arrays([*batch.columns, *own.values()], names=names)


def _zeros(rows: int) -> pa.Array:
    return pa.repeat(pa.scalar(0, pa.int32()), rows)


def _changed_columns(batch: pa.RecordBatch, shape: RowShape, operations: pa.Array) -> pa.Array:
    """Return the names for each row. Few masks differ, so that each is read once. operations: those of the log."""
    masks = batch.column(shape.mask).dictionary_encode()
    named = [
        [column.name for column in shape.values if is_changed(mask, column.ordinal)]
        for mask in masks.dictionary.to_pylist()
    ]
    # An update that moves a key is none: it is a delete and an insert.
    is_update = pc.is_in(operations, pa.array(_UPDATES, operations.type))
    return pa.array(named, pa.list_(pa.string())).take(pc.if_else(is_update, masks.indices, None))


# --------------------------------------------------------------------------------------------------------------------
# Arrow batches as values of a DataFrame, so that rows pass through Spark without conversion to Spark's row format.
#
# Encoding and decoding Spark's row format costs several times more than all other work on a change row. Spark runs
# tasks, brings the changes of a key together, and spills what does not fit into memory: this works as well with a few
# hundred batches as with a million rows. ``pack`` divides rows into buckets by a hash of their key, Spark shuffles by
# bucket, and ``unpack`` returns batches that contain all rows of their keys.


BUCKETS = 128
PACKED_SCHEMA = "bucket int, source_rows int, rows binary"
"""The columns of packed rows. rows: a record batch as an Arrow IPC stream. source_rows: the rows read for it."""

_PACKED = pa.schema([("bucket", pa.int32()), ("source_rows", pa.int32()), ("rows", pa.binary())])
_NOTES = -1
"""The bucket of notes, which are no rows of a table."""
_FLUSH_BYTES = 4 << 20
_GROUP_BYTES = 2 << 20
_PIECES = 16
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_BUCKET_SHIFT = np.uint64(64 - BUCKETS.bit_length() + 1)
_POSITIONS = np.cumprod(np.full(256, 0xBF58476D1CE4E5B9, dtype=np.uint64))
"""A factor for each position in a text; factors repeat after 256 positions."""

_Hashes = npt.NDArray[np.uint64]
_DropSuperseded = Callable[[pa.RecordBatch], pa.RecordBatch]
_Piece = tuple[int, int, pa.RecordBatch]


class Entry(NamedTuple):
    """A packed row."""

    bucket: int
    source_rows: int
    rows: pa.Buffer

    @property
    def batches(self) -> list[pa.RecordBatch]:
        """Return the rows."""
        with pa.ipc.open_stream(self.rows) as reader:
            return list(reader)


def pack(
    batches: Iterable[pa.RecordBatch], key: tuple[str, ...], drop_superseded: _DropSuperseded, first_bucket: int = 0
) -> Iterator[pa.RecordBatch]:
    """Yield rows in ``PACKED_SCHEMA``, some megabytes at a time, in buckets by key.

    drop_superseded: removes rows that no net change needs. first_bucket: the number of the first of the buckets.
    """
    for flush in _collected(batches, _FLUSH_BYTES):
        source_rows = np.bincount(_buckets(flush, key), minlength=BUCKETS)
        rows = drop_superseded(flush)
        buckets = _buckets(rows, key)
        ordered = rows.take(pa.array(np.argsort(buckets, kind="stable")))
        ends = np.cumsum(np.bincount(buckets, minlength=BUCKETS)).tolist()
        pieces = []
        for bucket in np.flatnonzero(source_rows).tolist():
            begin = ends[bucket - 1] if bucket else 0
            rows_of_bucket = ordered.slice(begin, ends[bucket] - begin)
            pieces.append((first_bucket + bucket, int(source_rows[bucket]), rows_of_bucket))
        for first in range(0, len(pieces), _PIECES):
            yield _packed(pieces[first : first + _PIECES])


def pack_note(note: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch among packed rows that is not divided into buckets, and that no others join."""
    return _packed([(_NOTES, 0, note)])


def entries(packed: Iterable[pa.RecordBatch]) -> Iterator[Entry]:
    """Yield packed rows one by one."""
    for batch in packed:
        for row in range(batch.num_rows):
            bucket, source_rows, rows = (column[row] for column in batch.columns)
            yield Entry(bucket.as_py(), source_rows.as_py(), rows.as_buffer())


def unpack(packed: Iterable[Entry]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a task. Those of one bucket must follow each other; they become part of one batch."""
    held: list[pa.RecordBatch] = []
    last = None
    for entry in packed:
        if entry.bucket != last and sum(batch.nbytes for batch in held) >= _GROUP_BYTES:
            yield pa.concat_batches(held)
            held = []
        held += entry.batches
        last = entry.bucket
    if held:
        yield pa.concat_batches(held)


def key_hashes(rows: pa.RecordBatch, key: tuple[str, ...]) -> _Hashes:
    """Return the hash of each row's key. Equal keys have equal hashes, in every process."""
    hashes = np.zeros(rows.num_rows, dtype=np.uint64)
    for name in key:
        hashes = (hashes ^ _column_hashes(rows.column(name))) * _MULTIPLIER
        hashes ^= hashes >> np.uint64(29)
    return hashes


def _buckets(rows: pa.RecordBatch, key: tuple[str, ...]) -> npt.NDArray[np.uint8]:
    return ((key_hashes(rows, key) * _MULTIPLIER) >> _BUCKET_SHIFT).astype(np.uint8)


def _column_hashes(column: pa.Array) -> _Hashes:
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return _text_hashes(column)
    if pa.types.is_decimal(kind):
        filled = pc.fill_null(column, pa.scalar(0, pa.int32()).cast(kind))
        halves = np.frombuffer(filled.buffers()[1], dtype=np.uint64).reshape(-1, 2)[filled.offset :][: len(filled)]
        folded: _Hashes = halves[:, 0] ^ (halves[:, 1] * _MULTIPLIER)
        return folded
    if pa.types.is_floating(kind):
        values = pc.fill_null(column.cast(pa.float64()), 0.0).to_numpy(zero_copy_only=False) + 0.0  # -0.0 is 0.0
        return _as_hashes(values)
    plain = column.cast(pa.int32()) if pa.types.is_date32(kind) else column
    whole = pc.fill_null(plain.cast(pa.int64()), 0).to_numpy(zero_copy_only=False)
    return _as_hashes(whole)


def _as_hashes(values: Any) -> _Hashes:
    """Return the eight bytes of each value, unchanged."""
    hashes: _Hashes = np.ascontiguousarray(values).view(np.uint64)
    return hashes


def _text_hashes(column: pa.Array) -> _Hashes:
    filled = pc.fill_null(column, b"" if pa.types.is_binary(column.type) else "")
    if len(filled) == 0:
        return np.zeros(0, dtype=np.uint64)
    offsets = np.frombuffer(filled.buffers()[1], dtype=np.int32)[filled.offset :][: len(filled) + 1].astype(np.int64)
    octets = filled.buffers()[2]
    text = np.frombuffer(octets, dtype=np.uint8)[offsets[0] : offsets[-1]] if octets else np.zeros(0, dtype=np.uint8)
    begins = offsets - offsets[0]
    places = np.arange(len(text)) - np.repeat(begins[:-1], np.diff(offsets))
    sums = np.zeros(len(text) + 1, dtype=np.uint64)
    np.cumsum((text.astype(np.uint64) + np.uint64(1)) * _POSITIONS[places & 255], out=sums[1:])
    hashes: _Hashes = sums[begins[1:]] - sums[begins[:-1]]
    return hashes


def _collected(batches: Iterable[pa.RecordBatch], enough_bytes: int) -> Iterator[pa.RecordBatch]:
    held: list[pa.RecordBatch] = []
    held_bytes = 0
    for batch in batches:
        if batch.num_rows == 0:
            continue
        held.append(batch)
        held_bytes += batch.nbytes
        if held_bytes >= enough_bytes:
            yield pa.concat_batches(held)
            held, held_bytes = [], 0
    if held:
        yield pa.concat_batches(held)


def _packed(pieces: Sequence[_Piece]) -> pa.RecordBatch:
    buckets, source_rows, rows = zip(*pieces, strict=True)
    columns = [
        pa.array(buckets, pa.int32()),
        pa.array(source_rows, pa.int32()),
        pa.array(map(_to_ipc, rows), pa.binary()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=_PACKED)


def _to_ipc(rows: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_batch(rows)
    encoded: bytes = sink.getvalue().to_pybytes()
    return encoded
