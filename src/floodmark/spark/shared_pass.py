"""Tables whose changes are in one feed: read in one pass, and staged there or, if they are many, by other tasks.

A pass over the feed for each table would read all of it as often as there are tables. The few changes of a usual window
are netted in the task that has read them. More of them are read by several tasks, each with a part of the feed, and go
through Spark: it brings the changes of a key together, and spills. Few changes that are too large for memory are read
again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from traceback import format_exc

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import Row, SparkSession

from floodmark.core.errors import FloodmarkBugError, FloodmarkError
from floodmark.core.plan import MemberRead
from floodmark.core.planning import format_error, parse_error
from floodmark.core.schema import TableName
from floodmark.spark.errors import transported_errors
from floodmark.spark.net import (
    BUCKETS,
    PACKED_SCHEMA,
    Entry,
    Unpacked,
    drop_superseded_changes,
    entries,
    gather_changes,
    pack,
    pack_note,
)
from floodmark.spark.stage import MOST_BYTES, StageWriter, run_tasks
from floodmark.sync.load import concerns_one_table
from floodmark.sync.ports import SharedReader, StagedPart, StagedRows
from floodmark.sync.records import format_members, noted, parse_members

_LOG = logging.getLogger(__name__)
MOST_CHANGES = 250_000
"""The changes that one task nets in memory."""
_HELD_BYTES = 32 << 20
"""The bytes of all tables at which a pass hands over what it has read."""
_RESULTS_SCHEMA = "number int, part int, read_rows long, staged_rows long, receipt string, members string, error string"
_RESULTS = pa.schema(
    [
        ("number", pa.int32()),
        ("part", pa.int32()),
        ("read_rows", pa.int64()),
        ("staged_rows", pa.int64()),
        ("receipt", pa.string()),
        ("members", pa.string()),
        ("error", pa.string()),
    ]
)


@dataclass(frozen=True)
class PassTable:
    """A table of a plan, as it travels to a task."""

    number: int
    """Its place in the plan."""
    source: TableName
    writer: StageWriter

    def drop_superseded(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return a batch without the changes that no net change needs."""
        return drop_superseded_changes(batch, self.writer.shape)


@dataclass
class _Held:
    """The rows that a pass has read of a table, and how it read its members."""

    batches: list[pa.RecordBatch] = field(default_factory=list)
    read_rows: int = 0
    members: list[MemberRead] = field(default_factory=list)
    error: FloodmarkError | None = None


def stage_pass(
    session: SparkSession,
    reader: SharedReader,
    tables: Sequence[PassTable],
    tasks: int = 1,
    most_bytes: int = MOST_BYTES,
) -> dict[int, StagedRows | FloodmarkError]:
    """Stage tables. Return the result of each by its number. Raises an error that concerns all of them.

    tasks: the most that read the feed. most_bytes: of the changes that one task holds in memory.
    """
    if reader.count() <= MOST_CHANGES:
        work = partial(_stage_in_memory, reader, most_bytes)
        found = run_tasks(session, [tables], work, _RESULTS_SCHEMA).collect()
        if found:
            return _results(tables, found)
    readers = reader.split(tasks)
    results = _stage_packed(session, readers, tables)
    if not readers[1:]:
        return results
    staged = {number: each for number, each in results.items() if isinstance(each, StagedRows)}
    united = reader.unite({number: each.members for number, each in staged.items()})
    if united is None:
        _LOG.info("Messages of an event are in several parts of the stream: one task reads all of it again.")
        return _stage_packed(session, [reader], tables)
    return results | {number: replace(each, members=tuple(united[number])) for number, each in staged.items()}


def _stage_packed(
    session: SparkSession, readers: Sequence[SharedReader], tables: Sequence[PassTable]
) -> dict[int, StagedRows | FloodmarkError]:
    """Read with a task for each reader, and stage with as many as Spark makes of the changes."""
    packed = run_tasks(session, [[each] for each in readers], partial(_pack, tables), PACKED_SCHEMA)
    written = gather_changes(packed).mapInArrow(partial(_write_packed, tables), _RESULTS_SCHEMA)
    return _results(tables, written.collect())


def _results(tables: Sequence[PassTable], rows: Sequence[Row]) -> dict[int, StagedRows | FloodmarkError]:
    return {table.number: _join([row for row in rows if row.number == table.number]) for table in tables}


def _stage_in_memory(reader: SharedReader, most_bytes: int, tables: Sequence[PassTable]) -> Iterator[pa.RecordBatch]:
    """Read and stage the changes of all tables. Yields nothing where they are too many."""
    held = {table.number: _Held() for table in tables}
    by_number = {table.number: table for table in tables}
    size = 0
    for number, batch in _noted(reader, held):
        kept = by_number[number].drop_superseded(batch)
        held[number].batches.append(kept)
        size += kept.nbytes
        if size > most_bytes:
            return
    for table in tables:
        yield _stage(table, held[table.number])


