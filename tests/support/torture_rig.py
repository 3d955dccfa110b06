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
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import psutil
import pymssql
import yaml

from cdc_database import wait_until
from command_line import command_environment
from emulator_process import Emulator, running_emulator
from floodmark_laptop import shop
from floodmark_laptop.workload import Workload
from forked_floodmark import begin
from prepared_folders import PreparedPostgres
from torture_command import RunningCommand, kill
from torture_troubles import OF_EVERY_SOURCE, TROUBLES

SECOND = "copy"
"""The second pipeline of the same source."""


_CHUNKS = {"chunk_rows": 100, "parallel_reads": 2}
"""So small that a first load can be killed between two."""


def _tables(targets: Mapping[str, str], deletes: Sequence[str]) -> list[dict[str, object]]:
    """Return tables of a pipeline; some lose deleted rows, the others keep them."""
    each = zip(targets.items(), itertools.cycle(deletes), strict=False)
    return [{"source": table, "target": target, "deletes": policy} for (table, target), policy in each]


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
    more: Mapping[str, str] = field(default_factory=dict)
    """More keys of the source."""
    net: Mapping[str, str] = field(default_factory=dict)
    """Where net changes of a table are computed."""
    left_to_spark: str = ""
    """A table whose changes are not counted, so that the windows of its pipeline are staged by Spark's tasks."""
    troubles: tuple[str, ...] = (*OF_EVERY_SOURCE, "clock set")

    @property
    def targets(self) -> dict[str, str]:
        """The targets by the names of the tables."""
        return {f"dbo.{table}": f"shop.{_target(table)}" for table in self.tables}

    @property
    def source(self) -> dict[str, object]:
        """The keys of the source."""
        return {"conn_id": "shop_mssql", "kind": self.kind, **self.more}

    @property
    def config(self) -> str:
        """A configuration with one pipeline."""
        pipeline = {"source": "shop", "first_load": _CHUNKS, "tables": _tables(self.targets, ("soft", "hard"))}
        warehouse = {"conn_id": "warehouse"}
        return yaml.safe_dump(
            {"sources": {"shop": self.source}, "warehouse": warehouse, "pipelines": {"shop": pipeline}}
        )


CDC = Recording(
    "cdc",
    ("Customers", "Products", "Orders", "OrderLines", "Payments"),
    shop.enable_cdc,
    {"run": 6, "reload": 3, "replay": 3, "backfill": 2, "switch": 4, "approve": 2},
    troubles=tuple(TROUBLES),
    left_to_spark="dbo.Orders",
)


def _enable_net_changes(connection: pymssql.Connection) -> None:
    shop.enable_cdc(connection)
    for table in _SERVER_NET:
        for statement in (
            f"EXEC sys.sp_cdc_disable_table N'dbo', N'{table}', N'all'",
            f"EXEC sys.sp_cdc_enable_table N'dbo', N'{table}', @role_name = NULL, @supports_net_changes = 1",
        ):
            connection.cursor().execute(statement)


_SERVER_NET = ("Orders", "OrderLines")
CDC_NET = replace(CDC, enable=_enable_net_changes, net={f"dbo.{table}": "server" for table in _SERVER_NET})
"""The net changes of two tables are computed by the server."""
# Without dbo.Products, whose key the workload spells in other case.
CHANGE_TRACKING = Recording(
    "change_tracking",
    ("Customers", "Orders", "OrderLines", "Payments"),
    shop.enable_change_tracking,
    {"run": 6, "reload": 3},
    is_synchronous=True,
    troubles=tuple(TROUBLES),
)
PER_SECOND = float(os.environ.get("FLOODMARK_TORTURE_WRITES", "8"))
"""Transactions of the workload."""


# The pairs of the time before go in one statement.
_STRANGE_ROWS = """
DELETE dbo.OrderLines WHERE OrderID IN (SELECT OrderID FROM dbo.OrderLines WHERE LineNumber < 0);
INSERT dbo.OrderLines (OrderID, LineNumber, ProductCode, Quantity, UnitPrice)
SELECT TOP (5) OrderID, -LineNumber, ProductCode, Quantity, UnitPrice FROM dbo.OrderLines WHERE LineNumber > 0;
INSERT dbo.Orders (CustomerID, OrderDate, Amount, Status, PlacedAt)
SELECT TOP (5) CustomerID, OrderDate, Amount, N'short-lived', PlacedAt FROM dbo.Orders;
"""


