"""What a source is asked: connections, batches and rows of control queries, for few and for many tables.

``python -m benchmarks.asked`` measures this section alone.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from benchmarks.emulator import source_connection
from benchmarks.measuring import Report, create_database
from floodmark.core.plan import LoadKind, TablePlan, WindowPlan
from floodmark.core.position import Interval, Lsn
from floodmark.core.schema import TableName
from floodmark.core.settings import TableSettings
from floodmark.core.snapshot import SourceSnapshot
from floodmark.sources.cdc import reader
from floodmark.sources.cdc.source import SqlServerSource
from floodmark.sources.sqlserver import driver
from floodmark.sources.sqlserver.driver import SqlServerConnection
from floodmark_laptop.stack import Stack

CORES = 16
TRANSACTIONS = 20
"""The transactions of each changed table, of one row each."""
BEFORE = {
    (5, False): "1 / 2 / 92",
    (5, True): "53 / 157 / 284",
    (500, False): "1 / 2 / 9,002",
    (500, True): "342 / 1,024 / 18,665",
}
"""The same before parts followed the changes of a table (docs/adr/0046), measured by these functions."""


@dataclass
class Asked:
    """A count of what is sent to a source."""

    connections: int = 0
    batches: int = 0
    """With the settings of a session."""
    control_rows: int = 0
    """The rows that are no changes."""

    def __str__(self) -> str:
        return f"{self.connections:,} / {self.batches:,} / {self.control_rows:,}"


def measure(stack: Stack, report: Report) -> None:
    report.add(f"## What the source is asked, {CORES} cores of Spark, {TRANSACTIONS} transactions a changed table")
    rows: list[tuple[object, ...]] = []
    for tables, changed in ((5, 3), (500, 20)):
        quiet, window = count(stack, tables, changed)
        rows.append((f"{tables} tables, no change", BEFORE[tables, False], str(quiet)))
        rows.append((f"{tables} tables, {changed} changed", BEFORE[tables, True], str(window)))
    report.table(("connections / batches / rows of control queries", "before", "now"), rows)


def count(stack: Stack, tables: int, changed: int) -> tuple[Asked, Asked]:
    """Return what a run without changes asks, and a run with a window of some changed tables."""
    database = f"Asked{tables}"
    names = prepare(stack, database, tables)
    source = source_connection(stack, database)
    quiet, after = ask_nothing_new(source, names)
    change(stack, database, names[:changed])
    window, read = ask_window(source, names, after)
    if read != changed * TRANSACTIONS:
        raise RuntimeError(f"{read} changes were read")
    return quiet, window


def ask_nothing_new(source: SqlServerConnection, names: Sequence[TableName]) -> tuple[Asked, Lsn]:
    """Return the count of a run without changes, and the position that it found."""
    with counted() as asked:
        snapshot = SqlServerSource(source).read_snapshot(names)
    if not isinstance(snapshot.newest, Lsn):
        raise RuntimeError("the source has captured nothing")
    return asked, snapshot.newest


def ask_window(source: SqlServerConnection, names: Sequence[TableName], after: Lsn) -> tuple[Asked, int]:
    """Return the count of a run with a window, and the changes that were read."""
    with counted() as asked:
        plan = _plan(after, SqlServerSource(source).read_snapshot(names))
        tasks = reader.plan_reads(plan, CORES, source).tasks
        read = sum(found.num_rows for task in tasks for _, found in task.read() if isinstance(found, pa.RecordBatch))
        SqlServerSource(source).read_snapshot(names, None, [plan.to])
    return asked, read


def prepare(stack: Stack, database: str, tables: int) -> list[TableName]:
    """Create a database with tracked tables of one row each. Return their names."""
    with stack.connect_source("master") as connection:
        create_database(connection, database)
    names = [TableName("dbo", f"T{number:03d}") for number in range(tables)]
    with stack.connect_source(database) as connection:
        cursor = connection.cursor()
        cursor.execute("EXEC sys.sp_cdc_enable_db")
        for name in names:
            cursor.execute(f"CREATE TABLE {name} (ID int NOT NULL PRIMARY KEY, Name nvarchar(40), Amount money)")
            cursor.execute(f"EXEC sys.sp_cdc_enable_table N'dbo', N'{name.name}', @role_name = NULL")
        for name in names:
            cursor.execute(f"INSERT INTO {name} VALUES (0, N'first', 0)")
        cursor.execute("EXEC emulator.run_capture")
    return names


def change(stack: Stack, database: str, names: Sequence[TableName]) -> None:
    """Insert rows into some tables, one row a transaction, and wait until they are captured."""
    with stack.connect_source(database) as connection:
        cursor = connection.cursor()
        for number in range(TRANSACTIONS):
            for name in names:
                cursor.execute(f"INSERT INTO {name} VALUES ({number + 1}, N'next', 1)")
        cursor.execute("EXEC emulator.run_capture")


def _plan(after: Lsn, now: SourceSnapshot) -> WindowPlan:
    to = now.newest
    if not isinstance(to, Lsn):
        raise RuntimeError("the source has captured nothing")
    tables = []
    for each in now.tables:
        if each.feed is None:
            raise RuntimeError(f"{each.table} has no instance")
        tables.append(
            TablePlan(
                settings=TableSettings(each.table, each.table),
                kind=LoadKind.CHANGES,
                feed=each.feed,
                interval=Interval(after, to),
                watermark=after,
                quiet=isinstance(each.last_change, Lsn) and each.last_change <= after,
            )
        )
    return WindowPlan(1, "asked", to, tuple(tables), to_at=now.newest_at)


@contextmanager
def counted() -> Iterator[Asked]:
    """Count what the driver's sessions of this process send during the block."""
    asked = Asked()
    kind = driver.SourceSession
    opened, fetched, limited, streamed = kind.__init__, kind.fetch_sets, kind.limit_lock_waits, kind.read_batches

    def count_connection(session: driver.SourceSession, *given: Any, **named: Any) -> None:
        asked.connections += 1
        opened(session, *given, **named)

    def count_fetch(session: driver.SourceSession, *given: Any, **named: Any) -> Any:
        asked.batches += 1
        sets = fetched(session, *given, **named)
        asked.control_rows += sum(len(rows) for rows in sets)
        return sets

    def count_setting(session: driver.SourceSession, *given: Any, **named: Any) -> None:
        asked.batches += 1
        limited(session, *given, **named)

    def count_stream(session: driver.SourceSession, *given: Any, **named: Any) -> Any:
        asked.batches += 1
        return streamed(session, *given, **named)

    replaced = {
        "__init__": count_connection,
        "fetch_sets": count_fetch,
        "limit_lock_waits": count_setting,
        "read_batches": count_stream,
    }
    for name, function in replaced.items():
        setattr(kind, name, function)
    try:
        yield asked
    finally:
        for name, original in zip(replaced, (opened, fetched, limited, streamed), strict=True):
            setattr(kind, name, original)


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="floodmark-bench-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        with Stack(folder / "stack", print) as stack:
            measure(stack, Report())


if __name__ == "__main__":
    main()
