"""One window of changes: the whole load and its floor, and the memory of the Spark process.

The floor is what no pipeline can do without, measured in the same run on the same rows: drain the window's statement
with mssql-python's Arrow reader and throw the rows away, COPY the same rows by ADBC, and one bare MERGE.
"""

from __future__ import annotations

import re
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import psutil
import psycopg
import pyarrow as pa
import yaml

from benchmarks import wide_table
from benchmarks.emulator import drain, source_connection, wait_until_captured
from benchmarks.measuring import MASK_KEY, Report, create_database, median_seconds, peak_memory, seconds
from floodmark.core.plan import WindowPlan, value_columns
from floodmark.core.schema import TableName
from floodmark.postgres.ledger.ledger import PostgresLedger
from floodmark.postgres.session import WarehouseConnection
from floodmark.postgres.warehouse.sink import ArrowSession, TextCheck, staging_batch, staging_schema
from floodmark.sources.cdc.reader import CdcReader, select_changes
from floodmark.spark.net import collapse_changes
from floodmark_laptop.stack import Stack

LIMIT, MASKS_LIMIT = 1.0, 1.15
HASHED = ("Quantity", "Name")
_RATIO_ROWS = 1_000_000
_WINDOW_ROWS = (100_000, 3_000_000, _RATIO_ROWS)
"""The last is the one that is timed."""
_TIMED_LOADS = 3
FLOOR_TABLE = TableName("floor", "staged")
_FLOOR_TARGET = TableName("floor", "target")


@dataclass(frozen=True)
class LoadFigures:
    """Of one ``floodmark run``. load: without the start of the JVM, which is ``start``; 0 where none was needed."""

    rows: int
    start_seconds: float
    load_seconds: float
    peak_bytes: int


def measure(stack: Stack, report: Report, folder: Path) -> None:
    report.add("## A window of changes, 8 columns, 2 cores")
    figures = []
    for rows in _WINDOW_ROWS:
        database = f"Window{rows}"
        config = prepare(stack, folder, database, rows)
        run(stack, config, rows)  # the first load
        with stack.connect_source(database) as connection:
            wide_table.change_all(connection, rows)
        wait_until_captured(stack, database, 2 * rows, "WHERE __$operation <> 3")
        figures.append(run(stack, config, rows))
    # Again for the clock alone: to sample memory costs the load a tenth of its time.
    columns = {name: {"mask": "hash"} for name in HASHED}
    masked = configure(stack, folder, database, f"{database}_masked", columns=columns, mask_key_conn_id=MASK_KEY)
    run(stack, masked, rows, sample_memory=False)  # the first load
    timed, masked_seconds = [], []
    for number in range(_TIMED_LOADS):
        with stack.connect_source(database) as connection:
            wide_table.change_all(connection, rows)
        wait_until_captured(stack, database, (3 + number) * rows, "WHERE __$operation <> 3")
        timed.append(run(stack, config, rows, sample_memory=False))
        plan = last_window(stack)
        masked_seconds.append(run(stack, masked, rows, sample_memory=False).load_seconds)
    drained, copied, merged = measure_floor(stack, plan, f"Window{_RATIO_ROWS}")
    floor = drained + copied + merged
    whole = statistics.median(each.load_seconds for each in timed)
    start = statistics.median(each.start_seconds for each in timed)
    with_masks = statistics.median(masked_seconds)
    report.table(
        (f"{_RATIO_ROWS:,} changed rows", "seconds"),
        [
            (f"load: read, net, stage, merge, median of {_TIMED_LOADS}", f"{whole:.1f}"),
            ("– each of them", ", ".join(f"{each.load_seconds:.1f}" for each in timed)),
            ("floor", f"{floor:.1f}"),
            ("– drain the same statement, Arrow", f"{drained:.1f}"),
            ("– COPY of the same rows, ADBC", f"{copied:.1f}"),
            ("– bare MERGE", f"{merged:.1f}"),
            (f"**load / floor** (at most {LIMIT})", f"**{whole / floor:.2f}**"),
            ("start of the JVM and Spark, apart", f"{start:.1f}"),
            (f"load with hashes of {len(HASHED)} columns, median of {_TIMED_LOADS}", f"{with_masks:.1f}"),
            (f"**with hashes / without** (at most {MASKS_LIMIT})", f"**{with_masks / whole:.2f}**"),
        ],
    )
    report.table(
        ("rows in the window", "peak memory of the load's processes, MB (shared pages counted once)"),
        [(f"{each.rows:,}", f"{each.peak_bytes / 1e6:,.0f}") for each in sorted(figures, key=lambda each: each.rows)],
    )


def prepare(stack: Stack, folder: Path, database: str, rows: int) -> Path:
    """Make a database with one table of so many rows, all captured. Return its configuration."""
    with stack.connect_source("master") as connection:
        create_database(connection, database)
    with stack.connect_source(database) as connection:
        connection.cursor().execute("EXEC sys.sp_cdc_enable_db")
        wide_table.create(connection, tracked=True)
        wide_table.fill(connection, rows)
    wait_until_captured(stack, database, rows, "")
    return configure(stack, folder, database)


def configure(stack: Stack, folder: Path, database: str, name: str = "", **settings: object) -> Path:
    """Return the configuration of a pipeline with the wide table of a database, which has these settings.

    name: by default the database's.
    """
    stack.use_source_database(database)
    name = (name or database).lower()
    config = folder / f"{name}.yaml"
    table = {"source": "dbo.Wide", "target": f"speed.{name}"} | settings
    document = {
        # A source of its own: what the ledger knows of a source's tables is true of one database.
        "sources": {name: {"conn_id": stack.connection_id}},
        "warehouse": {"conn_id": "warehouse"},
        "pipelines": {name: {"source": name, "schedule": "0 0 1 1 *", "tables": [table]}},
    }
    config.write_text(yaml.safe_dump(document), encoding="utf-8")
    return config


