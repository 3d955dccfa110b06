"""The parts in which the changes of a window are read: planned once for all of its tables, over one connection.

A part is a connection and a statement, so that a table with few changes is read in one. Larger tables are cut at
commit LSNs, which split no transaction.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from itertools import pairwise

from floodmark.core.interval import Interval
from floodmark.core.job_variables import SOURCE_VARIABLE
from floodmark.core.lsn import Lsn
from floodmark.core.policies import NetSource
from floodmark.core.position import Position
from floodmark.core.schema import TableName
from floodmark.core.window.plan import TablePlan, WindowPlan
from floodmark.sources.cdc.rows import statements
from floodmark.sources.cdc.rows.feed import instance_of
from floodmark.sources.sqlserver.connection import SqlServerConnection
from floodmark.sources.sqlserver.driver import SourceSession, connect
from floodmark.sources.sqlserver.sql_files import read_sql
from floodmark.sync.ports.reader import TableParts

PART_CHANGES = 5_000
"""The number of changes for which a further part is worth its connection: some tens of milliseconds."""
WHOLE_CHANGES = 50_000
"""The most changes that are one part because other tables keep the other tasks busy: a task nets them in memory."""


def plan_cdc_parts(plan: WindowPlan, most: int) -> Mapping[TableName, TableParts]:
    """Return the parts of each table with changes, over the connection that the environment names."""
    return plan_parts(plan, most, SqlServerConnection.from_json(os.environ[SOURCE_VARIABLE]))


def plan_parts(plan: WindowPlan, most: int, source: SqlServerConnection) -> Mapping[TableName, TableParts]:
    """Return the parts of each table that is read from its change table.

    most: the number of parts of a large table whose plan does not set it. A table whose changes could not be counted is
    read in one part. The source is asked only where a table may be cut.
    """
    tables = [table for table in plan.tables if table.interval is not None and not table.quiet]
    intervals = {table.source: [table.interval] for table in tables if table.interval is not None}
    # The server's net changes are those of the whole window.
    counted = [table for table in tables if table.net is not NetSource.SERVER and not table.partitions]
    declared = [table for table in tables if table.net is not NetSource.SERVER and table.partitions > 1]
    if not counted and not declared:
        return {name: TableParts(each) for name, each in intervals.items()}
    with connect(source, subject=plan.pipeline) as session:
        changes = _count_changes(session, counted, most)
        wanted = {table.source: table.partitions for table in declared} | choose_numbers(changes, most)
        cuts: dict[tuple[Interval, int], list[Position]] = {}
        for name, number in wanted.items():
            if number > 1:
                asked = (intervals[name][0], max(most, number))
                if asked not in cuts:
                    cuts[asked] = _read_cuts(session, *asked)
                intervals[name] = cut_interval(asked[0], choose_cuts(cuts[asked], number))
    known = {name: number for name, number in changes.items() if number <= WHOLE_CHANGES}
    return {name: TableParts(each, known.get(name)) for name, each in intervals.items()}


def cut_interval(interval: Interval, cuts: Sequence[Position]) -> list[Interval]:
    """Return ``interval`` in parts that end at ``cuts`` (ascending, inside the interval) and at its own end."""
    inner = [cut for cut in cuts if interval.after_lsn < cut < interval.to_lsn]
    ends = [interval.after_lsn, *inner, interval.to_lsn]
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


def _count_changes(session: SourceSession, tables: Sequence[TablePlan], most: int) -> dict[TableName, int]:
    asked = b"".join(_asked(table) for table in tables)
    limit = max(PART_CHANGES * (most - 1), WHOLE_CHANGES) + 1
    counts = session.fetch(read_sql("count_changes"), (limit, asked)) if asked else []
    return {tables[number].source: changes for number, changes in counts}


def _asked(table: TablePlan) -> bytes:
    interval = table.interval
    assert interval is not None  # noqa: S101  (the caller has selected the tables that have one)
    return instance_of(table).identity.object_id.to_bytes(4) + interval.after_lsn.value + interval.to_lsn.value


def _read_cuts(session: SourceSession, interval: Interval, parts: int) -> list[Position]:
    parameters = (parts, interval.after_lsn.value, interval.to_lsn.value)
    return [Lsn(bytes(row[0])) for row in session.fetch(statements.select_cuts(), parameters)]
