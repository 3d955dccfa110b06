"""Staging: tasks that read, net the rows of their tables and pass them to the warehouse's sink, and their errors.

It runs in Spark's Python workers, which send the driver a row of counts per table and part. Few changes are staged in
the driver itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property, partial
from importlib.metadata import PackageNotFoundError, requires, version
from itertools import chain, groupby
from typing import Any, TypeVar

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

from floodmark.core.errors import ConfigError, FloodmarkError, LoadKilledError, LoadStartError
from floodmark.core.plan import LoadChunk, LoadKind, MemberRead, TablePlan
from floodmark.core.planning import PREFIX, LoadResult, format_error, format_load_result, parse_error, parse_load_result
from floodmark.core.position import read_position
from floodmark.core.settings import NetSource
from floodmark.core.snapshot import LogEntry
from floodmark.spark.net import (
    BUCKETS,
    PACKED_SCHEMA,
    Entry,
    adapt_net_changes,
    collapse_changes,
    drop_repeated_changes,
    drop_superseded_changes,
    entries,
    gather_changes,
    list_changes,
    pack,
    pack_note,
    stamp_first_load,
    stamp_loaded,
    unpack,
)
from floodmark.sync.columns import ColumnMap
from floodmark.sync.load import concerns_one_table
from floodmark.sync.ports import (
    Found,
    ReadTask,
    RowShape,
    StagedPart,
    StagedRows,
    StagingSink,
    TableReader,
    as_floodmark_error,
)
from floodmark.sync.records import format_members, noted, parse_members
from floodmark.sync.sessions import kept_sessions

_HELD_BYTES = 32 << 20
"""The bytes of all tables at which a task hands over to Spark what it has read."""
_COLUMNS = {
    "number": ("int", pa.int32()),
    "part": ("int", pa.int32()),
    "read_rows": ("long", pa.int64()),
    "staged_rows": ("long", pa.int64()),
    "receipt": ("string", pa.string()),
    "members": ("string", pa.string()),
    "error": ("string", pa.string()),
    "read_to": ("binary", pa.binary()),
    "read_to_at": ("string", pa.string()),
}
RESULTS_SCHEMA = ", ".join(f"{name} {kind}" for name, (kind, _) in _COLUMNS.items())
"""The columns of what was staged of a table. number: its place in the plan. part: -1 where no part was written."""
_RESULTS = pa.schema([(name, kind) for name, (_, kind) in _COLUMNS.items()])


@dataclass(frozen=True)
class StageWriter:
    """A writer of the rows of one table. It travels to the workers, with the warehouse's secrets in its sink."""

    table: TablePlan
    source_shape: RowShape
    """The columns of the reader's batches."""
    rows_at: bytes
    """The position of the rows of a first load."""
    sink: StagingSink
    mask_key: bytes = field(default=b"", repr=False)
    """The secret of the table's hashes."""

    @cached_property
    def columns(self) -> ColumnMap:
        """Return the mapping of the reader's batches to the target."""
        return ColumnMap(self.table, self.mask_key)

    @cached_property
    def shape(self) -> RowShape:
        """Return the columns of batches as the target has them. The commit is part of the key of a history."""
        shape = self.columns.shape(self.source_shape)
        return replace(shape, key=(*shape.key, shape.position)) if self.table.is_history else shape

    def map(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return a batch of the reader as the target has it. Nothing behind it knows names and masked values."""
        return self.columns.apply(batch, (name for name, _ in self.source_shape.own))

    def net_rows(self, batches: Iterable[pa.RecordBatch], part: int = 0) -> Iterator[pa.RecordBatch]:
        """Return the rows to be staged: stored columns, ``__lsn``, ``__op``, keep flags, and the columns of the style.

        part: its number, which is that of a chunk in a first load.
        """
        if self.table.kind is LoadKind.FIRST_LOAD:
            if self.table.is_log or self.table.is_snapshot:
                return stamp_loaded(batches, self.rows_at, part)
            return stamp_first_load(batches, self.shape, self.rows_at)
        if self.table.is_log:
            # A stream may bring a change again. The target takes it once, but staged rows are counted.
            once = (
                drop_repeated_changes(batches, self.shape)
                if self.shape.order and self.table.feed.has_members
                else batches
            )
            return list_changes(once, self.shape)
        if self.table.settings.net is NetSource.SERVER:
            return adapt_net_changes(batches, self.shape)
        return collapse_changes(batches, self.shape)

    def drop_superseded(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return a batch without the changes that no net change needs.

        A log has all of them, and a history counts the changes of a key in a commit.
        """
        return batch if self.table.keeps_changes else drop_superseded_changes(batch, self.shape)


Writers = Mapping[int, StageWriter]
"""The writers of tables, by their places in the plan."""


# --------------------------------------------------------------------------------------------------------------------
# Tasks of Spark that are given what to do: one for each group of parts, in Python, over Arrow batches.
#
# Spark's Python data sources can do the same. Each read of one starts four processes of Python on the driver's machine,
# one after the other: two seconds before the first row (ADR 56).


_Part = TypeVar("_Part")
_Work = Callable[[Sequence[_Part]], Iterable[pa.RecordBatch]]


def run_tasks(session: SparkSession, groups: Sequence[Sequence[_Part]], work: _Work[_Part], schema: str) -> DataFrame:
    """Return the batches that ``work`` yields for each group, with a task for each.

    Groups and work are pickled, and every task gets all of them. No query plan shows them.
    """
    numbers = session.range(0, len(groups), 1, len(groups))
    return numbers.mapInArrow(partial(_run, groups, work), schema)


def deal_in_turn(parts: Sequence[_Part], groups: int) -> list[Sequence[_Part]]:
    """Assign parts to groups in turn, so that all tasks move through the table together. None is empty."""
    return [parts[first::groups] for first in range(min(groups, len(parts)))]


def _run(
    groups: Sequence[Sequence[_Part]], work: _Work[_Part], numbers: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    with transported_errors(), kept_sessions():
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                yield from work(groups[number])


# --------------------------------------------------------------------------------------------------------------------
# What a task has found and staged of a table, and the row that reports it to the driver.


@dataclass
class _Held:
    """The findings of a task about a table."""

    batches: list[pa.RecordBatch] = field(default_factory=list)
    read_rows: int = 0
    members: list[MemberRead] = field(default_factory=list)
    read_to: LogEntry | None = None
    error: FloodmarkError | None = None

    def take(self, found: pa.RecordBatch | FloodmarkError | LogEntry) -> Iterator[pa.RecordBatch]:
        """Yield a batch with rows. Note all else. Raises an error that does not concern the table alone."""
        if isinstance(found, FloodmarkError):
            if not concerns_one_table(found):
                raise found
            self.error = found
        elif isinstance(found, LogEntry):
            self.read_to = found
        elif self.error is None:
            for batch in noted([found], self.members):
                self.read_rows += batch.num_rows
                if batch.num_rows:
                    yield batch

    def counted(self, packed: Iterable[Entry]) -> Iterator[Entry]:
        """Yield packed rows, and count those that were read for them."""
        for entry in packed:
            self.read_rows += entry.source_rows
            yield entry

    def checked(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield batches. Raises the error that has ended them, so that nothing of the table is staged."""
        yield from batches
        if self.error is not None:
            raise self.error


@contextmanager
def _noted_in(held: _Held, writer: StageWriter) -> Iterator[None]:
    """Note an error of the block that concerns a table alone. Raises any other."""
    try:
        yield
    except Exception as found:  # noqa: BLE001  (a bug that one table shows must not stop the others)
        held.error = as_floodmark_error(writer.table, found)
        if not concerns_one_table(held.error):
            raise held.error from None


def _stage(
    index: int, writer: StageWriter, part: int, held: _Held, batches: Iterable[pa.RecordBatch]
) -> pa.RecordBatch:
    """Write a part of a table. Return the result, which may be the error about this table alone."""
    staged = None
    with _noted_in(held, writer):
        staged = writer.sink.write(part, writer.net_rows(held.checked(batches), part))
    return _result(index, held, staged)


def _result(index: int, held: _Held, staged: StagedPart | None = None) -> pa.RecordBatch:
    at = held.read_to.committed_at if held.read_to else None
    row = {
        "number": index,
        "part": staged.part if staged else -1,
        "read_rows": held.read_rows,
        "staged_rows": staged.rows if staged else 0,
        "receipt": staged.receipt if staged else "",
        "members": format_members(held.members),
        "error": format_error(held.error) if held.error else "",
        "read_to": held.read_to.position.value if held.read_to else None,
        "read_to_at": at.isoformat() if at else None,
    }
    return pa.RecordBatch.from_pylist([row], schema=_RESULTS)


def join_results(rows: Iterable[Mapping[str, Any]]) -> dict[int, StagedRows | FloodmarkError]:
    """Return the result of each table from those of its parts."""
    by_table: dict[int, list[Mapping[str, Any]]] = {}
    for row in rows:
        by_table.setdefault(row["number"], []).append(row)
    return {number: _join(found) for number, found in by_table.items()}


def _join(rows: Sequence[Mapping[str, Any]]) -> StagedRows | FloodmarkError:
    if errors := [row["error"] for row in rows if row["error"]]:
        return parse_error(errors[0])
    parts = tuple(StagedPart(row["part"], row["staged_rows"], row["receipt"]) for row in rows if row["part"] >= 0)
    members = tuple(member for row in rows for member in parse_members(row["members"]))
    moments = [(bytes(row["read_to"]), row["read_to_at"]) for row in rows if row["read_to"] is not None]
    ends = [LogEntry(read_position(position), datetime.fromisoformat(at) if at else None) for position, at in moments]
    read_rows, staged_rows = sum(row["read_rows"] for row in rows), sum(part.rows for part in parts)
    return StagedRows(read_rows, staged_rows, parts, members, ends[0] if ends else None)


# --------------------------------------------------------------------------------------------------------------------
# Rows that are staged by the task that reads them, without a shuffle: chunks of a first load, net changes, and few
# changes, which the task nets in memory.
#
# A job of Spark for each table costs more than the work on a few thousand changes. One job does all such tables.


TASK_COST = 500
"""The cost of a table's statements, in changes: 8 ms of processor time, and 17 µs a change."""
_NOT_COUNTED = 50_000
"""The changes for which a read counts that are not known."""
NumberedTask = tuple[int, ReadTask]
"""A task, and the number of the parts that it writes."""


def cost_of(task: ReadTask) -> int:
    """Return the cost of a read in changes. Every table costs its statements, too."""
    return (_NOT_COUNTED if task.changes is None else task.changes) + TASK_COST * len(task.tables)


def deal(tasks: Sequence[NumberedTask], groups: int) -> list[list[NumberedTask]]:
    """Divide tasks into groups of about the same cost. None is empty."""
    costs = [cost_of(task) for _, task in tasks]
    dealt: list[list[NumberedTask]] = [[] for _ in range(min(groups, len(tasks)))]
    loads = [0] * len(dealt)
    for place in sorted(range(len(tasks)), key=costs.__getitem__, reverse=True):
        lightest = loads.index(min(loads))
        dealt[lightest].append(tasks[place])
        loads[lightest] += costs[place]
    return dealt


def write_chunks(
    index: int, writer: StageWriter, reader: TableReader, chunks: Sequence[LoadChunk]
) -> Iterator[pa.RecordBatch]:
    """Read and write chunks of the table itself, each as the part of its number. Raises the first error."""
    for chunk in chunks:
        rows = (writer.map(batch) for batch in reader.read_chunk(chunk) if batch.num_rows)
        staged = writer.sink.write(chunk.number, writer.net_rows(rows, chunk.number))
        yield _result(index, _Held(read_rows=staged.rows), staged)


def stage_directly(writers: Writers, most_bytes: int, tasks: Sequence[NumberedTask]) -> Iterator[pa.RecordBatch]:
    """Stage the tables of tasks one after the other, and stop at the first error that affects all tables.

    most_bytes: of the changes that are held in memory. Yields nothing for a task that has more of them.
    """
    for part, task in tasks:
        yield from _stream(writers, part, task) if task.is_net else _stage_in_memory(writers, most_bytes, part, task)


def _stream(writers: Writers, part: int, task: ReadTask) -> Iterator[pa.RecordBatch]:
    left = {index: _Held() for index in task.tables}
    for index, group in groupby(_mapped(writers, task), lambda found: found[0]):
        held = left.pop(index)
        yield _stage(index, writers[index], part, held, chain.from_iterable(held.take(found) for _, found in group))
    for index, held in left.items():
        yield _result(index, held)


def _stage_in_memory(writers: Writers, most_bytes: int, part: int, task: ReadTask) -> Iterator[pa.RecordBatch]:
    held = {index: _Held() for index in task.tables}
    size = 0
    for index, batch in _taken(writers, task, held):
        with _noted_in(held[index], writers[index]):
            kept = writers[index].drop_superseded(batch)
            held[index].batches.append(kept)
            size += kept.nbytes
        if size > most_bytes:
            return
    for index, each in held.items():
        whole = map(pa.concat_batches, [each.batches] if each.batches else [])
        yield _stage(index, writers[index], part, each, [] if each.error else whole)


def _mapped(writers: Writers, task: ReadTask) -> Iterator[Found]:
    """Yield what a task finds, with rows as the target has them."""
    for index, found in task.read():
        yield index, writers[index].map(found) if isinstance(found, pa.RecordBatch) else found


def _taken(writers: Writers, task: ReadTask, held: Mapping[int, _Held]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the batches with rows of a task, and note all else."""
    for index, found in _mapped(writers, task):
        for batch in held[index].take(found):
            yield index, batch


# --------------------------------------------------------------------------------------------------------------------
# Rows that Spark brings together by key: tasks read and pack them, others net and stage them.


def pack_changes(writers: Writers, tasks: Sequence[ReadTask]) -> Iterator[pa.RecordBatch]:
    """Yield the changes of tasks in buckets by table and key, and notes of what was found but rows."""
    held = {index: _Held() for task in tasks for index in task.tables}
    size = 0
    for index, batch in chain.from_iterable(_taken(writers, task, held) for task in tasks):
        held[index].batches.append(batch)
        size += batch.nbytes
        if size >= _HELD_BYTES:
            yield from _flush(writers, held)
            size = 0
    yield from _flush(writers, held)
    for index, each in held.items():
        # The rows are counted where they are staged.
        yield pack_note(_result(index, replace(each, read_rows=0)))


def _flush(writers: Writers, held: Mapping[int, _Held]) -> Iterator[pa.RecordBatch]:
    for index, each in held.items():
        writer = writers[index]
        with _noted_in(each, writer):
            yield from pack(each.batches, writer.shape.key, writer.drop_superseded, first_bucket=index * BUCKETS)
        each.batches.clear()


def write_packed(writers: Writers, packed: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write the buckets of a task, which come in their order. For ``DataFrame.mapInArrow``."""
    context = TaskContext.get()
    with transported_errors():
        yield from write_entries(writers, entries(packed), context.partitionId() if context else 0)


def write_entries(writers: Writers, packed: Iterable[Entry], part: int) -> Iterator[pa.RecordBatch]:
    """Write packed rows in the order of their buckets, each table as the part of this number. Yield results."""
    for index, found in groupby(packed, lambda entry: entry.bucket // BUCKETS):
        if index < 0:
            yield from chain.from_iterable(note.batches for note in found)
        else:
            held = _Held()
            yield _stage(index, writers[index], part, held, unpack(held.counted(found)))


# --------------------------------------------------------------------------------------------------------------------
# The answer of a Spark worker about the Floodmark that it runs.


VERSION_SCHEMA = "version string"
"""The columns of ``report_version``."""


def _installed_version() -> str:
    try:
        return version("floodmark")
    except PackageNotFoundError:
        # Executors may have the folder of the package alone.
        return ""


LOADED_VERSION = _installed_version()
"""The version of this process's Floodmark, "" where it is unknown.

It is the one that was installed when the process began: a resident daemon goes on with it after an upgrade.
"""


def report_version(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield one row for a task that has rows. For ``DataFrame.mapInArrow`` with ``VERSION_SCHEMA``."""
    if sum(batch.num_rows for batch in batches):
        yield pa.RecordBatch.from_pydict({"version": [LOADED_VERSION]})


# --------------------------------------------------------------------------------------------------------------------
# Jobs that use the classes of a load, with nothing to do.


def run_both_kinds(session: SparkSession) -> None:
    """Run a job without a shuffle and one with it."""
    rows = run_tasks(session, [(), ()], iter, PACKED_SCHEMA)
    rows.collect()
    gather_changes(rows).collect()


# --------------------------------------------------------------------------------------------------------------------
# The transport of Floodmark's errors through Spark: a worker's exception reaches the driver as a traceback's text.
#
# ``transported_errors`` writes the error into that text in a form that ``recover`` can parse.


_TRANSPORTED = re.compile(re.escape(PREFIX) + r"\{.*\}")
# Spark's messages for processes that have ended; it reports this in no other way (PythonRunner, TaskEndReason).
_DIED = re.compile(r"Python worker exited unexpectedly|ExecutorLostFailure \(|FetchFailed|Container killed by YARN")
# Its messages for a cluster that has gone, or that never answered (StandaloneSchedulerBackend, DAGScheduler).
_CLUSTER_LOST = re.compile(
    r"All masters are unresponsive|Master removed our application|Application has been killed"
    r"|SparkContext was shut down|stopped SparkContext|Could not connect to|Failed to connect to"
)
# The messages of a client of Spark Connect whose server has gone, was started again, or ended the session.
_SERVER_LOST = re.compile(
    r"StatusCode\.UNAVAILABLE|INVALID_HANDLE\.(?:SESSION|OPERATION)|INVALID_CURSOR|OPERATION_CANCELED|NO_ACTIVE_SESSION"
)
_TOKEN_REFUSED = "StatusCode.UNAUTHENTICATED"  # noqa: S105  (a status)
# Its messages for a Python of executors that does not start; the last line is Python's own error (PythonWorkerFactory).
_NO_PYTHON = re.compile(
    r"Error from python worker:\n(?:\s+.*\n)*?\s*(?P<python>\w+Error: .*)\n(?:PYTHONPATH|[\w.]+Exception)"
    r"|(?P<program>Cannot run program .*?): error|\[PYTHON_VERSION_MISMATCH\] (?P<version>.*?)\.?\n"
)


_NO_MODULE = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'")
_OF_EXTRA = re.compile(r"([\w.-]+).*;.*extra == ['\"](\w+)['\"]")


class TransportedError(RuntimeError):
    """A FloodmarkError on its way out of a worker."""


@contextmanager
def transported_errors() -> Iterator[None]:
    """Raise errors of ``core.errors`` as TransportedError. For the code of a worker."""
    try:
        yield
    except FloodmarkError as error:
        raise TransportedError(format_load_result(LoadResult(0, error=error))) from None


def _lacks_package(module: str, detail: str) -> LoadStartError:
    """Return the error about executors that have Floodmark and lack a package, such as one of an extra."""
    name = module.partition(".")[0].replace("_", "-")
    extras = [found.groups() for each in requires("floodmark") or () if (found := _OF_EXTRA.match(each))]
    extra = next((extra for package, extra in extras if f"{package}-".startswith(f"{name}-")), None)
    return LoadStartError(
        "the load",
        f"Spark's executors lack the package {name}.",
        f"Install it there: pip install 'floodmark[{extra}]'." if extra else "docs/cluster.md lists what they need.",
        detail,
    )


def recover(error: BaseException) -> FloodmarkError | None:
    """Return the error that a worker raised, from Spark's exception; LoadKilledError where a process of Spark
    ended, LoadStartError where none starts, ConfigError where a Spark Connect server refuses the token.

    None where the exception contains no error of ``core.errors``.
    """
    if isinstance(error, FloodmarkError):
        return error
    text = str(error)
    match = _TRANSPORTED.search(text)
    result = parse_load_result(match[0]) if match else None
    if result is not None:
        return result.error
    if found := _NO_PYTHON.search(text):
        return LoadStartError(
            "the load",
            f"Python does not start on Spark's executors: {next(filter(None, found.groups()))}.",
            "They need the packages that docs/cluster.md lists, with the driver's minor version of Python.",
            text,
        )
    if missing := _NO_MODULE.search(text):
        return _lacks_package(missing[1], text)
    return killed() if _DIED.search(text) else _find_loss(text)


def killed() -> LoadKilledError:
    """Return the error about a process of Spark that has ended."""
    return LoadKilledError(
        "the load",
        "a process of Spark ended: it was killed, or it ran out of memory.",
        "Nothing is half-written; the next try loads the same window.",
    )


def _find_loss(text: str) -> FloodmarkError | None:
    """Return the error about a server or a cluster that does not serve the load."""
    if _TOKEN_REFUSED in text:
        return ConfigError(
            "the Spark connection",
            "the Spark Connect server refuses its token.",
            "Its password must be the token that the server was started with.",
        )
    if _SERVER_LOST.search(text):
        return LoadKilledError(
            "the load",
            "the Spark Connect server ended, or it ended the session of the load.",
            "Check that it runs. Nothing is half-written; the next try loads the same window.",
            text,
        )
    if _CLUSTER_LOST.search(text):
        return LoadKilledError(
            "the load",
            "Spark's cluster did not answer, or it ended the application.",
            "Check that the master of the Spark connection runs and has workers. Nothing is half-written; the next "
            "try loads the same window.",
            text,
        )
    return None
