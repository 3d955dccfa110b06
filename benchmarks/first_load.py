"""First loads of one table and their floor: drain the same chunks in as many parallel reads, and COPY the rows."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import chain, repeat
from multiprocessing import get_context
from pathlib import Path

import pyarrow as pa

from benchmarks import wide_table
from benchmarks.emulator import drain, source_connection
from benchmarks.measuring import Report, create_database, seconds
from benchmarks.window import FLOOR_TABLE, configure, create_staged, last_window, run, warehouse_connection
from floodmark.core.plan import LoadChunk, TablePlan, WindowPlan, plan_chunks, value_columns
from floodmark.postgres.warehouse.sink import ArrowSession, TextCheck, staging_batch, staging_schema
from floodmark.sources.cdc.reader import CdcReader
from floodmark.sources.sqlserver import rows
from floodmark.sources.sqlserver.driver import SqlServerConnection
from floodmark.spark.net import stamp_first_load
from floodmark_laptop.stack import Stack

LIMIT = 0.7
_SIZES = (1_000_000, 8_000_000)
_COPIED_ROWS = 1_000_000
"""The rows that are held in memory. More rows are these rows, repeated."""


def measure(stack: Stack, report: Report, folder: Path) -> None:
    report.add("## First loads, 8 columns, 4 parallel reads, 2 cores")
    rows: list[tuple[object, ...]] = []
    for size in _SIZES:
        database = _prepare(stack, size)
        figures = run(stack, configure(stack, folder, database), size, sample_memory=False)
        # Again for the memory: to sample it costs the load a tenth of its time.
        sampled = run(stack, configure(stack, folder, database, f"{database}_again"), size)
        drained, copied = _floor(stack, last_window(stack), database, size)
        share = (drained + copied) / figures.load_seconds
        rows.append(
            (
                f"{size:,}",
                f"{figures.load_seconds:.1f}",
                f"{drained:.1f}",
                f"{copied:.1f}",
                f"**{share:.0%}**",
                f"{sampled.peak_bytes / 1e6:,.0f}",
            )
        )
    header = ("rows", "load, seconds", "drain", "COPY", f"**floor / load** (at least {LIMIT:.0%})", "peak memory, MB")
    report.table(header, rows)


def _prepare(stack: Stack, rows: int) -> str:
    """Make a database with one table of so many rows, from before its capture. Return its name."""
    database = f"First{rows}"
    with stack.connect_source("master") as connection:
        create_database(connection, database)
    with stack.connect_source(database) as connection:
        wide_table.create(connection, tracked=False)
        wide_table.fill(connection, rows)
        cursor = connection.cursor()
        cursor.execute("EXEC sys.sp_cdc_enable_db")
        cursor.execute("EXEC sys.sp_cdc_enable_table N'dbo', N'Wide', @role_name = NULL, @supports_net_changes = 0")
        cursor.execute("EXEC emulator.run_capture")
    return database


def _floor(stack: Stack, plan: WindowPlan, database: str, rows: int) -> tuple[float, float]:
    """Seconds of drain and COPY."""
    table = plan.tables[0]
    source = source_connection(stack, database)
    reader = CdcReader(table, source, plan.end)
    chunks = plan_chunks(reader.read_chunk_bounds())
    # Processes, as those of Spark's workers; they have started before the clock.
    with ProcessPoolExecutor(table.settings.first_load.parallel_reads, get_context("forkserver")) as pool:
        list(pool.map(partial(_drain_chunk, source, table), [LoadChunk(0, None, (0,))] * 2 * len(chunks)))
        found: list[int] = []
        drained = seconds(lambda: found.extend(pool.map(partial(_drain_chunk, source, table), chunks)))
    if sum(found) != rows:
        raise RuntimeError(f"the chunks have {sum(found)} rows, not {rows}")
    return drained, _copy_seconds(stack, plan, reader, chunks, rows)


def _drain_chunk(source: SqlServerConnection, table: TablePlan, chunk: LoadChunk) -> int:
    text = rows.select_rows(table, chunk.after is not None, chunk.to is not None)
    bounds = [rows.bound_parameters(table.feed.table, each) for each in (chunk.after, chunk.to) if each]
    return drain(source, text, tuple(chain(*bounds)))


def _copy_seconds(stack: Stack, plan: WindowPlan, reader: CdcReader, chunks: Sequence[LoadChunk], rows: int) -> float:
    table = plan.tables[0]
    columns = value_columns(table.feed.table, table.settings.temporal)
    check, schema = TextCheck(table, columns), staging_schema(table, columns)
    held: list[pa.RecordBatch] = []
    for batch in stamp_first_load(chain.from_iterable(map(reader.read_chunk, chunks)), reader.shape, plan.to.value):
        held.append(staging_batch(*check.apply(batch), columns, 0, schema))
        if sum(each.num_rows for each in held) >= _COPIED_ROWS:
            break
    with stack.connect_warehouse() as connection:
        create_staged(connection, table.target, schema)
        connection.commit()

    def copy() -> None:
        with ArrowSession(warehouse_connection(stack), "floor") as session:
            session.copy(FLOOR_TABLE, schema, chain.from_iterable(repeat(held, rows // _COPIED_ROWS)))
            session.commit()

    return seconds(copy)
