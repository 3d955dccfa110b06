"""Windows of changes that are spread over large targets, and the floor of each: drain, COPY and a bare MERGE.

The target's rows are made in the warehouse, and the source inserts rows with keys of the target, so that each change is
an update there. The floor's MERGE updates as many other rows of the same target, on other pages.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks import wide_table
from benchmarks.emulator import wait_until_captured
from benchmarks.measuring import Report, create_database
from benchmarks.window import configure, last_window, measure_floor, run
from floodmark.core.schema import TableName
from floodmark_laptop.stack import Stack

LIMIT = 1.3
_CHANGES = 200_000
_SIZES = (1_000_000, 8_000_000, 30_000_000)
SEEDS = 1000
_TRANSACTION = 100_000
_INSERT = """
INSERT INTO dbo.Wide (ID, Quantity, Name, Amount, ChangedAt, IsActive, ExternalID, Payload)
SELECT N * {stride}, N, N'changed', N, '2026-03-02T12:00:00', 1, NULL, 0x00 FROM dbo.Numbers
WHERE N >= {first} AND N < {first} + {rows}
"""
_FILL = """
INSERT INTO {target} SELECT n, n * 7000000001, 'näme ' || n, n + 0.25, timestamp '2026-03-01 12:00', n % 2 = 0,
  '00000000-0000-0000-0000-000000000000'::uuid, '\\x0000000000000000'::bytea,
  decode('00000000000000000001', 'hex'), 2, 0, now(), false
FROM generate_series(0, {rows} - 1) AS n
"""


def measure(stack: Stack, report: Report, folder: Path) -> None:
    report.add(f"## {_CHANGES:,} updates spread over large targets, 8 columns, 2 cores")
    rows: list[tuple[object, ...]] = []
    for size in _SIZES:
        load, parts = _measure(stack, folder, size)
        cells = (f"{each:.1f}" for each in (load, sum(parts), *parts))
        rows.append((f"{size:,}", *cells, f"**{load / sum(parts):.2f}**"))
    header = ("rows of the target", "load, seconds", "floor", "– drain", "– COPY", "– bare MERGE")
    report.table((*header, f"**load / floor** (at most {LIMIT})"), rows)


def _measure(stack: Stack, folder: Path, size: int) -> tuple[float, tuple[float, float, float]]:
    """Seconds of the load, and of the parts of its floor."""
    database, stride = f"Large{size}", size // _CHANGES
    prepare_source(stack, database)
    config = configure(stack, folder, database)
    run(stack, config, 0, sample_memory=False)  # the first load, of no row: it creates the target
    target = last_window(stack).tables[0].target
    fill_target(stack, target, size)
    insert_changes(stack, database, _CHANGES, stride)
    wait_until_captured(stack, database, 2 * SEEDS + _CHANGES, "")
    load = run(stack, config, _CHANGES, sample_memory=False).load_seconds
    parts = measure_floor(stack, last_window(stack), database, shift=stride // 2)
    with stack.connect_warehouse() as connection:
        connection.execute(f"DROP TABLE {target}")
        connection.commit()
    return load, parts


def insert_changes(stack: Stack, database: str, changes: int, stride: int) -> None:
    """Insert rows with the keys 0, stride, 2 * stride and so on."""
    with stack.connect_source(database) as connection:
        for first in range(0, changes, _TRANSACTION):
            connection.cursor().execute(_INSERT.format(stride=stride, first=first, rows=_TRANSACTION))


def prepare_source(stack: Stack, database: str) -> None:
    """Make a database with the wide table, captured and empty, and a table of numbers."""
    with stack.connect_source("master") as connection:
        create_database(connection, database)
    with stack.connect_source(database) as connection:
        cursor = connection.cursor()
        cursor.execute("EXEC sys.sp_cdc_enable_db")
        wide_table.create(connection, tracked=True)
        wide_table.fill(connection, SEEDS)
        cursor.execute("CREATE TABLE dbo.Numbers (N int NOT NULL PRIMARY KEY)")
        cursor.execute(
            f"INSERT INTO dbo.Numbers SELECT a.ID * {SEEDS} + b.ID FROM dbo.Wide AS a CROSS JOIN dbo.Wide AS b "
            f"WHERE a.ID < {_CHANGES // SEEDS}"
        )
        cursor.execute("DELETE FROM dbo.Wide")
    wait_until_captured(stack, database, 2 * SEEDS, "")


def fill_target(stack: Stack, target: TableName, rows: int) -> None:
    """Give the target its rows, as a first load and a vacuum leave it."""
    with stack.connect_warehouse() as connection:
        connection.autocommit = True
        key = f"{target.name}_pkey"
        connection.execute(f"ALTER TABLE {target} DROP CONSTRAINT {key}")
        connection.execute(_FILL.format(target=target, rows=rows))
        connection.execute(f'ALTER TABLE {target} ADD CONSTRAINT {key} PRIMARY KEY ("ID")')
        connection.execute(f"VACUUM (ANALYZE) {target}")
