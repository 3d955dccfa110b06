"""Windows into a lake: with those of PostgreSQL in one run, many tables published at once, scans, and small tables.

The targets' rows are made in the warehouses, as in ``large_targets``. The lake's windows are loaded in this process,
one after the other: the first with a Java that has merged nothing before, the others with one that is warm. A run of
Floodmark starts a Java for its load and another one for its checks.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from pathlib import Path

import psycopg
from pyspark import SparkContext

from benchmarks import many_tables
from benchmarks.emulator import source_connection, wait_until_captured
from benchmarks.large_targets import SEEDS, fill_target, insert_changes, prepare_source
from benchmarks.measuring import Report, cpu_seconds
from benchmarks.window import configure, last_window, run, warehouse_connection
from floodmark.core.plan import TableCounts, TablePlan, WindowPlan
from floodmark.core.schema import TableName
from floodmark.core.settings import SOURCE_VARIABLE, PipelineSettings, TableSettings
from floodmark.core.snapshot import LogEntry
from floodmark.iceberg.checks import IcebergQuality
from floodmark.iceberg.folder import LakeFolder
from floodmark.iceberg.lake import CATALOG_SCHEMA
from floodmark.iceberg.tables import spark_name
from floodmark.iceberg.upkeep import LakeUpkeep
from floodmark.iceberg.warehouse import IcebergWarehouse
from floodmark.postgres.ledger.ledger import PostgresLedger
from floodmark.sources.cdc.reader import CdcReader, plan_cdc_reads
from floodmark.sources.cdc.source import SqlServerSource
from floodmark.sources.sqlserver.driver import SqlServerConnection
from floodmark.spark.engine import ClassicEngine
from floodmark.spark.lake_session import LakeSpark
from floodmark.spark.launch.target import SparkTarget
from floodmark.spark.stager import SparkStager
from floodmark.sync.finish import advance_window
from floodmark.sync.load import load_window
from floodmark.sync.open_window import open_window
from floodmark.sync.ports import StagedRows
from floodmark_laptop.stack import Stack

CPU_LIMIT, PUBLISH_LIMIT, SCAN_LIMIT, SMALL_LIMIT = 10.0, 0.050, 1.3, 0.5
_DATABASE, _TARGET = "Lake", TableName("speed", "lake")
_ROWS, _CHANGES, _WINDOWS = 5_000_000, 200_000, 3
_PUBLISHED = 500
_SMALL_TABLES, _SMALL_ROWS, _SMALL_CHANGES = 6, 100, 15
_ROUNDS = 3
_FILL = """
INSERT INTO lake.speed.lake SELECT int(id), id * 7000000001, concat('näme ', id), decimal(id + 0.25),
  timestamp_ntz '2026-03-01 12:00', id % 2 = 0, '00000000-0000-0000-0000-000000000000', X'0000000000000000',
  X'00000000000000000001', 2, 0, current_timestamp(), false
FROM range({rows})
"""
_SHOW = f"""
INSERT INTO {CATALOG_SCHEMA}.iceberg_tables (catalog_name, table_namespace, table_name, metadata_location, iceberg_type)
SELECT catalog, %(schema)s, name, '/of/' || catalog, 'TABLE'
FROM unnest(%(names)s::text[]) AS name, unnest(ARRAY['lake', 'next']) AS catalog
"""
_BEGIN = f"""
INSERT INTO {CATALOG_SCHEMA}.lake_tables (target_schema, target_name, window_id, attempt, base, checked)
SELECT %(schema)s, name, %(window_id)s, %(attempt)s, '/of/lake', '/of/next' FROM unnest(%(names)s::text[]) AS name
"""


@dataclass(frozen=True)
class _Figures:
    """A window's load in the lake. cpu: of Java and of this process, which stages and drives."""

    load_seconds: float
    merge_seconds: float
    load_cpu: float
    finish_cpu: float


class _TimedWarehouse(IcebergWarehouse):
    merge_seconds = 0.0

    def merge_window(
        self, plan: WindowPlan, staged: Mapping[TableName, StagedRows] | None = None
    ) -> Mapping[TableName, TableCounts]:
        began = time.perf_counter()
        try:
            return super().merge_window(plan, staged)
        finally:
            self.merge_seconds = time.perf_counter() - began


