"""Arrow batches as values of a DataFrame, so that rows pass through Spark without conversion to Spark's row format.

Encoding and decoding Spark's row format costs several times more than all other work on a change row. Spark runs tasks,
brings the changes of a key together, and spills what does not fit into memory: this works as well with a few hundred
batches as with a million rows. ``pack`` divides rows into buckets by a hash of their key, Spark shuffles by bucket, and
``Unpacked`` returns batches that contain all rows of their keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from floodmark.core.window.members import MemberRead
from floodmark.sync.ports.members import format_members, parse_members

BUCKETS = 128
PACKED_SCHEMA = "bucket int, source_rows int, rows binary"
"""The columns of packed rows. rows: a record batch as an Arrow IPC stream. source_rows: the rows read for it."""

_PACKED = pa.schema([("bucket", pa.int32()), ("source_rows", pa.int32()), ("rows", pa.binary())])
_MEMBERS = -1
"""The bucket of the rows that are no rows of the table."""
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


def pack_members(members: Sequence[MemberRead]) -> pa.RecordBatch:
    """Return how members were read, as a row among packed rows."""
    return pack_note(_MEMBERS, format_members(members))


def pack_note(bucket: int, text: str) -> pa.RecordBatch:
    """Return a text among packed rows. bucket: a negative one, so that it is no bucket of rows."""
    columns = [[bucket], [0], [text.encode()]]
    return pa.RecordBatch.from_arrays(
        [pa.array(values, kind.type) for values, kind in zip(columns, _PACKED, strict=True)], schema=_PACKED
    )


def entries(packed: Iterable[pa.RecordBatch]) -> Iterator[Entry]:
    """Yield packed rows one by one."""
    for batch in packed:
        for row in range(batch.num_rows):
            bucket, source_rows, rows = (column[row] for column in batch.columns)
            yield Entry(bucket.as_py(), source_rows.as_py(), rows.as_buffer())


@dataclass
class Unpacked:
    """The batches of a task. Those of one bucket must follow each other; they become part of one batch."""

    packed: Iterable[Entry]
    source_rows: int = field(default=0, init=False)
    """The rows read at the source, counted during the iteration."""
    members: list[MemberRead] = field(default_factory=list, init=False)
    """How members were read, collected during the iteration."""

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        held: list[pa.RecordBatch] = []
        last = None
        for bucket, rows in self._pieces():
            if bucket != last and sum(batch.nbytes for batch in held) >= _GROUP_BYTES:
                yield pa.concat_batches(held)
                held = []
            held.append(rows)
            last = bucket
        if held:
            yield pa.concat_batches(held)

    def _pieces(self) -> Iterator[tuple[int, pa.RecordBatch]]:
        for bucket, source_rows, rows in self.packed:
            if bucket == _MEMBERS:
                self.members += parse_members(bytes(rows).decode())
                continue
            self.source_rows += source_rows
            with pa.ipc.open_stream(rows) as reader:
                for piece in reader:
                    yield bucket, piece


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
