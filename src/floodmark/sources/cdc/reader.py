"""``CdcReader``: a table of a plan, read from its change table or, for a first load, from the table itself."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from floodmark.core.capture import bracket
from floodmark.core.errors import ConfigError, SourceBehindError
from floodmark.core.plan import LoadChunk, LoadKind, TablePlan, WindowPlan, value_columns
from floodmark.core.position import Interval, Lsn, Position, read_lsn
from floodmark.core.schema import Operation, SourceTable, TableName, bits_by_byte
from floodmark.core.settings import SOURCE_VARIABLE, NetSource
from floodmark.core.snapshot import LogEntry, explain_other_copy
from floodmark.sources.sqlserver.clock import COMMITTED_AT, LOCAL_TIME, read_clock, select_utc
from floodmark.sources.sqlserver.driver import SourceSession, SqlServerConnection, connect
from floodmark.sources.sqlserver.rows import BATCH_ROWS, ONE_WORKER, SqlServerReader, filter_of, select_expressions
from floodmark.sources.sqlserver.tables import change_table, net_changes_function, read_sql
from floodmark.sync.ports import COUNTED_CHANGES, WHOLE_CHANGES, RowShape, TableRead, WindowReads

# --------------------------------------------------------------------------------------------------------------------
# The T-SQL that reads changes: one SELECT per part of a table, with the same text for every window.
#
# Change tables are read directly. This is faster than the functions, but the server never refuses an expired range: the
# validity of the window is checked before and after (``sync``). Isolation is READ COMMITTED: uncommitted rows of a
# first load could be rolled back, and no change row would ever remove them again.
#
# A part is read by one worker of the server (MAXDOP 1): how many parts are read at once is configured, and a plan that
# is parallel itself would multiply it, for a range of a clustered index in no order.


START_LSN = "__$start_lsn"
COMMAND_ID = "__$command_id"
SEQVAL = "__$seqval"
OPERATION = "__$operation"
UPDATE_MASK = "__$update_mask"
COMMIT_LSN = "__$commit_lsn"
"""The name of the LSN of a commit where its time is from. No change table has it, nor ``COMMITTED_AT``."""

OWN_TYPES = {
    START_LSN: "binary",
    COMMAND_ID: "int",
    SEQVAL: "binary",
    OPERATION: "int",
    UPDATE_MASK: "binary",
    COMMITTED_AT: "moment",
}


def order_columns(plan: TablePlan) -> tuple[str, ...]:
    """Return the columns that order the changes of a key. Without command ids the order is not exact (see seqval)."""
    if plan.feed.has_command_id:
        return (START_LSN, COMMAND_ID, SEQVAL, OPERATION)
    return (START_LSN, SEQVAL, OPERATION)


def own_columns(plan: TablePlan) -> tuple[str, ...]:
    """Return the metadata columns of the change table that this plan reads; none for a first load."""
    if plan.kind is LoadKind.FIRST_LOAD:
        return ()
    has_mask = plan.is_log or any(column.is_lob for column in plan.feed.table.stored_columns)
    mask = (UPDATE_MASK,) if has_mask else ()
    if plan.settings.net is NetSource.SERVER:
        return (START_LSN, OPERATION, *mask)
    committed_at = (COMMITTED_AT,) if plan.has_commit_times else ()
    return (*order_columns(plan), *mask, *committed_at)


def select_commits(*, has_zone: bool, is_guessed: bool = False) -> str:
    """Return the SELECT of the commits of an interval, with their times in UTC, from the mapping table.

    Parameters: those of ``select_utc``, then after_lsn (excluded) and to_lsn (included).
    """
    local = (
        f"SELECT m.start_lsn AS {bracket(COMMIT_LSN)}, CAST(m.tran_end_time AS datetime2(3)) AS {LOCAL_TIME}"  # noqa: S608
        " FROM cdc.lsn_time_mapping AS m WHERE m.start_lsn > ? AND m.start_lsn <= ?"
    )
    return select_utc(local, COMMIT_LSN, has_zone=has_zone, is_guessed=is_guessed)


def select_newest_commit(*, has_zone: bool) -> str:
    """Return the SELECT of the newest commit up to an LSN, with its time in UTC. Parameters: as for ``select_commits``,
    with the LSN alone.
    """
    local = (
        f"SELECT TOP (1) m.start_lsn AS {bracket(COMMIT_LSN)}, CAST(m.tran_end_time AS datetime2(3)) AS {LOCAL_TIME}"  # noqa: S608
        " FROM cdc.lsn_time_mapping AS m WHERE m.start_lsn <= ? ORDER BY m.start_lsn DESC"
    )
    return select_utc(local, COMMIT_LSN, has_zone=has_zone, is_guessed=True)


def read_commit_time(source: SqlServerConnection, position: Position) -> datetime | None:
    """Return the time in UTC of the newest commit up to a position; None where the server no longer knows it."""
    with connect(source, subject=source.database) as session:
        clock = read_clock(session, is_guessed=True)
        found = session.fetch(select_newest_commit(has_zone=isinstance(clock[0], str)), (*clock, position.value))
    at: datetime | None = found[0][1] if found else None
    return at and at.replace(tzinfo=UTC)


def select_changes(plan: TablePlan) -> str:
    """Return the SELECT of changes. Parameters: after_lsn (excluded), to_lsn (included). Times of commits are NULL: the
    reader fills them in. Were they joined, a plan of the server may convert the time once for each change.

    The image before an update is read where the update gave the row another key: nothing else shows that the old key no
    longer exists. A change of a primary key is captured as a delete and an insert, but not under trace flag 8207, and
    not for a key that is only declared, which the server does not know. A log has such an update as a delete and an
    insert, and may have both images of every other update.

    With a filter, the changes are those of the rows that pass it (``_of_filter``).
    """
    operation = bracket(OPERATION)
    moved = _has_new_key(plan.feed.table) if plan.feed.table.key else ""
    kind = f"CASE {_select_moved(plan, moved)} ELSE {operation} END" if moved else operation
    table = change_table(plan.feed.identity.name)
    if plan.has_commit_times:
        table = f"(SELECT *, CAST(NULL AS datetime2(3)) AS {bracket(COMMITTED_AT)} FROM {table}) AS timed"  # noqa: S608
    images = f"{table} WHERE {bracket(START_LSN)} > ? AND {bracket(START_LSN)} <= ?"
    if plan.settings.where is not None:
        return _of_filter(plan, images, moved)
    is_after_only = moved and not plan.has_before_images
    needed = f" AND ({operation} <> {Operation.BEFORE_UPDATE.value} OR {moved})" if is_after_only else ""
    return f"SELECT {_select_list(plan, f'{kind} AS {operation}')} FROM {images}{needed}{ONE_WORKER}"  # noqa: S608


def _select_moved(plan: TablePlan, moved: str) -> str:
    """Return the branches of CASE for the images of an update that gave a row another key.

    In a log they are a delete and an insert, as the server captures an update of a primary key. They have one sequence
    value, and differ in the operation. Net changes need to know both images as they are (``spark.net``).
    """
    is_update, is_before = (
        f"{bracket(OPERATION)} = {each.value}" for each in (Operation.UPDATE, Operation.BEFORE_UPDATE)
    )
    if not plan.is_log:
        return f"WHEN {is_update} AND {moved} THEN {Operation.MOVED.value}"
    return (
        f"WHEN {is_update} AND {moved} THEN {Operation.INSERT.value}"
        f" WHEN {is_before} AND {moved} THEN {Operation.DELETE.value}"
    )


_PASSES, _PASSED, _WILL_PASS = "__$passes", "__$passed", "__$will_pass"
"""Whether the image in a row passes the filter, and whether those before and after the update of the row do."""
_DOUBTFUL = 2
"""In ``_PASSES``: a delete without the value of a column that the filter needs."""


def _of_filter(plan: TablePlan, images: str, moved: str) -> str:
    """Return the SELECT of the changes of the rows that pass the filter, with no value of others.

    An update that takes a row out of the filter is a delete with the image before it, one that brings a row in is an
    insert. The two images of an update have one place in the log (docs/reference/sqlserver_cdc.md, "Row shapes").

    images: FROM and WHERE of the rows of the interval. moved: the condition for an update of the key; "" without a key.
    Where both images of an update come, they do so if both pass.
    """
    operation, passes, will_pass = bracket(OPERATION), bracket(_PASSES), bracket(_WILL_PASS)
    is_update, is_before = (f"{operation} = {each.value}" for each in (Operation.UPDATE, Operation.BEFORE_UPDATE))
    move = f" {_select_moved(plan, moved)}" if moved else ""
    # Where no other image before an update comes, that of a row that stays in the filter is left out below.
    has_left = f"NOT {moved}" if moved and not plan.has_before_images else f"{will_pass} = 0"
    kind = (
        f"CASE{move} WHEN {is_update} AND {bracket(_PASSED)} = 0 THEN {Operation.INSERT.value}"
        f" WHEN {is_before} AND {has_left} THEN {Operation.DELETE.value} ELSE {operation} END"
    )
    is_after_only = moved and not plan.has_before_images
    needed = f" AND (NOT {is_before} OR {moved} OR {will_pass} = 0)" if is_after_only else ""
    # With the key: a row is judged by its own images, also where a server gives the rows of a statement one place.
    own_place = [name for name in order_columns(plan) if name != OPERATION]
    place = ", ".join(map(bracket, dict.fromkeys([*own_place, *plan.feed.table.key])))
    others = (
        f"MAX(CASE WHEN {image} THEN {passes} ELSE 0 END) OVER (PARTITION BY {place}) AS {bracket(name)}"
        for image, name in ((is_before, _PASSED), (is_update, _WILL_PASS))
    )
    own = [bracket(name) for name in dict.fromkeys([*own_columns(plan), *order_columns(plan), UPDATE_MASK])]
    values = [bracket(column.name) for column in plan.feed.table.stored_columns]
    doubt = _is_doubtful(plan)
    hidden = [
        name if not doubt or column.name in plan.feed.table.key
        # Nothing shows that the row had passed.
        else f"CASE WHEN {passes} = {_DOUBTFUL} THEN NULL ELSE {name} END AS {name}"
        for name, column in zip(values, plan.feed.table.stored_columns, strict=True)
    ]  # fmt: skip
    judged = f"CASE WHEN {filter_of(plan)} THEN 1{doubt} ELSE 0 END AS {passes}"
    return (
        f"SELECT {_select_list(plan, f'{kind} AS {operation}')}"  # noqa: S608
        f" FROM (SELECT {', '.join([*own, *hidden, passes, *others])}"
        f" FROM (SELECT {', '.join([*own, *values, judged])} FROM {images}) AS images) AS changes"
        f" WHERE {passes} > 0{needed}{ONE_WORKER}"
    )


def _is_doubtful(plan: TablePlan) -> str:
    """Return the branch of CASE for a delete without a value that the row had; "" where there can be none.

    Servers have written NULL in deletes for bit NOT NULL. A delete must come, whether the row had passed or not.
    """
    nulls = " OR ".join(f"{bracket(name)} IS NULL" for name in plan.filled)
    is_delete = f"{bracket(OPERATION)} = {Operation.DELETE.value}"
    return f" WHEN {is_delete} AND ({nulls}) THEN {_DOUBTFUL}" if nulls else ""


def select_net_changes(plan: TablePlan) -> str:
    """Return the SELECT of net changes. Parameters: from_lsn and to_lsn (both included).

    The mask distinguishes a LOB that was left out from NULL.
    """
    function = net_changes_function(plan.feed.identity.name)
    return f"SELECT {_select_list(plan)} FROM {function}(?, ?, N'all with mask')"  # noqa: S608


def select_position() -> str:
    """Return the SELECT of the newest LSN, and of the commit time of exactly one other. Parameter: that LSN."""
    at = "sys.fn_cdc_map_lsn_to_time(CAST(? AS binary(10)))"
    return f"SELECT sys.fn_cdc_get_max_lsn() AS max_lsn, {at} AS committed_at"


def select_cuts() -> str:
    """Return the SELECT of commit LSNs that divide a window into parts with equally many transactions.

    Parameters: parts, after_lsn, to_lsn. It reads the mapping table: on the change table it would read as much as the
    parts themselves.
    """
    return (
        "SELECT MAX(start_lsn) AS cut FROM ("
        "SELECT start_lsn, NTILE(?) OVER (ORDER BY start_lsn) AS part FROM cdc.lsn_time_mapping"
        " WHERE start_lsn > ? AND start_lsn <= ?) AS m GROUP BY part ORDER BY cut"
    )


def _has_new_key(table: SourceTable) -> str:
    """Return the condition that the update mask has the bit of a key column.

    ``sys.fn_cdc_is_bit_set`` would be called for each row.
    """
    mask = bracket(UPDATE_MASK)
    tests = [
        f"(CAST(SUBSTRING({mask}, DATALENGTH({mask}) - {place}, 1) AS int) & {bits}) <> 0"
        for place, bits in bits_by_byte(table.column(name).ordinal for name in table.key)
    ]
    return "(" + " OR ".join(tests) + ")"


def _select_list(plan: TablePlan, operation: str = bracket(OPERATION)) -> str:
    """Return the SELECT list. operation: the expression for the column of that name."""
    own = (operation if name == OPERATION else bracket(name) for name in own_columns(plan))
    return ", ".join([*own, *select_expressions(plan.feed.table, plan.settings.temporal)])


# --------------------------------------------------------------------------------------------------------------------
# The proof that the copy of the database behind a connection has what is about to be read from it.
#
# A session stays with the server that accepted it, and the log of a copy only grows. So what the copy has before a
# SELECT on the same connection, it has during it as well (docs/reference/sqlserver_cdc.md, "Readable copies").


_HINT = "If it persists, name one copy in the connection, or repair the copy that lags."


def require_entry(session: SourceSession, entry: LogEntry, subject: str) -> None:
    """Raise SourceBehindError unless the log behind the session has the entry, with its commit time."""
    [(max_lsn, found_at)] = session.fetch(select_position(), (entry.position.value,))
    if cause := explain_other_copy(entry, read_lsn(max_lsn), found_at):
        raise SourceBehindError(subject, cause, _HINT)


# --------------------------------------------------------------------------------------------------------------------
# The requirements of ``net: server`` on a capture instance.


_NEVER_IN_OLD_IMAGES = ("text", "ntext", "image")


def require_server_net(plan: TablePlan) -> None:
    """Raise ConfigError where the server's net changes cannot distinguish a value that was left out from NULL."""
    if not plan.feed.supports_net_changes:
        raise ConfigError(
            str(plan.source),
            f"net: server, but capture instance {plan.feed.identity.name} does not support net changes.",
            "Set net: spark, or enable the table with @supports_net_changes = 1.",
        )
    stored = plan.feed.table.stored_columns
    old = ", ".join(column.name for column in stored if column.type_name in _NEVER_IN_OLD_IMAGES)
    if old:
        raise ConfigError(
            str(plan.source),
            f"net: server cannot distinguish an unchanged value from NULL in text, ntext and image columns ({old}).",
            "Set net: spark.",
        )