@dataclass
class _Lake:
    """A lake whose windows are loaded in this process."""

    stack: Stack
    folder: Path
    spark: LakeSpark = field(default_factory=lambda: LakeSpark(SparkTarget, s3=False))
    warehouse: _TimedWarehouse = field(init=False)
    ledger: PostgresLedger = field(init=False)

    def __post_init__(self) -> None:
        at = warehouse_connection(self.stack)
        self.ledger = PostgresLedger(at)
        self.warehouse = _TimedWarehouse(LakeFolder(str(self.folder)), at, self.spark.open)

    def run(self, settings: PipelineSettings, database: str) -> _Figures:
        """Open a window, load, check and publish it."""
        at = source_connection(self.stack, database)
        os.environ[SOURCE_VARIABLE] = at.to_json()
        source = SqlServerSource(at)
        opened = open_window(settings, source, self.ledger)
        if opened.window_id is None:
            raise RuntimeError(f"there is no window to load: {opened}")
        stager = SparkStager(lambda: ClassicEngine(self.spark.open()), partial(_open_reader, at), plan_cdc_reads)
        self.spark.open()
        with _cpu() as loading:
            began = time.perf_counter()
            counts = load_window(opened.window_id, self.ledger, self.warehouse, source, stager)
            loaded = time.perf_counter() - began
        with _cpu() as finishing:
            plan = self.ledger.read_window(opened.window_id).plan
            if refused := IcebergQuality(self.warehouse, lambda: None).check_window(plan, counts):
                raise RuntimeError(f"the checks refused {refused}")
            self.ledger.mark_checked(opened.window_id)
            advance_window(opened.window_id, self.ledger, self.warehouse)
        return _Figures(loaded, self.warehouse.merge_seconds, loading[0], finishing[0])

    def scan_cpu(self) -> float:
        """Return the processor time of one reading of all columns, the median of three."""
        return statistics.median(self._scan() for _ in range(_ROUNDS))

    def _scan(self) -> float:
        living = f"SELECT * FROM {spark_name('lake', _TARGET.schema, _TARGET.name)} WHERE NOT __deleted"
        with _cpu() as taken:
            self.warehouse.session().sql(living).write.format("noop").mode("overwrite").save()
        return taken[0]


def _open_reader(at: SqlServerConnection, plan: TablePlan, end: LogEntry) -> CdcReader:
    return CdcReader(plan, at, end)


@contextmanager
def _cpu() -> Iterator[list[float]]:
    """Yield a list that gets the processor seconds of this process and of Java during the block."""
    taken: list[float] = []
    gateway = SparkContext._gateway
    if gateway is None:
        raise RuntimeError("no Java runs")
    pid = gateway.proc.pid
    before = cpu_seconds(pid) + time.process_time()
    yield taken
    taken.append(cpu_seconds(pid) + time.process_time() - before)


def measure(stack: Stack, report: Report, folder: Path) -> None:
    report.add(f"## A lake: {_CHANGES:,} updates spread over {_ROWS:,} rows of 8 columns, 2 cores")
    lake = _Lake(stack, folder / "lake")
    try:
        windows, postgres, scans = _measure_windows(lake, folder)
        small = _measure_small(lake, folder)
        published = _measure_publication(lake)
    finally:
        lake.spark.close()
    report.table(
        (
            "window",
            "load, seconds",
            "– of it the MERGE",
            "CPU of the load",
            "CPU of checks and publication",
            "load of PostgreSQL, seconds",
        ),
        [
            (
                f"{number}, Java is {'warm' if number > 1 else 'new'}",
                f"{each.load_seconds:.1f}",
                f"{each.merge_seconds:.1f}",
                f"**{each.load_cpu:.1f}** (at most {CPU_LIMIT:g})" if number > 1 else f"{each.load_cpu:.1f}",
                f"{each.finish_cpu:.1f}",
                f"{load:.1f}",
            )
            for number, (each, load) in enumerate(zip(windows, postgres, strict=True), 1)
        ],
    )
    fresh, used, kept = scans
    merge = statistics.median(each.merge_seconds for each in small) / _SMALL_TABLES
    report.table(
        ("what", "figure", "at most"),
        [
            ("CPU seconds of a scan, no window", f"{fresh:.1f}", ""),
            (f"– after {_WINDOWS} windows / no window", f"{used / fresh:.2f}", f"{SCAN_LIMIT}"),
            ("– after upkeep / no window", f"{kept / fresh:.2f}", f"{SCAN_LIMIT}"),
            (
                f"publication of {_PUBLISHED} tables, ms",
                f"{published * 1e3:.0f}",
                f"{PUBLISH_LIMIT * 1e3:.0f}",
            ),
            (
                f"MERGE of {_SMALL_TABLES} tables of {_SMALL_ROWS} rows, {_SMALL_CHANGES} changed, seconds a table",
                f"{merge:.2f}",
                f"{SMALL_LIMIT}",
            ),
        ],
    )


