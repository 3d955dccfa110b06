"""Runs into a lake in a bucket, by the command with a real Spark: readers without Java see what the source has.

The tables are registered in a REST catalog, which is a moment behind, and never ahead.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from operator import itemgetter
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from cdc_database import CdcDatabase, cdc_database, wait_until
from command_line import FLOODMARK, command_environment
from emulator_process import Emulator
from floodmark.iceberg.folder import Bucket, LakeFolder
from floodmark_laptop.processes import free_port
from object_store import connection_of, open_store, read_properties
from prepared_folders import PreparedPostgres
from rest_catalog import SECRET, CatalogServer, open_catalog
from torture_command import RunningCommand

pytestmark = pytest.mark.timeout(1800)

_LIMIT_SECONDS = 300
_FAILED, _WRONG, _TRY_AGAIN = 1, 2, 75
AT_LEAST = datetime.min.replace(tzinfo=UTC)
CONFIG = """
sources: {shop: {conn_id: shop_mssql}}
warehouse: {kind: iceberg, conn_id: lake, catalog_conn_id: company}
ledger: {conn_id: warehouse}
pipelines:
  shop:
    source: shop
    tables:
      - source: dbo.Orders
        target: shop.orders
        rules: [{name: amount_is_not_negative, sql: '"Amount" >= 0', on_failure: stop}]
      - source: dbo.Customers
        target: shop.customers
        naming: snake_case
        commit_times: true
        where: "Name <> 'Hidden' OR Name IS NULL"
        rules: [{name: name_is_short, sql: 'length(name) < 20'}]
        columns: {Since: {cast: date}}
      - {source: dbo.Prices, target: shop.prices_log, style: log, before_images: true}
