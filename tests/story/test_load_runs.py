"""A first load under a workload, killed with kill -9 on its way: it goes on where it was, and ends with every row."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pytest

from cdc_database import CdcDatabase, cdc_database, wait_until
from command_line import command_environment
from emulator_process import Emulator
from floodmark.config.loading import load_config
from floodmark.core.settings import PipelineSettings
from floodmark.postgres.ledger.ledger import PostgresLedger
from floodmark.postgres.session import WarehouseConnection
from floodmark.postgres.warehouse.warehouse import PostgresWarehouse
from floodmark.sources.cdc.source import SqlServerSource
from floodmark.sources.sqlserver.driver import SqlServerConnection
from floodmark.sync.finish import advance_window
from floodmark.sync.load import load_window
from floodmark.sync.open_window import open_window
from forked_floodmark import begin
from in_process_stager import InProcessStager
from prepared_folders import PreparedPostgres
from row_verification import reading, verify_tables
from torture_command import RunningCommand

pytestmark = pytest.mark.timeout(600)

_ROWS = 1000
_LIMIT_SECONDS = 300
CONFIG = """
sources: {shop: {conn_id: shop_mssql}}
warehouse: {conn_id: warehouse}
pipelines:
  shop:
    source: shop
    first_load: {chunk_rows: 100, parallel_reads: 1}
    tables: [{source: dbo.Orders, target: shop.orders}]
"""


@dataclass
class Runs:
    source: CdcDatabase
    emulator: Emulator
    warehouse: WarehouseConnection
    config: Path
    environment: dict[str, str]

    @property
    def at(self) -> SqlServerConnection:
        to = self.emulator
        return SqlServerConnection(to.host, to.port, self.source.name, to.user, to.password, ca_file=str(to.ca_file))

    def start(self, *arguments: str) -> RunningCommand:
        return begin(arguments, self.environment)

    def call(self, *arguments: str) -> str:
        done = self.start(*arguments)
        assert done.wait(_LIMIT_SECONDS) == 0, done.output
        return done.output

    def chunks(self) -> dict[int, Any]:
        """Return, by chunk number, when it was staged and by which attempt; None twice for a chunk that is not."""
        with psycopg.connect(self.warehouse.conninfo()) as session:
            if session.execute("SELECT to_regclass('floodmark.load_chunks')").fetchone() == (None,):
                return {}
            rows = session.execute("SELECT chunk_no, staged_at, attempt FROM floodmark.load_chunks")
            return {number: (staged_at, attempt) for number, staged_at, attempt in rows}

    def staged(self) -> dict[int, Any]:
        return {number: chunk for number, chunk in self.chunks().items() if chunk[0] is not None}


@dataclass
class Workload:
    """Writes to the table until it is ended: rows that were read already, and rows that were not."""

    emulator: Emulator
    database: str
    ended: threading.Event = field(default_factory=threading.Event)
    statements: int = 0

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        thread = threading.Thread(target=self._run)
        thread.start()
        try:
            yield
        finally:
            self.ended.set()
            thread.join()

    def _run(self) -> None:
        with self.emulator.connect_pymssql(self.database, autocommit=True) as connection:
            while not self.ended.wait(0.05):
                number = self.statements
                key = number * 37 % _ROWS
                with connection.cursor() as cursor:
                    cursor.execute(f"UPDATE dbo.Orders SET Amount = {number} WHERE Id = {key}")
                    cursor.execute(f"INSERT INTO dbo.Orders VALUES ({_ROWS + number}, {number})")
                    cursor.execute(f"DELETE FROM dbo.Orders WHERE Id = {(key + 500) % _ROWS} AND Id % 7 = 0")
                self.statements += 1


@pytest.fixture
def runs(emulator: Emulator, open_dir: Path, tmp_path: Path) -> Iterator[Runs]:
    path = tmp_path / "pipelines.yaml"
    path.write_text(CONFIG, encoding="utf-8")
    with cdc_database(emulator) as source, PreparedPostgres(open_dir / "load_warehouse") as server:
        environment = command_environment(emulator, source.name, server, path)
        source.run(
            "CREATE TABLE dbo.Orders (Id int PRIMARY KEY, Amount int)",
            "INSERT INTO dbo.Orders SELECT value, 0 FROM GENERATE_SERIES(0, 999)",
        )
        source.enable("Orders")
        at = WarehouseConnection(str(server.socket_dir), 5432, "postgres", "postgres")
        yield Runs(source, emulator, at, path, environment)


def last_window(runs: Runs, settings: PipelineSettings) -> None:
    """Without Spark: what matters of it was seen by then."""
    source = SqlServerSource(runs.at)
    ledger, warehouse = PostgresLedger(runs.warehouse), PostgresWarehouse(runs.warehouse)
    window_id = open_window(settings, source, ledger).window_id
    assert window_id is not None
    load_window(window_id, ledger, warehouse, source, InProcessStager(reading(runs.at)))
    ledger.mark_checked(window_id)
    advance_window(window_id, ledger, warehouse)


def test_first_load_killed_on_its_way_reads_only_what_is_missing_and_ends_equal(runs: Runs) -> None:
    workload = Workload(runs.emulator, runs.source.name)
    with workload.running():
        # So that the load is on its way long enough: each statement that reads a chunk begins half a second later.
        runs.source.run("EXEC emulator.slow_statements @seconds = 0.5, @times = 0, @text = N'[Id] >'")
        first = runs.start("run", "shop")
        wait_until(lambda: len(runs.staged()) >= 3)
        first.kill()
        before, chunks = runs.staged(), len(runs.chunks())
        assert 3 <= len(before) < chunks
        runs.source.run("EXEC emulator.clear_faults")
        said = runs.call("run", "shop")
        assert f"{chunks - len(before)} of {chunks} chunks are left" in said
        after = runs.staged()
        assert len(after) == chunks
        assert {number: after[number] for number in before} == before
        assert {attempt for number, (_, attempt) in after.items() if number not in before} == {2}
    assert workload.statements > 0
    runs.source.scan()
    settings = load_config(runs.config).settings("shop")
    last_window(runs, settings)
    (verified,) = verify_tables(settings, runs.at, runs.warehouse)
    assert verified.equal, verified.differences
