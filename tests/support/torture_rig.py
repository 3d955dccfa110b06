"""A source, a warehouse and a workload that go on when one of them is killed, and commands to kill."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pymssql

from cdc_database import wait_until
from command_line import command_environment
from emulator_process import Emulator, running_emulator
from floodmark_laptop import shop
from floodmark_laptop.workload import Workload
from forked_floodmark import begin
from prepared_folders import PreparedPostgres
from torture_command import RunningCommand, kill

# Half of the tables lose deleted rows, half keep them; chunks are so small that a first load can be killed between two.
_CONFIG = """
sources: {{shop: {{conn_id: shop_mssql, kind: {kind}{more}}}}}
warehouse: {{conn_id: warehouse}}
pipelines:
  shop:
    source: shop
    first_load: {{chunk_rows: 100, parallel_reads: 2}}
    tables:
{tables}
"""


def _target(table: str) -> str:
    return re.sub("(?<=[a-z])(?=[A-Z])", "_", table).lower()


@dataclass(frozen=True)
class Recording:
    """How the source records its changes, and the commands that make sense there, with how often each is killed."""

    kind: str
    tables: tuple[str, ...]
    enable: Callable[[pymssql.Connection], None]
    commands: Mapping[str, int]
    is_synchronous: bool = False
    """A transaction records its changes itself."""
    more: str = ""
    """More keys of the source."""

    @property
    def config(self) -> str:
        deletes = itertools.cycle(("soft", "hard"))
        tables = (
            f"      - {{source: dbo.{table}, target: shop.{_target(table)}, deletes: {next(deletes)}}}"
            for table in self.tables
        )
        return _CONFIG.format(kind=self.kind, more=self.more, tables="\n".join(tables))


CDC = Recording(
    "cdc",
    ("Customers", "Products", "Orders", "OrderLines", "Payments"),
    shop.enable_cdc,
    {"run": 6, "reload": 3, "replay": 3, "backfill": 2, "switch": 4, "approve": 2},
)
# Without dbo.Products, whose key the workload spells in other case.
CHANGE_TRACKING = Recording(
    "change_tracking",
    ("Customers", "Orders", "OrderLines", "Payments"),
    shop.enable_change_tracking,
    {"run": 6, "reload": 3},
    is_synchronous=True,
)
PER_SECOND = float(os.environ.get("FLOODMARK_TORTURE_WRITES", "8"))
"""Transactions of the workload."""


class KillableRig(ABC):
    """with_spark: loads run in spark-submit and checks in Great Expectations, as for users; else both are replaced.

    tables: their names in commands. commands: those that make sense, with how often each is killed.
    """

    def __init__(self, folder: Path, tables: Sequence[str], commands: Mapping[str, int], *, with_spark: bool) -> None:
        self.tables = tuple(tables)
        self.commands = commands
        self._folder = folder
        self._config = folder / "pipelines.yaml"
        self._with_spark = with_spark
        self.warehouse = PreparedPostgres(folder / "warehouse")
        self.environment: dict[str, str] = {}
        """Variables that its commands get as well."""

    @abstractmethod
    def running(self) -> contextlib.AbstractContextManager[None]:
        """Everything is up, and the workload writes, until the block ends."""

    @abstractmethod
    def end_workload(self) -> None:
        """Stop the workload; what it has written can be read when this returns."""

    @abstractmethod
    def run_at_source(self, statement: str) -> list[Any]:
        """Run a statement at the source, and return its rows."""

    @abstractmethod
    def kill_source(self) -> None:
        """kill -9 of all that the source is."""

    @abstractmethod
    def restart_source(self) -> None: ...

    @abstractmethod
    def _connections(self) -> dict[str, str]:
        """Return the variables with the connections of now: a source that was started again listens elsewhere."""

    def begin(self, *arguments: str) -> RunningCommand:
        """Begin a command in a session of its own, with Spark if the rig has it."""
        return self._begin(arguments, with_spark=self._with_spark)

    def begin_without_spark(self, *arguments: str) -> RunningCommand:
        """Begin a command whose load is not what the test is about."""
        return self._begin(arguments, with_spark=False)

    def _begin(self, arguments: Sequence[str], *, with_spark: bool) -> RunningCommand:
        at = self._connections() | {"PYTHONPATH": str(Path(__file__).parent)} | self.environment
        return begin(arguments, at, with_spark=with_spark)

    def kill_warehouse(self) -> None:
        processes = [psutil.Process(int((self.warehouse.cluster_dir / "postmaster.pid").read_text().split()[0]))]
        kill([*processes, *processes[0].children(recursive=True)])

    def restart_warehouse(self) -> None:
        self.warehouse.stop()
        self.warehouse.start()


class TortureRig(KillableRig):
    """With the emulator as its source."""

    def __init__(self, folder: Path, seed: int, *, with_spark: bool, recording: Recording = CDC) -> None:
        tables = [f"dbo.{table}" for table in recording.tables]
        super().__init__(folder, tables, recording.commands, with_spark=with_spark)
        self.recording = recording
        self._seed = seed
        self._servers = ExitStack()
        self.source: Emulator = self._start_source()
        self.workload: Workload | None = None
        self._up = threading.Event()
        self._ended = threading.Event()
        self._marks = itertools.count(1)
        self._writer = threading.Thread(target=self._write)

    def _start_source(self) -> Emulator:
        self.source = self._servers.enter_context(
            running_emulator(
                self._folder / "source", "--capture-interval", "0.1", *self._options(), databases=(shop.DATABASE,)
            )
        )
        return self.source

    def _options(self) -> tuple[str, ...]:
        """Return more options of the emulator's command."""
        return ()

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        with self._servers, self.warehouse:
            self._config.write_text(self.recording.config, encoding="utf-8")
            with self.source.connect_pymssql(shop.DATABASE, autocommit=True) as connection:
                shop.create_tables(connection)
                self.recording.enable(connection)
            self._up.set()
            self._writer.start()
            try:
                yield
            finally:
                self._ended.set()
                self._up.set()
                self._writer.join()

    def end_workload(self) -> None:
        self._ended.set()
        # A transaction that goes on is the last.
        self._writer.join()
        self._wait_for_capture()

    def _wait_for_capture(self) -> None:
        """Until it has come to a row that is written now."""
        if self.recording.is_synchronous:
            return
        note = f"mark {next(self._marks)}"
        with self.source.connect_pymssql(shop.DATABASE, autocommit=True) as connection, connection.cursor() as cursor:
            cursor.execute(
                "INSERT INTO dbo.Payments (PaymentID, OrderID, Amount, Currency, PaidAt, Note) "
                f"VALUES (NEWID(), 1, 1, N'EUR', SYSDATETIME(), N'{note}')"
            )
            wait_until(lambda: _has_row(cursor, f"SELECT 1 FROM cdc.dbo_Payments_CT WHERE Note = N'{note}'"))

    def run_at_source(self, statement: str) -> list[Any]:
        with self.source.connect_pymssql(shop.DATABASE, autocommit=True) as at, at.cursor() as cursor:
            cursor.execute(statement)
            return list(cursor.fetchall()) if cursor.description else []

    def kill_source(self) -> None:
        """kill -9 of the emulator, its PostgreSQL, and its capture jobs."""
        self._up.clear()
        kill([self.source.process, *self.source.process.children(recursive=True)])

    def restart_source(self) -> None:
        self._servers.close()
        self._start_source()
        # A capture job that has not begun yet would be an incident, and rightly so.
        self._wait_for_capture()
        self._up.set()

    def _connections(self) -> dict[str, str]:
        return command_environment(self.source, shop.DATABASE, self.warehouse, self._config)

    def _write(self) -> None:
        """On a connection for as long as that lives. What a killed server has not committed is simply not there."""
        while not self._ended.is_set():
            self._up.wait()
            with contextlib.suppress(pymssql.Error), self.source.connect_pymssql(shop.DATABASE) as connection:
                if self.workload is None:
                    self.workload = Workload(connection, seed=self._seed)
                    self.workload.fill()
                self.workload.connection = connection
                self.workload.run(self._ended, PER_SECOND)
            self._ended.wait(0.1)


def _has_row(cursor: pymssql.Cursor, statement: str) -> bool:
    cursor.execute(statement)
    return cursor.fetchone() is not None