class KillableRig(ABC):
    """with_spark: loads run in spark-submit and checks in Great Expectations, as for users; else both are replaced.

    targets: by the names of the tables in commands. commands: those that make sense, with how often each is killed.
    """

    ruled: tuple[str, str]
    """The table that gets rules, and a column with whole numbers that the workload never leaves alone."""
    troubles: tuple[str, ...] = OF_EVERY_SOURCE
    has_devices: bool = False
    """The rows of a table belong to devices: one may be loaded alone, and its rows are corrected there."""
    _keys_of_pipelines: Mapping[str, object] = MappingProxyType({"first_load": _CHUNKS})

    def __init__(
        self, folder: Path, targets: Mapping[str, str], commands: Mapping[str, int], *, with_spark: bool
    ) -> None:
        self.targets = targets
        self.tables = tuple(targets)
        self.commands = dict(commands) | {SECOND: 3, "release": 2, "discard": 2}
        self.with_checks = False
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
    def write_strange_rows(self) -> None:
        """Write what the workload does not: keys that differ only in their sign, and rows that do not live long."""

    @abstractmethod
    def remove_short_lived_rows(self) -> None:
        """Delete rows that ``write_strange_rows`` has inserted."""

    def back_up_source(self) -> None:
        """Keep the state of the source."""
        raise NotImplementedError

    def restore_source(self) -> None:
        """Bring back the state that was kept; the workload goes on from there."""
        raise NotImplementedError

    @property
    @abstractmethod
    def source_keys(self) -> dict[str, object]:
        """Return the keys of the source in the configuration."""

    def _keys_of(self, _table: str) -> dict[str, object]:
        """Return more keys of a table in the configuration."""
        return {}

    def configure(self, rules: Mapping[str, Mapping[str, str]]) -> None:
        """Write the configuration, with a rule of some tables. The second pipeline has two of the tables."""
        tables = _tables(self.targets, ("soft", "hard"))
        for each in tables:
            name = str(each["source"])
            each.update(self._keys_of(name) | ({"rules": [dict(rules[name])]} if name in rules else {}))
        copied = {table: target.replace("shop.", f"{SECOND}.", 1) for table, target in list(self.targets.items())[:2]}
        pipelines = {
            name: {"source": "shop", **self._keys_of_pipelines, "tables": each}
            for name, each in (("shop", tables), (SECOND, _tables(copied, ("hard", "soft"))))
        }
        written = self._config.with_suffix(".new")
        warehouse = {"conn_id": "warehouse"}
        document = {"sources": {"shop": self.source_keys}, "warehouse": warehouse, "pipelines": pipelines}
        written.write_text(yaml.safe_dump(document), encoding="utf-8")
        # Loads that go on without their command read it at any moment.
        written.replace(self._config)

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
        return begin(arguments, at, with_spark=with_spark, with_checks=self.with_checks)

    def kill_warehouse(self) -> None:
        processes = [psutil.Process(int((self.warehouse.cluster_dir / "postmaster.pid").read_text().split()[0]))]
        kill([*processes, *processes[0].children(recursive=True)])

    def restart_warehouse(self) -> None:
        self.warehouse.stop()
        self.warehouse.start()


class TortureRig(KillableRig):
    """With the emulator as its source."""

    def __init__(self, folder: Path, seed: int, *, with_spark: bool, recording: Recording = CDC) -> None:
        super().__init__(folder, recording.targets, recording.commands, with_spark=with_spark)
        self.recording = recording
        self.ruled = ("dbo.Orders", "OrderID")
        self.troubles = recording.troubles
        self._seed = seed
        self._servers = ExitStack()
        self.source: Emulator = self._start_source()
        self.workload: Workload | None = None
        self._up = threading.Event()
        self._ended = threading.Event()
        self._quiet = threading.Event()
        self._is_quiet = threading.Event()
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
            self.configure({})
            with self.source.connect_pymssql(shop.DATABASE, autocommit=True) as connection:
                shop.create_tables(connection)
                self.recording.enable(connection)
            self._up.set()
            self._writer.start()
            try:
                yield
            finally:
                self._up.set()
                self._stop_writing()

    def _stop_writing(self) -> None:
        """A transaction that goes on is the last."""
        self._ended.set()
        self._quiet.set()
        self._writer.join()

    def end_workload(self) -> None:
        self._stop_writing()
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

    @property
    def source_keys(self) -> dict[str, object]:
        return self.recording.source

    def _keys_of(self, table: str) -> dict[str, object]:
        parts = {"partitions": 1} if self._with_spark and table == self.recording.left_to_spark else {}
        return parts | ({"net": self.recording.net[table]} if table in self.recording.net else {})

    def write_strange_rows(self) -> None:
        self.run_at_source(_STRANGE_ROWS)

    def remove_short_lived_rows(self) -> None:
        self.run_at_source("DELETE dbo.Orders WHERE Status = N'short-lived'")

    def back_up_source(self) -> None:
        if self.recording.is_synchronous:
            with self._at_rest():
                self.run_at_source("EXEC emulator.take_backup")
        else:
            ((self._point,),) = self.run_at_source("SELECT sys.fn_cdc_get_max_lsn()")

    def restore_source(self) -> None:
        with self._at_rest():
            if self.recording.is_synchronous:
                self.run_at_source("EXEC emulator.restore_backup")
            else:
                self._wait_for_capture()
                self.run_at_source(f"EXEC emulator.restore_database @to_lsn = 0x{self._point.hex()}")

    @contextlib.contextmanager
    def _at_rest(self) -> Iterator[None]:
        """Without a transaction of the workload."""
        self._is_quiet.clear()
        self._quiet.set()
        try:
            assert self._is_quiet.wait(60) or self._ended.is_set()
            yield
        finally:
            if not self._ended.is_set():
                self._quiet.clear()

    def _write(self) -> None:
        """On a connection for as long as that lives. What a killed server has not committed is simply not there."""
        is_filled = False
        while not self._ended.is_set():
            self._up.wait()
            with contextlib.suppress(pymssql.Error), self.source.connect_pymssql(shop.DATABASE) as connection:
                if self.workload is None:
                    self.workload = Workload(connection, seed=self._seed)
                self.workload.connection = connection
                if not is_filled:
                    self.workload.fill()
                    is_filled = True
                self.workload.run(self._quiet, PER_SECOND)
            while self._quiet.is_set() and not self._ended.is_set():
                self._is_quiet.set()
                self._ended.wait(0.02)
            self._ended.wait(0.1)


def _has_row(cursor: pymssql.Cursor, statement: str) -> bool:
    cursor.execute(statement)
    return cursor.fetchone() is not None
