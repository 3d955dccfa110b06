"""The emulator by itself: rows to a reader, transactions from a writer, changes through the capture job."""

from __future__ import annotations

import time

from benchmarks import wide_table
from benchmarks.measuring import Report, create_database, median_seconds, seconds
from floodmark.sources.sqlserver.driver import SqlServerConnection, connect
from floodmark_laptop.stack import Stack

_ROWS = 1_000_000
_TRANSACTIONS = 3_000


def source_connection(stack: Stack, database: str) -> SqlServerConnection:
    """How Floodmark itself reaches the emulator: over TLS, with its certificate checked."""
    address = stack.source
    return SqlServerConnection(
        host=address.host,
        port=address.port,
        database=database,
        user=address.user,
        password=address.password,
        ca_file=address.ca_file,
    )


def drain(connection: SqlServerConnection, statement: str, parameters: tuple[object, ...] = ()) -> int:
    """Read a result as Arrow and throw it away. Returns the rows."""
    rows = 0
    with connect(connection) as session:
        for batch in session.read_batches("benchmark", statement, parameters, 8192):
            rows += batch.num_rows
    return rows


def measure(stack: Stack, report: Report) -> None:
    report.add("## The emulator")
    with stack.connect_source("master") as connection:
        create_database(connection, "Speed")
    with stack.connect_source("Speed") as connection:
        connection.cursor().execute("EXEC sys.sp_cdc_enable_db")
        wide_table.create(connection, tracked=True)
        filling = seconds(lambda: wide_table.fill(connection, _ROWS))
        capturing = filling + wait_until_captured(stack, "Speed", _ROWS, "")
        connection.cursor().execute("CREATE TABLE dbo.Small (ID int NOT NULL PRIMARY KEY, Name nvarchar(20) NULL)")
        cursor = connection.cursor()

        def insert_rows() -> None:
            for i in range(_TRANSACTIONS):
                cursor.execute("INSERT INTO dbo.Small (ID, Name) VALUES (%d, %s)", (i, "näme"))

        inserting = seconds(insert_rows)
    reader = source_connection(stack, "Speed")
    statement = f"SELECT {wide_table.COLUMNS} FROM {wide_table.TABLE}"
    assert drain(reader, statement) == _ROWS
    reading = median_seconds(lambda: drain(reader, statement))
    read, inserted = _ROWS / reading, _TRANSACTIONS / inserting
    report.table(
        ("what", "figure", "target"),
        [
            ("rows/s of 8 columns to mssql-python's Arrow reader, one connection, TLS", f"{read:,.0f}", "250,000"),
            ("single-row INSERT transactions/s, pymssql, one connection, TLS", f"{inserted:,.0f}", "1,000"),
            ("rows/s inserted by INSERT … SELECT into a tracked table", f"{_ROWS / filling:,.0f}", ""),
            ("row changes/s from first insert to the last in the change table", f"{_ROWS / capturing:,.0f}", ""),
        ],
    )


def wait_until_captured(stack: Stack, database: str, rows: int, where: str) -> float:
    """Until the change table holds so many rows. Returns the seconds it took."""
    began = time.perf_counter()
    with stack.connect_source(database) as connection:
        cursor = connection.cursor()
        while True:
            cursor.execute(f"SELECT COUNT(*) FROM cdc.dbo_Wide_CT {where}")
            row = cursor.fetchone()
            if row is not None and row[0] == rows:
                return time.perf_counter() - began
            if time.perf_counter() - began > 900:
                raise TimeoutError(f"only {row} of {rows} changes captured after 900 s")
            time.sleep(0.2)