def run(stack: Stack, config: Path, rows: int, *, sample_memory: bool = True) -> LoadFigures:
    """One ``floodmark run``; its words tell the seconds."""
    command = [str(Path(sys.executable).parent / "floodmark"), "run", config.stem, "--config", str(config)]
    words = config.with_suffix(".log")
    with words.open("w+", encoding="utf-8") as output:
        process = subprocess.Popen(command, env=stack.airflow.environment(), stdout=output, stderr=output)
        with peak_memory(lambda: _spark_processes(process.pid) if sample_memory else []) as peak:
            status = process.wait()
    text = words.read_text(encoding="utf-8")
    if status != 0:
        raise RuntimeError(f"floodmark run ended with {status}:\n{text[-2000:]}")
    start = re.search(r"is up after ([\d.]+) s", text)
    load = re.search(r"The load took ([\d.]+) s", text)
    if load is None:
        raise RuntimeError(f"the load did not say how long it took:\n{text[-2000:]}")
    return LoadFigures(rows, float(start[1]) if start else 0.0, float(load[1]), peak[0])


def _spark_processes(pid: int) -> list[int]:
    """The children of the command: spark-submit, its Python driver and workers."""
    try:
        return [child.pid for child in psutil.Process(pid).children(recursive=True)]
    except psutil.Error:
        return []


def warehouse_connection(stack: Stack) -> WarehouseConnection:
    return WarehouseConnection(**stack.warehouse_address)


def last_window(stack: Stack) -> WindowPlan:
    with stack.connect_warehouse() as connection:
        row = connection.execute("SELECT max(window_id) FROM floodmark.windows").fetchone()
    if row is None:
        raise RuntimeError("the ledger has no window")
    return PostgresLedger(warehouse_connection(stack)).read_window(row[0]).plan


def measure_floor(stack: Stack, plan: WindowPlan, database: str, *, shift: int = 0) -> tuple[float, float, float]:
    """Seconds of drain, COPY and MERGE.

    The MERGE is into a copy of the target, or with a shift into the target itself, into the rows so many keys further.
    """
    table = plan.tables[0]
    interval = table.interval
    if interval is None:
        raise RuntimeError("the last window is a first load")
    source = source_connection(stack, database)
    bounds = (interval.after.value, interval.to.value)
    drained = median_seconds(lambda: drain(source, select_changes(table), bounds))
    columns = value_columns(table.feed.table, table.settings.temporal)
    warehouse = warehouse_connection(stack)
    reader = CdcReader(table, source, plan.end)
    check = TextCheck(table, columns)
    changes = collapse_changes(reader.read(interval), reader.shape)
    schema = staging_schema(table, columns)
    batches = [staging_batch(*check.apply(batch), columns, 0, schema) for batch in changes]
    with stack.connect_warehouse() as connection:
        create_staged(connection, table.target, schema)
        if not shift:
            _copy_target(connection, table.target)
        connection.commit()

    def copy() -> None:
        with ArrowSession(warehouse, "floor") as session:
            session.execute("TRUNCATE floor.staged")
            session.copy(FLOOR_TABLE, schema, batches)
            session.commit()

    copied = median_seconds(copy)
    with stack.connect_warehouse() as connection:
        connection.execute("ANALYZE floor.staged")
        connection.commit()
        target = table.target if shift else _FLOOR_TARGET
        merged = seconds(lambda: _merge(connection, target, [column.name for column in columns], shift))
    return drained, copied, merged


def _copy_target(connection: psycopg.Connection, target: TableName) -> None:
    connection.execute(f"CREATE TABLE {_FLOOR_TARGET} AS SELECT * FROM {target}")
    connection.execute(f'ALTER TABLE {_FLOOR_TARGET} ADD PRIMARY KEY ("ID")')


def create_staged(connection: psycopg.Connection, target: TableName, schema: pa.Schema) -> None:
    """Create FLOOR_TABLE, with the columns that COPY sends, in a new schema."""
    connection.execute("SET LOCAL ROLE floodmark")  # whom COPY comes as
    connection.execute("DROP SCHEMA IF EXISTS floor CASCADE")
    connection.execute("CREATE SCHEMA floor")
    own = {"__lsn": "bytea", "__op": "smallint", "__part": "integer", "__unstorable": "text"}
    names = [f'"{name}"' for name in schema.names if name not in own and not name.startswith("__keep_")]
    like = f"SELECT {', '.join(names)} FROM {target.schema}.{target.name} LIMIT 0"
    connection.execute(f"CREATE UNLOGGED TABLE floor.staged AS {like}")
    for name in schema.names:
        if name in own or name.startswith("__keep_"):
            connection.execute(f'ALTER TABLE floor.staged ADD COLUMN "{name}" {own.get(name, "boolean")}')


def _merge(connection: psycopg.Connection, target: TableName, columns: list[str], shift: int) -> None:
    names = [f'"{name}"' for name in columns]
    settings = ", ".join(f"{name} = s.{name}" for name in names if name != '"ID"')
    connection.execute(
        f'MERGE INTO {target} AS t USING floor.staged AS s ON t."ID" = s."ID" + {shift} '
        f"WHEN MATCHED THEN UPDATE SET {settings}, __lsn = s.__lsn, __op = s.__op "
        f"WHEN NOT MATCHED THEN INSERT ({', '.join(names)}) VALUES ({', '.join('s.' + name for name in names)})"
    )
    connection.commit()
