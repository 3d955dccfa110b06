"""A source, a warehouse and a workload between them that go on when one of them is killed, and commands to kill."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil
import pymssql

from begun_command import begin
from cdc_database import wait_until
from command_line import command_environment
from embedded_postgres import EmbeddedPostgres
from emulator_process import Emulator, running_emulator
from floodmark_laptop import shop
from floodmark_laptop.workload import Workload
from torture_command import RunningCommand

TABLES = ("Customers", "Products", "Orders", "OrderLines", "Payments")
# Half of the tables lose deleted rows, half keep them; chunks are so small that a first load can be killed between two.
CONFIG = """
sources: {shop: {conn_id: shop_mssql}}
warehouse: {conn_id: warehouse}
pipelines:
  shop:
    source: shop
    first_load: {chunk_rows: 100, parallel_reads: 2}
    tables:
      - {source: dbo.Customers, target: shop.customers}
      - {source: dbo.Products, target: shop.products, deletes: hard}
      - {source: dbo.Orders, target: shop.orders}
      - {source: dbo.OrderLines, target: shop.order_lines, deletes: hard}
      - {source: dbo.Payments, target: shop.payments}
"""
_PER_SECOND = 20.0


class TortureRig:
    """with_spark: loads run in spark-submit and checks in Great Expectations, as for users; else both are replaced."""

    def __init__(self, folder: Path, seed: int, *, with_spark: bool) -> None:
        self._folder = folder
        self._with_spark = with_spark
        self._seed = seed
        self._servers = ExitStack()
        self.warehouse = EmbeddedPostgres(folder / "warehouse")
        self.source: Emulator = self._start_source()
        self.workload: Workload | None = None
        self.environment: dict[str, str] = {}
        """Variables that its commands get as well."""
        self._up = threading.Event()
        self._ended = threading.Event()
        self._marks = itertools.count(1)

    def _start_source(self) -> Emulator:
        self.source = self._servers.enter_context(
            running_emulator(self._folder / "source", "--capture-interval", "0.1", databases=(shop.DATABASE,))
        )
        return self.source

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Everything is up, and the workload writes, until the block ends."""
        with self._servers, self.warehouse:
            (self._folder / "pipelines.yaml").write_text(CONFIG, encoding="utf-8")
            with self.source.connect_pymssql(shop.DATABASE, autocommit=True) as connection:
                shop.create_tables(connection)
                shop.enable_cdc(connection)
            self._up.set()
            thread = threading.Thread(target=self._write)
            thread.start()
            try:
                yield
            finally:
                self._ended.set()
                self._up.set()
                thread.join()

    def end_workload(self) -> None:
        """What it has written is in the change tables when this returns."""
        self._ended.set()
        self._wait_for_capture()

    def _wait_for_capture(self) -> None:
        """Until it has come to a row that is written now."""
        note = f"mark {next(self._marks)}"
        with self.source.connect_pymssql(shop.DATABASE, autocommit=True) as connection, connection.cursor() as cursor:
            cursor.execute(
                "INSERT INTO dbo.Payments (PaymentID, OrderID, Amount, Currency, PaidAt, Note) "
                f"VALUES (NEWID(), 1, 1, N'EUR', SYSDATETIME(), N'{note}')"
            )
            wait_until(lambda: _has_row(cursor, f"SELECT 1 FROM cdc.dbo_Payments_CT WHERE Note = N'{note}'"))

    def begin(self, *arguments: str) -> RunningCommand:
        """A command, in a session of its own."""
        return begin(arguments, self._environment(), with_spark=self._with_spark)

    def kill_source(self) -> None:
        """kill -9 of the emulator, its PostgreSQL, and its capture jobs."""
        self._up.clear()
        _kill([self.source.process, *self.source.process.children(recursive=True)])

    def restart_source(self) -> None:
        self._servers.close()
        self._start_source()
        # A capture job that has not begun yet would be an incident, and rightly so.
        self._wait_for_capture()
        self._up.set()

    def kill_warehouse(self) -> None:
        processes = [psutil.Process(int((self.warehouse.cluster_dir / "postmaster.pid").read_text().split()[0]))]
        _kill([*processes, *processes[0].children(recursive=True)])

    def restart_warehouse(self) -> None:
        self.warehouse.stop()
        self.warehouse.start()

    def _environment(self) -> dict[str, str]:
        """Of now: a source that was started again listens elsewhere."""
        at = command_environment(self.source, shop.DATABASE, self.warehouse, self._folder / "pipelines.yaml")
        return at | {"PYTHONPATH": str(Path(__file__).parent)} | self.environment

    def _write(self) -> None:
        """On a connection for as long as that lives. What a killed server has not committed is simply not there."""
        while not self._ended.is_set():
            self._up.wait()
            with contextlib.suppress(pymssql.Error), self.source.connect_pymssql(shop.DATABASE) as connection:
                if self.workload is None:
                    self.workload = Workload(connection, seed=self._seed)
                    self.workload.fill()
                self.workload.connection = connection
                self.workload.run(self._ended, _PER_SECOND)
            self._ended.wait(0.1)


def _has_row(cursor: pymssql.Cursor, statement: str) -> bool:
    cursor.execute(statement)
    return cursor.fetchone() is not None


def _kill(processes: list[psutil.Process]) -> None:
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(processes, timeout=30)
