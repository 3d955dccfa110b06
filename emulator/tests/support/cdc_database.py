"""A database with CDC on the running emulator, driven through pymssql as the published transcripts were through sqlcmd.

Statements, a scan of the log on demand, and what the change tables and functions then hold.
"""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from emulator_process import Emulator

_numbers = itertools.count(1)
Row = dict[str, Any]


@dataclass
class CdcDatabase:
    """``name`` is the database; its capture job is stopped, ``scan`` does its work."""

    name: str
    connection: Any
    is_job_stopped: bool = False

    def run(self, *statements: str) -> None:
        """Each statement is a batch, and a transaction unless it says otherwise."""
        for statement in statements:
            with self.connection.cursor() as cursor:
                cursor.execute(statement)

    def query(self, sql: str, parameters: tuple[object, ...] = ()) -> list[Row]:
        with self.connection.cursor(as_dict=True) as cursor:
            cursor.execute(sql, parameters)
            return list(cursor.fetchall())

    def scalar(self, expression: str) -> Any:
        return self.query(f"SELECT {expression} AS value")[0]["value"]

    def enable(self, *tables: str, **options: str) -> None:
        """sp_cdc_enable_table of dbo tables; option values are T-SQL text."""
        for table in tables:
            self._enable(table, options)
        self.scan()

    def _enable(self, table: str, options: Mapping[str, str]) -> None:
        arguments = "".join(f", @{name} = {value}" for name, value in options.items())
        enabling = (
            f"EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N'{table}', @role_name = NULL"
            + arguments
        )
        # In one transaction: the Agent starts no process for a job that is stopped already.
        self.run(enabling if self.is_job_stopped else f"BEGIN TRAN; {enabling}; EXEC sys.sp_cdc_stop_job; COMMIT")
        self.is_job_stopped = True

    def scan(self) -> None:
        self.run("EXEC sys.sp_cdc_scan")

    def change_table(self, instance: str) -> list[Row]:
        """Its rows in full order."""
        return self.query(
            f"SELECT * FROM cdc.[{instance}_CT] ORDER BY [__$start_lsn], [__$command_id], [__$seqval], [__$operation]"
        )

    def all_changes(self, instance: str, option: str = "all") -> list[Row]:
        return self._changes("all", instance, option, "[__$start_lsn], [__$seqval], [__$operation]")

    def net_changes(self, instance: str, option: str = "all") -> list[Row]:
        return self._changes("net", instance, option, "[__$start_lsn]")

    def _changes(self, kind: str, instance: str, option: str, order: str) -> list[Row]:
        return self.query(
            f"DECLARE @from binary(10) = sys.fn_cdc_get_min_lsn(N'{instance}');"
            " DECLARE @to binary(10) = sys.fn_cdc_get_max_lsn();"
            f" SELECT * FROM cdc.fn_cdc_get_{kind}_changes_{instance}(@from, @to, N'{option}') ORDER BY {order}"
        )

    def error_of(self, statement: str) -> int:
        """The number of the error that a statement raises."""
        import pymssql

        try:
            self.query(statement)
        except pymssql.Error as error:
            return int(error.args[0])
        raise AssertionError(f"no error from: {statement}")


@contextmanager
def cdc_database(emulator: Emulator) -> Iterator[CdcDatabase]:
    """A new database with CDC enabled and no table; dropped afterwards."""
    # Several runs may share an emulator (standing_servers).
    name = f"Golden{os.getpid()}_{next(_numbers)}"
    with emulator.connect_pymssql("master", autocommit=True) as server:
        with server.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE [{name}]")
        with emulator.connect_pymssql(name, autocommit=True) as connection:
            database = CdcDatabase(name, connection)
            database.run("EXEC sys.sp_cdc_enable_db")
            yield database
        with server.cursor() as cursor:
            # Pools and processes under test may not have left yet.
            cursor.execute(f"ALTER DATABASE [{name}] SET SINGLE_USER WITH ROLLBACK IMMEDIATE")
            cursor.execute(f"DROP DATABASE [{name}]")


def shape(rows: list[Row], *columns: str) -> list[tuple[Any, ...]]:
    """Operation, mask in hex, then the named columns."""
    return [
        (row["__$operation"], row["__$update_mask"] and row["__$update_mask"].hex().upper(), *(row[c] for c in columns))
        for row in rows
    ]


def wait_until(condition: Callable[[], bool], limit_seconds: float = 90.0, *, pause_seconds: float = 0.02) -> None:
    """Fails when the condition has not come true in time. pause_seconds: longer for a condition that costs much."""
    deadline = time.monotonic() + limit_seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        threading.Event().wait(pause_seconds)