# --------------------------------------------------------------------------------------------------------------------


_MOMENT = pa.timestamp("us")
_LSN, _OCTETS = pa.binary(10), np.dtype("S10")
"""An LSN has as many octets. NumPy compares such texts octet by octet; none is longer than another."""
_NO_COMMAND_ID = (
    "the change table has no __$command_id; changes of one transaction are ordered by __$seqval, which is not always "
    "the order in which they happened"
)


def open_cdc_reader(plan: TablePlan, end: LogEntry) -> CdcReader:
    """Return the reader over the connection that the environment names."""
    return CdcReader(plan, SqlServerConnection.from_json(os.environ[SOURCE_VARIABLE]), end)


class _CommitTimes:
    """The times of commits by LSN, in 18 bytes for each: a window may have as many commits as changes."""

    def __init__(self, commits: Sequence[tuple[pa.Array, pa.Array]]) -> None:
        lsns = np.concatenate([_octets(lsn) for lsn, _ in commits] or [np.empty(0, _OCTETS)])
        order = np.argsort(lsns, kind="stable")
        self._lsns = lsns[order]
        self._times = pa.concat_arrays([time for _, time in commits] or [pa.array([], _MOMENT)]).take(pa.array(order))

    def fill(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return a batch of changes with the times of their commits; NULL for a commit that is not known."""
        wanted = _octets(batch.column(START_LSN).cast(_LSN))
        places = np.searchsorted(self._lsns, wanted)
        known = np.append(self._lsns, b"")[places] == wanted
        column = batch.schema.get_field_index(COMMITTED_AT)
        times = self._times.take(pa.array(places, mask=~known))
        return batch.set_column(column, batch.schema.field(column), times)


def _octets(lsns: pa.FixedSizeBinaryArray) -> np.ndarray[Any, Any]:
    return np.frombuffer(lsns.buffers()[1], _OCTETS)[lsns.offset : lsns.offset + len(lsns)]


@dataclass(frozen=True)
class CdcReader(SqlServerReader):
    """``sync.ports.TableReader``."""

    @cached_property
    def shape(self) -> RowShape:
        table = self.plan.feed.table
        return RowShape(
            key=table.key,
            own=tuple((name, OWN_TYPES[name]) for name in own_columns(self.plan)),
            values=value_columns(table, self.plan.settings.temporal),
            order=order_columns(self.plan),
            position=START_LSN,
            operation=OPERATION,
            mask=UPDATE_MASK,
            command=COMMAND_ID if self.plan.feed.has_command_id else "",
            sequence=SEQVAL,
            committed_at=COMMITTED_AT if self.plan.has_commit_times else "",
            remark="" if self.plan.feed.has_command_id else _NO_COMMAND_ID,
        )

    def read(self, interval: Interval) -> Iterator[pa.RecordBatch]:
        if self.plan.has_commit_times:
            return self._read_timed((interval.after.value, interval.to.value))
        if self.plan.settings.net is NetSource.SERVER:
            require_server_net(self.plan)
            text, first = select_net_changes(self.plan), interval.first
        else:
            text, first = select_changes(self.plan), interval.after
        return self.read_text(text, (first.value, interval.to.value))

    def read_chunk(self, chunk: LoadChunk) -> Iterator[pa.RecordBatch]:
        batches = super().read_chunk(chunk)
        if self.plan.is_log or not self.plan.has_commit_times:
            return batches
        at = self._end_committed_at()
        return (batch.append_column(COMMITTED_AT, pa.repeat(at, batch.num_rows)) for batch in batches)

    def _read_timed(self, interval: tuple[bytes, bytes]) -> Iterator[pa.RecordBatch]:
        """Yield the changes with the times of their commits, by the clock of the server that answers."""
        with self.connected() as session:
            clock = read_clock(session, is_guessed=not self.plan.is_log)
            text = select_commits(has_zone=isinstance(clock[0], str), is_guessed=not self.plan.is_log)
            # Before the changes: the commit of a change is recorded with it.
            found = session.read_batches(str(self.plan.source), text, (*clock, *interval), BATCH_ROWS)
            times = _CommitTimes([(batch.column(0).cast(_LSN), batch.column(1).cast(_MOMENT)) for batch in found])
            for batch in self.read_over(session, select_changes(self.plan), interval):
                yield times.fill(batch)

    def _end_committed_at(self) -> pa.Scalar:
        """Return the time in UTC of the commit at which a load began."""
        end = self.end.position.value
        before = (int.from_bytes(end) - 1).to_bytes(len(end))
        with self.connected() as session:
            clock = read_clock(session, is_guessed=True)
            text = select_commits(has_zone=isinstance(clock[0], str), is_guessed=True)
            commits = session.fetch(text, (*clock, before, end))
        return pa.scalar(commits[0][1] if commits else None, pa.timestamp("us"))

    def require_end(self, session: SourceSession) -> None:
        require_entry(session, self.end, str(self.plan.source))


# --------------------------------------------------------------------------------------------------------------------
# The parts in which the changes of a window are read: planned once for all of its tables, over one connection.
#
# A part is a connection and a statement, so that a table with few changes is read in one. Larger tables are cut at
# commit LSNs, which split no transaction.


PART_CHANGES = 5_000
"""The number of changes for which a further part is worth its connection: some tens of milliseconds."""


def plan_cdc_reads(plan: WindowPlan, most: int) -> WindowReads:
    """Return the reads of the tables with changes, over the connection that the environment names."""
    return plan_reads(plan, most, SqlServerConnection.from_json(os.environ[SOURCE_VARIABLE]))


def plan_reads(plan: WindowPlan, most: int, source: SqlServerConnection) -> WindowReads:
    """Return the reads of the tables with changes, a read for each of their parts.

    most: the number of parts of a large table whose plan does not set it. A table whose changes could not be counted is
    read in one part. So are the server's net changes, which are those of the whole window.
    """
    tables = {index: each for index, each in enumerate(plan.tables) if each.interval is not None and not each.quiet}
    intervals, changes = _plan_parts(list(tables.values()), most, source, plan.pipeline)
    few = {name: number for name, number in changes.items() if number <= WHOLE_CHANGES}
    reads = []
    for index, table in tables.items():
        assert table.interval is not None  # noqa: S101  (they are the tables that have one)
        reader = CdcReader(table, source, plan.end)
        is_net = table.is_log or table.settings.net is NetSource.SERVER
        parts = intervals.get(table.source, [table.interval])
        # What is read in parts is brought together by key.
        known = few.get(table.source) if len(parts) == 1 else None
        reads += [TableRead(index, table, reader, part, known, is_net) for part in parts]
    is_counted = all(changes.get(table.source, COUNTED_CHANGES + 1) <= COUNTED_CHANGES for table in tables.values())
    return WindowReads(reads, changes=sum(changes.values()) if is_counted else None)


def _plan_parts(
    tables: Sequence[TablePlan], most: int, source: SqlServerConnection, pipeline: str
) -> tuple[dict[TableName, list[Interval]], dict[TableName, int]]:
    """Return the intervals of tables that are cut, and the changes of those that are counted (``COUNTED_CHANGES``).

    The source is asked only where a table may be cut, or may have few changes.
    """
    counted = [table for table in tables if not table.settings.partitions]
    whole_alone = {table.source for table in tables if table.settings.net is NetSource.SERVER}
    declared = {
        table.source: table.settings.partitions
        for table in tables
        if table.settings.partitions > 1 and table.source not in whole_alone
    }
    if not counted and not declared:
        return {}, {}
    whole = {table.source: table.interval for table in tables if table.interval is not None}
    with connect(source, subject=pipeline) as session:
        changes = _count_changes(session, counted)
        intervals: dict[TableName, list[Interval]] = {}
        cuts: dict[tuple[Interval, int], list[Position]] = {}
        may_be_cut = {name: number for name, number in changes.items() if name not in whole_alone}
        for name, number in (declared | choose_numbers(may_be_cut, most)).items():
            if number > 1:
                asked = (whole[name], max(most, number))
                if asked not in cuts:
                    cuts[asked] = _read_cuts(session, *asked)
                intervals[name] = cut_interval(asked[0], choose_cuts(cuts[asked], number))
    return intervals, changes


def cut_interval(interval: Interval, cuts: Sequence[Position]) -> list[Interval]:
    """Return ``interval`` in parts that end at ``cuts`` (ascending, inside the interval) and at its own end."""
    inner = [cut for cut in cuts if interval.after < cut < interval.to]
    ends = [interval.after, *inner, interval.to]
    return [Interval(after, to) for after, to in pairwise(ends)]


def choose_numbers(changes: Mapping[TableName, int], most: int) -> dict[TableName, int]:
    """Return the number of parts of each table, by the changes of all: a part of one table need not be cut to keep
    tasks busy that have other tables."""
    share = min(max(sum(changes.values()) // most, PART_CHANGES), WHOLE_CHANGES)
    return {
        name: 1 if number <= share else min(most, 1 + (number - 1) // PART_CHANGES) for name, number in changes.items()
    }


def choose_cuts(cuts: Sequence[Position], parts: int) -> list[Position]:
    """Return at most ``parts`` - 1 of the cuts, evenly distributed. The last one is the end of the window."""
    inner = cuts[:-1]
    if len(inner) < parts:
        return list(inner)
    return [inner[number * (len(inner) + 1) // parts - 1] for number in range(1, parts)]


def _count_changes(session: SourceSession, tables: Sequence[TablePlan]) -> dict[TableName, int]:
    asked = b"".join(_asked(table) for table in tables)
    counts = session.fetch(read_sql("count_changes"), (COUNTED_CHANGES + 1, asked)) if asked else []
    return {tables[number].source: changes for number, changes in counts}


def _asked(table: TablePlan) -> bytes:
    interval = table.interval
    assert interval is not None  # noqa: S101  (the caller has selected the tables that have one)
    return table.feed.identity.object_id.to_bytes(4) + interval.after.value + interval.to.value


def _read_cuts(session: SourceSession, interval: Interval, parts: int) -> list[Position]:
    parameters = (parts, interval.after.value, interval.to.value)
    return [Lsn(bytes(row[0])) for row in session.fetch(select_cuts(), parameters)]