"""
TABLES = {"Orders": "orders", "Customers": "customers"}
ORDERS = """
CREATE TABLE dbo.Orders (
  Id int PRIMARY KEY, Amount decimal(38, 4), Placed datetime2(6), Day date, Notes nvarchar(max), Raw varbinary(20),
  Flag bit, Big bigint, Ratio float
)
"""


@dataclass
class Lake:
    source: CdcDatabase
    server: PreparedPostgres
    folder: Path
    bucket: Bucket
    environment: dict[str, str]
    registry: CatalogServer

    def begin(self, *arguments: str) -> RunningCommand:
        process = subprocess.Popen(
            [FLOODMARK, *arguments],
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        assert process.stdout is not None
        return RunningCommand(arguments, process, process.stdout)

    def run(self, status: int = 0) -> str:
        """Run the pipeline once, over all changes so far."""
        self.source.scan()
        return self.command("run", "shop", status=status)

    @property
    def uri(self) -> str:
        return f"postgresql+psycopg://postgres:{self.server.password}@127.0.0.1:{self.server.port}/postgres"

    def command(self, *arguments: str, status: int = 0) -> str:
        """Run a command to its end."""
        command = self.begin(*arguments)
        assert command.wait(_LIMIT_SECONDS) == status, command.output
        return command.output

    @contextmanager
    def catalog(self) -> Iterator[SqlCatalog]:
        """Open the catalog that readers see."""
        catalog = SqlCatalog(
            "lake",
            uri=f"{self.uri}?options=-csearch_path%3Dfloodmark_lake",
            init_catalog_tables="false",
            warehouse=f"{self.bucket.location}/tables",
            **read_properties(self.bucket),
        )
        try:
            yield catalog
        finally:
            catalog.engine.dispose()

    def published(self) -> dict[str, list[tuple[Any, ...]]]:
        """Return the rows that a reader without Java finds in the lake, in order, by table of the source.

        A reader of the REST catalog finds the same.
        """
        found = {}
        with self.catalog() as catalog:
            for source, target in TABLES.items():
                table = catalog.load_table(f"shop.{target}")
                assert self.registry.tables["shop", target] == table.metadata_location
                rows = table.scan(row_filter="__deleted = false").to_arrow()
                names = [name for name in rows.column_names if not name.startswith("__")]
                columns = [rows.column(name).to_pylist() for name in names]
                found[source] = sorted(zip(*columns, strict=True))
        return found

    def rows(self) -> dict[str, list[tuple[Any, ...]]]:
        """Return the rows of the source, in order, by table, with casts, filter and rules of the pipeline."""
        rows = {
            "Orders": "* FROM dbo.Orders",
            "Customers": "Id, Name, CAST(Since AS date) AS Since FROM dbo.Customers "
            "WHERE Name <> 'Hidden' AND LEN(Name) < 20 OR Name IS NULL",
        }
        return {
            table: [tuple(row.values()) for row in self.source.query(f"SELECT {found} ORDER BY Id")]
            for table, found in rows.items()
        }

    def prices(self) -> list[tuple[int, int, int]]:
        """Return the entries of the log, in its order: operation, key, price."""
        with self.catalog() as catalog:
            rows = catalog.load_table("shop.prices_log").scan().to_arrow().to_pylist()
        order = ("__load", "__lsn", "__command_id", "__seq", "__op")
        return [(row["__op"], row["Id"], row["Price"]) for row in sorted(rows, key=itemgetter(*order))]

    def commit_times(self, deleted: str = "false") -> dict[int, datetime | None]:
        """Return the times of the commits that the rows of Customers have, by their keys."""
        with self.catalog() as catalog:
            rows = catalog.load_table("shop.customers").scan(row_filter=f"__deleted = {deleted}").to_arrow()
        return dict(zip(rows.column("id").to_pylist(), rows.column("__committed_at").to_pylist(), strict=True))

    def window_state(self) -> str | None:
        """Return the state of the newest window."""
        with psycopg.connect(self.server_conninfo) as session:
            row = session.execute("SELECT state FROM floodmark.windows ORDER BY window_id DESC LIMIT 1").fetchone()
        return row[0] if row else None

    @property
    def server_conninfo(self) -> str:
        at = self.server
        return f"host=127.0.0.1 port={at.port} user=postgres password={at.password} dbname=postgres"


@pytest.fixture
def lake(emulator: Emulator, open_dir: Path, tmp_path: Path) -> Iterator[Lake]:
    path, folder = tmp_path / "pipelines.yaml", tmp_path / "lake"
    path.write_text(CONFIG, encoding="utf-8")
    with (
        cdc_database(emulator) as source,
        PreparedPostgres(open_dir / "lake_ledger", port=free_port()) as server,
        open_store("company") as bucket,
        open_catalog(LakeFolder(str(folder), bucket)) as registry,
    ):
        ledger = {
            "conn_type": "postgres",
            "host": "127.0.0.1",
            "port": server.port,
            "login": "postgres",
            "password": server.password,
            "schema": "postgres",
        }
        environment = command_environment(emulator, source.name, server, path) | {
            "AIRFLOW_CONN_WAREHOUSE": json.dumps(ledger),
            "AIRFLOW_CONN_LAKE": connection_of(bucket, folder),
            "AIRFLOW_CONN_COMPANY": registry.connection(),
        }
        source.run(
            ORDERS,
            "CREATE TABLE dbo.Customers (Id int PRIMARY KEY, Name nvarchar(50), Since datetime2(3))",
            "CREATE TABLE dbo.Prices (Id int PRIMARY KEY, Price int)",
            "INSERT INTO dbo.Prices VALUES (1, 10)",
            "INSERT INTO dbo.Orders (Id, Amount, Flag, Big) SELECT value, value, 1, 1 FROM GENERATE_SERIES(1, 50)",
            "INSERT INTO dbo.Orders VALUES (60, -0.0, '0001-01-01 00:00:00.000001', '9999-12-31', N'Zürich 😀', 0x00FF,"
            " 0, -9223372036854775808, 0.1)",
            "INSERT INTO dbo.Customers VALUES (1, N'Ada', '2026-01-31 23:59:59.999'), (2, N'Bo', NULL)",
            "INSERT INTO dbo.Customers (Id) VALUES (3)",
            "INSERT INTO dbo.Customers VALUES (5, N'Eve', NULL), (6, N'Hidden', NULL), (7, N'Hidden', NULL)",
        )
        source.enable("Orders", "Customers", "Prices")
        yield Lake(source, server, folder, bucket, environment, registry)


def test_lake_equals_the_source_after_each_run_and_shows_nothing_unchecked(lake: Lake) -> None:
    lake.run()
    before = lake.published()
    assert before == lake.rows()
    loaded = lake.commit_times()
    change(lake.source)
    lake.source.run("UPDATE dbo.Orders SET Amount = -1 WHERE Id = 7")
    refused = lake.run(status=_FAILED)
    assert "amount_is_not_negative" in refused
    assert lake.published() == before | {"Customers": lake.rows()["Customers"]}
    assert lake.prices() == [(0, 1, 10), (3, 1, 10), (4, 1, 11), (2, 2, 20), (1, 1, 11)]
    assert "name_is_short" in lake.command("quarantine", "list", "shop")
    times = lake.commit_times()
    assert {key: times[key] for key in (1, 3)} == {key: loaded[key] for key in (1, 3)}
    assert (times[4] or AT_LEAST) > max(filter(None, loaded.values()), default=AT_LEAST)

    lake.source.run(
        "UPDATE dbo.Orders SET Amount = 1 WHERE Id = 7",
        "INSERT INTO dbo.Orders (Id, Amount) VALUES (100, 5)",
        "DELETE FROM dbo.Orders WHERE Id IN (8, 9)",
        "INSERT INTO dbo.Customers VALUES (10, N'Di', NULL)",
        "UPDATE dbo.Customers SET Name = N'A short name' WHERE Id = 8",
    )
    before = lake.published()
    lake.source.scan()
    killed = lake.begin("run", "shop")
    wait_until(lambda: lake.window_state() == "merged", _LIMIT_SECONDS)
    killed.kill()
    assert lake.published() == before
    lake.run()
    assert lake.published() == lake.rows()
    secrets = (lake.server.password, lake.bucket.secret_key, SECRET)
    assert not any(secret in refused + killed.output for secret in secrets)
    assert "no row in quarantine" in lake.command("quarantine", "list", "shop")

    examined = lake.begin("doctor", "shop", "--all")
    examined.wait(_LIMIT_SECONDS)
    assert f"{lake.bucket.location}/tables: it is reached" in examined.output
    assert "the metadata of all 3 tables is there" in examined.output
    assert "catalog company: it has all published tables as they are now" in examined.output
    release_row(lake)
    replay_changes(lake)
    verified = lake.command("verify", "shop")
    assert re.search(r"dbo\.Customers +equal", verified)
    # PyIceberg writes the whole file again, and says so.
    with lake.catalog() as catalog, pytest.warns(UserWarning, match="Merge on read is not yet supported"):
        catalog.load_table("shop.customers").delete("id = 3")
    differs = lake.command("verify", "shop", "--table", "dbo.Customers", "--json", "-q", status=_FAILED)
    [found] = json.loads(differs[differs.index("[") :])
    assert (found["missing_rows"], found["extra_rows"], found["different_rows"]) == (1, 0, 0)
    lake.source.run("DELETE FROM dbo.Customers WHERE Id = 10")
    lake.command("reload", "shop", "dbo.Customers")
    assert lake.published() == lake.rows()
    assert [at for key, at in lake.commit_times("true").items() if key == 10] != [None]
    assert not list((lake.folder / "staging").glob("*/*"))

    keep_small(lake)


def release_row(lake: Lake) -> None:
    """Let a row go to quarantine, and come back from there by the command when it is corrected there.

    The REST catalog is away when the window is published, and has it later.
    """
    lake.source.run(
        "INSERT INTO dbo.Customers VALUES (9, N'A name that is too long now', '2026-04-01')",
        "UPDATE dbo.Orders SET Notes = N'once more' WHERE Id = 100",
    )
    lake.registry.refuses = 503
    before = dict(lake.registry.tables)
    assert "the catalog company: it gave no answer" in lake.run(status=_TRY_AGAIN)
    assert lake.registry.tables == before
    lake.registry.refuses = 0
    assert lake.command("lake", "register").splitlines()[-1] == "shop.orders: registered."
    assert lake.published() == lake.rows()
    lake.source.run("UPDATE dbo.Customers SET Name = N'Short' WHERE Id = 9")
    with psycopg.connect(lake.server_conninfo) as session:
        session.execute(
            """UPDATE floodmark.quarantine SET row_data = row_data || '{"name": "Short"}' WHERE key = '[9]'"""
        )
    released = lake.command("quarantine", "release", "shop", "dbo.Customers")
    assert "rows inserted: 1; updated: 0" in released
    assert lake.published() == lake.rows()


def replay_changes(lake: Lake) -> None:
    """Let a foreign program change rows of two tables, and replay their changes: the rows come back.

    A row that was deleted at the source does not, and a log has each change once.
    """
    prices = lake.prices()
    [log] = lake.source.query("SELECT MIN(start_lsn) AS first, MAX(start_lsn) AS last FROM cdc.lsn_time_mapping")
    interval = ("--from-lsn", f"0x{log['first'].hex()}", "--to-lsn", f"0x{log['last'].hex()}")
    with lake.catalog() as catalog, pytest.warns(UserWarning, match="Merge on read is not yet supported"):
        catalog.load_table("shop.orders").delete("Id = 70 OR Id = 1 OR Id = 5")
        catalog.load_table("shop.customers").delete("id = 4")
    replayed = lake.command("replay", "shop", *interval)
    assert "on, at which the whole table was read" in replayed
    assert lake.published() == lake.rows()
    assert lake.prices() == prices


def keep_small(lake: Lake) -> None:
    """Find the newest snapshots by a position, and compact all tables: readers see the same."""
    with lake.catalog() as catalog:
        tables = [catalog.load_table(f"shop.{target}") for target in TABLES.values()]
    # Snapshots of a replay, a release and another program have no position.
    newest = [[each for each in table.snapshots() if each.summary and each.summary["floodmark.to"]] for table in tables]
    as_of = lake.command("lake", "as-of", "shop", "0x" + "F" * 20)
    assert all(str(found[-1].snapshot_id) in as_of for found in newest)
    assert lake.command("lake", "as-of", "shop", "soon", status=_WRONG).count("soon is no position") == 1
    kept = lake.command("lake", "upkeep", "--keep-days", "0", "--rewrite")
    named = [line.partition(": was ")[0] for line in kept.splitlines() if ": was " in line]
    assert named == ["shop.orders", "shop.customers", "shop.prices_log"]
    assert "1 file, " in kept
    listed = lake.command("lake", "list", "--wide")
    assert "shop.orders" in listed
    assert "due" not in listed
    assert lake.published() == lake.rows()


def change(source: CdcDatabase) -> None:
    """Insert, update and delete rows of both tables, one of them several times."""
    source.run(
        "UPDATE dbo.Orders SET Amount = Amount * 2, Notes = N'twice' WHERE Id % 5 = 0",
        "UPDATE dbo.Orders SET Amount = 3 WHERE Id = 60",
        "DELETE FROM dbo.Orders WHERE Id % 7 = 0 AND Id <> 7",
        "INSERT INTO dbo.Orders (Id, Amount, Placed) VALUES (70, 1, '2026-11-27 12:00:00.123456')",
        "DELETE FROM dbo.Orders WHERE Id = 1",
        "INSERT INTO dbo.Orders (Id, Amount) VALUES (1, 11)",
        "DELETE FROM dbo.Customers WHERE Id = 2",
        "INSERT INTO dbo.Customers VALUES (4, N'New', '2026-02-01 00:00')",
        # One leaves the filter, one enters it, and one never passes.
        "UPDATE dbo.Customers SET Name = N'Hidden' WHERE Id = 5",
        "UPDATE dbo.Customers SET Name = N'Fay' WHERE Id = 6",
        "UPDATE dbo.Customers SET Since = '2026-03-01' WHERE Id = 7",
        "INSERT INTO dbo.Customers VALUES (8, N'A name that is not short', NULL)",
        "UPDATE dbo.Prices SET Price = 11 WHERE Id = 1",
        "INSERT INTO dbo.Prices VALUES (2, 20)",
        "DELETE FROM dbo.Prices WHERE Id = 1",
    )