def _measure_windows(lake: _Lake, folder: Path) -> tuple[list[_Figures], list[float], tuple[float, float, float]]:
    """Load the same windows into the lake and into PostgreSQL.

    Return the figures of the lake, the seconds of PostgreSQL's loads, and the processor seconds of a scan before the
    windows, after them, and after upkeep.
    """
    stack = lake.stack
    prepare_source(stack, _DATABASE)
    settings = PipelineSettings("lake", (TableSettings(TableName("dbo", "Wide"), _TARGET),))
    lake.run(settings, _DATABASE)  # the first load, of no row: it creates the target
    lake.warehouse.session().sql(_FILL.format(rows=_ROWS))
    config = configure(stack, folder, _DATABASE, "lake_in_postgres")
    run(stack, config, 0, sample_memory=False)
    fill_target(stack, last_window(stack).tables[0].target, _ROWS)
    fresh = lake.scan_cpu()
    windows, postgres = [], []
    for number in range(_WINDOWS):
        _change(stack, number)
        windows.append(lake.run(settings, _DATABASE))
        postgres.append(run(stack, config, _CHANGES, sample_memory=False).load_seconds)
    used = lake.scan_cpu()
    for _ in LakeUpkeep(lake.warehouse, lambda: None).keep_tables([_TARGET], timedelta(days=7), rewrites=True):
        pass
    return windows, postgres, (fresh, used, lake.scan_cpu())


def _change(stack: Stack, number: int) -> None:
    """Change rows with every so many keys: as inserts at the source the first time, then as updates."""
    if number == 0:
        insert_changes(stack, _DATABASE, _CHANGES, _ROWS // _CHANGES)
    else:
        with stack.connect_source(_DATABASE) as connection:
            connection.cursor().execute("UPDATE dbo.Wide SET Quantity = Quantity + 1, Amount = Amount + 1")
    wait_until_captured(stack, _DATABASE, 2 * SEEDS + (number + 1) * _CHANGES, "WHERE __$operation <> 3")


def _measure_small(lake: _Lake, folder: Path) -> list[_Figures]:
    """Load windows of small tables; the first is left out."""
    stack = lake.stack
    config, names = many_tables.prepare(stack, folder, _SMALL_TABLES, _SMALL_ROWS)
    tables = (TableSettings(TableName("dbo", name), TableName("small", name.lower())) for name in names)
    settings = PipelineSettings("small", tuple(tables), source_name="small")
    figures = []
    for _ in range(_ROUNDS + 2):
        figures.append(lake.run(settings, config.stem))
        with stack.connect_source(config.stem) as connection:
            for name in names:
                connection.cursor().execute(f"UPDATE dbo.{name} SET Amount = Amount + 1 WHERE ID < {_SMALL_CHANGES}")
            connection.cursor().execute("EXEC emulator.run_capture")
    return figures[2:]


def _measure_publication(lake: _Lake) -> float:
    """Return the seconds in which the tables of a window become visible, of rows of the catalog without files."""
    plan = last_window(lake.stack)
    names = [f"published_{number}" for number in range(_PUBLISHED)]
    copies = (
        replace(plan.tables[0], settings=replace(plan.tables[0].settings, target=TableName("small", name)))
        for name in names
    )
    plan = replace(plan, tables=tuple(copies))
    named = {"schema": "small", "names": names, "window_id": plan.window_id, "attempt": plan.attempt}
    taken = []
    for _ in range(_ROUNDS):
        with lake.stack.connect_warehouse() as session:
            session.execute(_SHOW, named)
            session.execute(_BEGIN, named)
            session.commit()
            taken.append(_seconds_to_publish(lake, plan, session))
            for table in ("iceberg_tables", "lake_tables"):
                column = "table_name" if table == "iceberg_tables" else "target_name"
                session.execute(f"DELETE FROM {CATALOG_SCHEMA}.{table} WHERE {column} LIKE 'published\\_%'")
    return statistics.median(taken)


def _seconds_to_publish(lake: _Lake, plan: WindowPlan, session: psycopg.Connection) -> float:
    began = time.perf_counter()
    lake.warehouse.catalog.publish(plan, session)
    session.commit()
    return time.perf_counter() - began
