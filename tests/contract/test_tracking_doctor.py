"""The doctor over the wire on a database with change tracking: what it finds, what fixes it, and enough grants."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from shop_connections import set_connections
from typer.testing import CliRunner

from emulator_process import Emulator
from floodmark.cli.main import app
from floodmark.core.planning import classify_tables
from floodmark.core.position import Version
from floodmark.core.snapshot import Verdict
from floodmark.postgres.session import WarehouseConnection
from floodmark.sources.change_tracking.source import TrackingSource
from floodmark.sources.sqlserver.driver import SqlServerConnection
from tracking_rig import TrackingRig, tracked_tables, tracking_rig

READER, PASSWORD = "tracking's reader", "Tr4cking!reader"
CONFIG = """
sources: {shop: {conn_id: shop_mssql, kind: change_tracking}}
warehouse: {conn_id: warehouse}
pipelines:
  shop:
    source: shop
    schedule: "@weekly"
    tables:
      - {source: dbo.Orders, target: shop.orders}
      - {source: dbo.Names, target: shop.names}
      - {source: dbo.Plain, target: shop.plain}
"""
TABLES = (
    "CREATE TABLE dbo.Orders (Id int NOT NULL PRIMARY KEY, Amount int, Twice AS Amount * 2)",
    "ALTER TABLE dbo.Orders ENABLE CHANGE_TRACKING",
    "CREATE TABLE dbo.Names (Name nvarchar(20) NOT NULL PRIMARY KEY)",
    "ALTER TABLE dbo.Names ENABLE CHANGE_TRACKING",
    "CREATE TABLE dbo.Plain (Id int NOT NULL PRIMARY KEY)",
    "CREATE PROCEDURE dbo.Refresh AS TRUNCATE TABLE dbo.Orders",
    "INSERT dbo.Orders (Id, Amount) VALUES (1, 1)",
)


@pytest.fixture
def rig(emulator: Emulator, database: WarehouseConnection) -> Iterator[TrackingRig]:
    with tracking_rig(emulator, database, tracked_tables("Orders", "Names"), TABLES) as made:
        yield made


@pytest.fixture
def doctor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, emulator: Emulator, rig: TrackingRig
) -> Iterator[CliRunner]:
    path = tmp_path / "pipelines.yaml"
    path.write_text(CONFIG, encoding="utf-8")
    monkeypatch.setenv("FLOODMARK_CONFIG", str(path))
    set_connections(monkeypatch, emulator, rig.at.database, rig.warehouse)
    yield CliRunner()


@pytest.fixture
def reader(rig: TrackingRig) -> Iterator[SqlServerConnection]:
    """The connection of a login without any right on the tables."""
    rig.run(
        f"CREATE LOGIN [{READER}] WITH PASSWORD = '{PASSWORD}'",
        f"CREATE USER [{READER}] FOR LOGIN [{READER}]",
    )
    yield replace(rig.at, user=READER, password=PASSWORD)
    rig.run(f"DROP USER [{READER}]", f"DROP LOGIN [{READER}]")


def findings(doctor: CliRunner) -> dict[tuple[str, str], dict[str, str]]:
    done = doctor.invoke(app, ["doctor", "shop", "--json"])
    return {(each["check"], each["subject"]): each for each in json.loads(done.output)}


def test_findings_are_about_change_tracking_alone(doctor: CliRunner, rig: TrackingRig) -> None:
    found = findings(doctor)
    name = rig.at.database
    grades = {check: each["grade"] for (check, subject), each in found.items() if subject == name}
    assert grades["change tracking"] == grades["snapshot isolation"] == grades["permissions"] == "good"
    assert (grades["retention"], grades["cleanup"]) == ("good", "risk")
    assert found["instance", "dbo.Orders"]["grade"] == "good"
    assert "dbo.Refresh truncates it" in found["truncate", "dbo.Orders"]["text"]
    assert found["key spelling", "dbo.Names"]["grade"] == "problem"
    assert "ALTER TABLE [dbo].[Plain] ENABLE CHANGE_TRACKING" in found["instance", "dbo.Plain"]["fix"]
    shown = " ".join(f"{each['text']} {each['fix']}" for each in found.values())
    assert [words for words in ("cdc", "capture", "change table", "LSN", "net: spark") if words in shown] == []


def test_fixes_of_the_server_resolve_what_was_found(doctor: CliRunner, rig: TrackingRig) -> None:
    rig.run(f"ALTER DATABASE {rig.at.database} SET ALLOW_SNAPSHOT_ISOLATION OFF")
    # A retention that is too short counts where something is cleaned up.
    for check in ("snapshot isolation", "cleanup", "retention"):
        finding = findings(doctor)[check, rig.at.database]
        assert finding["grade"] == "risk"
        rig.run(finding["fix"].partition(";")[0])
        assert findings(doctor)[check, rig.at.database]["grade"] == "good"
    assert "CHANGE_RETENTION = 21 DAYS" in finding["fix"]


def test_database_without_change_tracking_is_one_problem_at_the_server(doctor: CliRunner, rig: TrackingRig) -> None:
    rig.run(
        "ALTER TABLE dbo.Orders DISABLE CHANGE_TRACKING",
        "ALTER TABLE dbo.Names DISABLE CHANGE_TRACKING",
        "ALTER DATABASE CURRENT SET CHANGE_TRACKING = OFF",
    )
    found = findings(doctor)
    assert found["change tracking", rig.at.database]["grade"] == "problem"
    rig.run(found["change tracking", rig.at.database]["fix"])
    fix = findings(doctor)["instance", "dbo.Plain"]["fix"]
    rig.run(fix.partition(";")[0])
    assert findings(doctor)["instance", "dbo.Plain"]["grade"] == "good"


def test_grants_are_enough_and_each_is_needed(doctor: CliRunner, rig: TrackingRig, reader: SqlServerConnection) -> None:
    def verdicts() -> list[Verdict]:
        snapshot = TrackingSource(reader).read_snapshot(rig.settings.sources)
        return [each.verdict for each in classify_tables(rig.settings, snapshot, {})]

    script = doctor.invoke(app, ["doctor", "shop", "--grants", READER]).output
    rig.run(*(line for line in script.splitlines() if not line.startswith("--")))
    snapshot = TrackingSource(reader).read_snapshot(rig.settings.sources)
    assert verdicts() == [Verdict.NOT_STARTED, Verdict.NOT_STARTED]
    assert snapshot.newest_at is not None
    for right in ("VIEW CHANGE TRACKING ON dbo.Orders", "SELECT ON dbo.Orders"):
        rig.run(f"REVOKE {right} FROM [{READER}]")
        assert verdicts()[0] in {Verdict.NO_PERMISSION, Verdict.INSTANCE_MISSING}, right
        assert verdicts()[1] is Verdict.NOT_STARTED
        rig.run(f"GRANT {right} TO [{READER}]")
    rig.run(f"REVOKE VIEW DATABASE STATE FROM [{READER}]")
    assert TrackingSource(reader).read_snapshot(rig.settings.sources).newest_at is None


def test_right_that_is_missing_is_named_with_its_grant(
    doctor: CliRunner, rig: TrackingRig, reader: SqlServerConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.run(f"GRANT SELECT ON dbo.Orders TO [{READER}]")
    source = json.loads(json.dumps({"conn_type": "mssql", "schema": reader.database, "host": reader.host}))
    source |= {"port": reader.port, "login": READER, "password": PASSWORD, "extra": {"ca_file": reader.ca_file}}
    monkeypatch.setenv("AIRFLOW_CONN_SHOP_MSSQL", json.dumps(source))
    found = findings(doctor)
    problem = found.get(("permissions", "dbo.Orders")) or found["instance", "dbo.Orders"]
    assert f"GRANT VIEW CHANGE TRACKING ON [dbo].[Orders] TO [{READER}];" in problem["fix"]
    assert found["permissions", rig.at.database]["fix"] == f"GRANT VIEW DATABASE STATE TO [{READER}];"


def test_side_table_that_is_hidden_is_named_with_the_right_that_shows_it(
    doctor: CliRunner, rig: TrackingRig, reader: SqlServerConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.run(f"GRANT SELECT, VIEW CHANGE TRACKING ON dbo.Orders TO [{READER}]")
    assert ("side table", "dbo.Orders") not in findings(doctor)
    source = {"conn_type": "mssql", "schema": reader.database, "host": reader.host, "port": reader.port}
    source |= {"login": READER, "password": PASSWORD, "extra": {"ca_file": reader.ca_file}}
    monkeypatch.setenv("AIRFLOW_CONN_SHOP_MSSQL", json.dumps(source))
    found = findings(doctor)["side table", "dbo.Orders"]
    assert found["grade"] == "note"
    rig.run(found["fix"])
    assert ("side table", "dbo.Orders") not in findings(doctor)


def test_table_of_which_the_login_may_read_some_columns_stops_no_other(
    rig: TrackingRig, reader: SqlServerConnection
) -> None:
    rig.run(
        f"GRANT VIEW CHANGE TRACKING TO [{READER}]",
        f"GRANT SELECT ON dbo.Orders (Amount) TO [{READER}]",
        f"GRANT SELECT ON dbo.Names TO [{READER}]",
    )
    snapshot = TrackingSource(reader).read_snapshot(rig.settings.sources, positions=[Version.of(0)])
    found = [each.verdict for each in classify_tables(rig.settings, snapshot, {})]
    assert found == [Verdict.NO_PERMISSION, Verdict.NOT_STARTED]