def _noted(reader: SharedReader, held: Mapping[int, _Held]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the batches with rows. Notes members, errors and the number of rows."""
    for number, found in reader.read():
        table = held[number]
        if isinstance(found, FloodmarkError):
            table.error = found
            continue
        for batch in noted([found], table.members):
            table.read_rows += batch.num_rows
            if batch.num_rows:
                yield number, batch


def _stage(table: PassTable, held: _Held) -> pa.RecordBatch:
    if held.error is not None:
        return _result(table.number, error=held.error)
    try:
        rows = [pa.concat_batches(held.batches)] if held.batches else []
        staged = table.writer.sink.write(0, table.writer.net_rows(rows))
    except FloodmarkError as error:
        if not concerns_one_table(error):
            raise
        return _result(table.number, error=error)
    except Exception as found:  # noqa: BLE001  (a bug that one table shows must not stop the others)
        bug = FloodmarkBugError(str(table.source), type(found).__name__, "See the log of the job.", format_exc())
        return _result(table.number, error=bug)
    return _result(table.number, staged, held.read_rows, held.members)


def _pack(tables: Sequence[PassTable], readers: Sequence[SharedReader]) -> Iterator[pa.RecordBatch]:
    """Yield the changes that the only reader of a task finds, in buckets by table and key."""
    [reader] = readers
    held = {table.number: _Held() for table in tables}
    size = 0
    for number, batch in _noted(reader, held):
        held[number].batches.append(batch)
        size += batch.nbytes
        if size >= _HELD_BYTES:
            yield from _flush(tables, held)
            size = 0
    yield from _flush(tables, held)
    for table in tables:
        found = held[table.number]
        note = format_error(found.error) if found.error else format_members(found.members)
        yield pack_note(_note_bucket(table.number, is_error=found.error is not None), note)


def _flush(tables: Sequence[PassTable], held: Mapping[int, _Held]) -> Iterator[pa.RecordBatch]:
    for table in tables:
        batches = held[table.number].batches
        if batches:
            yield from pack(batches, table.writer.shape.key, table.drop_superseded, first_bucket=table.number * BUCKETS)
            batches.clear()


def _note_bucket(number: int, *, is_error: bool) -> int:
    """Return the bucket of a note about a table: negative, and odd for an error."""
    return -2 * (number + 1) + (1 if is_error else 0)


def _write_packed(tables: Sequence[PassTable], packed: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write the buckets of a task, each table as one part. Buckets come in their order, the notes before all others."""
    context = TaskContext.get()
    part = context.partitionId() if context else 0
    by_number = {table.number: table for table in tables}
    with transported_errors():
        for number, found in groupby(entries(packed), lambda entry: _table_of(entry.bucket)):
            if number is None:
                yield from (_read_note(entry) for entry in found)
            else:
                yield _write(by_number[number], part, found)


def _table_of(bucket: int) -> int | None:
    return bucket // BUCKETS if bucket >= 0 else None


def _read_note(entry: Entry) -> pa.RecordBatch:
    text = bytes(entry.rows).decode()
    number, is_error = (-entry.bucket - 1) // 2, bool(entry.bucket % 2)
    if is_error:
        return _result(number, error=parse_error(text))
    return _result(number, members=parse_members(text))


def _write(table: PassTable, part: int, found: Iterable[Entry]) -> pa.RecordBatch:
    rows = Unpacked(found)
    try:
        staged = table.writer.sink.write(part, table.writer.net_rows(rows))
    except FloodmarkError as error:
        if not concerns_one_table(error):
            raise
        return _result(table.number, error=error)
    return _result(table.number, staged, rows.source_rows)


def _result(
    number: int,
    staged: StagedPart | None = None,
    read_rows: int = 0,
    members: Sequence[MemberRead] = (),
    *,
    error: FloodmarkError | None = None,
) -> pa.RecordBatch:
    row = {
        "number": number,
        "part": staged.part if staged else -1,
        "read_rows": read_rows,
        "staged_rows": staged.rows if staged else 0,
        "receipt": staged.receipt if staged else "",
        "members": format_members(members),
        "error": format_error(error) if error else "",
    }
    return pa.RecordBatch.from_pylist([row], schema=_RESULTS)


def _join(rows: Sequence[Row]) -> StagedRows | FloodmarkError:
    """Return the result of a table from those of its parts."""
    for row in rows:
        if row.error:
            return parse_error(row.error)
    parts = tuple(StagedPart(row.part, row.staged_rows, row.receipt) for row in rows if row.part >= 0)
    members = tuple(member for row in rows for member in parse_members(row.members))
    return StagedRows(sum(row.read_rows for row in rows), sum(part.rows for part in parts), parts, members)
