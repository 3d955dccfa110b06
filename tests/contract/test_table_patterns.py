"""Patterns of tables, from pipelines.yaml to rows: what is taken, what is reported, and what stays."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cdc_database import CdcDatabase, cdc_database
from command_rig import CommandRig
from emulator_process import Emulator

CONFIG = """
sources: {shop: {conn_id: shop_mssql}}
warehouse: {conn_id: warehouse}
pipelines:
  shop:
    source: shop
    naming: snake_case
    NEW_TABLES
    tables:
      - {source: dbo.*, target: shop.*, exclude: [dbo.Log*]}
"""
REPORT = CONFIG.replace("NEW_TABLES", "")
ADD = CONFIG.replace("NEW_TABLES", "new_tables: add")


@pytest.fixture
def source(emulator: Emulator) -> Iterator[CdcDatabase]:
    with cdc_database(emulator) as database:
        track(database, "Orders", "OrderLines", "LogEntries")
        database.run("CREATE TABLE dbo.Untracked (Id int PRIMARY KEY, Amount int)")
        yield database


@pytest.fixture
def rig(commands: CommandRig) -> CommandRig:
    commands.configure(REPORT)
    return commands


def track(database: CdcDatabase, *tables: str) -> None:
    for table in tables:
        database.run(
            f"CREATE TABLE dbo.{table} (Id int PRIMARY KEY, Amount int)", f"INSERT INTO dbo.{table} VALUES (1, 10)"
        )
        database.enable(table)
    database.scan()


def targets(rig: CommandRig) -> list[str]:
    return [name for (name,) in rig.rows("SELECT tablename FROM pg_tables WHERE schemaname = 'shop' ORDER BY 1")]


def change(rig: CommandRig, table: str, amount: int) -> None:
    rig.source.run(f"UPDATE dbo.{table} SET Amount = {amount} WHERE Id = 1")
    rig.source.scan()


def test_pattern_brings_every_tracked_table_but_the_excluded(rig: CommandRig) -> None:
    assert "1 pipeline, 0 tables, 1 pattern of tables" in rig.call("config", "check")
    rig.call("run", "shop")
    assert targets(rig) == ["order_lines", "orders"]
    change(rig, "OrderLines", 11)
    rig.call("run", "shop")
    assert rig.rows("SELECT id, amount FROM shop.order_lines") == [(1, 11)]
    assert "dbo.OrderLines" in rig.call("status", "shop")
    assert "dbo.OrderLines" in rig.call("verify", "shop")
    assert rig.alerts("table_not_taken") == []


def test_later_table_is_reported_and_stays_out_until_the_file_adds_it(rig: CommandRig) -> None:
    rig.call("run", "shop")
    track(rig.source, "Payments")
    for amount in (11, 12):
        change(rig, "Orders", amount)
        rig.call("run", "shop")
        assert rig.alerts("table_not_taken") == [
            "dbo.Payments: the new table matches dbo.*, and is not part of the pipeline."
        ]
    assert targets(rig) == ["order_lines", "orders"]
    assert "dbo.Payments: the new table matches dbo.*" in rig.call("status", "shop")
    assert "dbo.Payments: the new table matches dbo.*" in rig.call("drift", "list")
    assert "the new table matches dbo.*, and is not part of the pipeline" in rig.try_call("doctor", "shop")[1]
    rig.configure(ADD)
    change(rig, "Orders", 13)
    rig.call("run", "shop")
    assert rig.alerts("table_not_taken") == []
    assert rig.rows("SELECT id, amount FROM shop.payments") == [(1, 10)]
    rig.call("verify", "shop")
    # What a run has taken stays, whatever the file says about later tables.
    rig.configure(REPORT)
    change(rig, "Payments", 14)
    rig.call("run", "shop")
    assert rig.rows("SELECT id, amount FROM shop.payments") == [(1, 14)]


def test_entry_of_its_own_wins_and_an_exclusion_that_ends_takes_the_table(rig: CommandRig) -> None:
    own = "      - {source: dbo.orders, target: other.o, deletes: hard}\n"
    rig.configure(REPORT + own)
    rig.call("run", "shop")
    assert targets(rig) == ["order_lines"]
    assert rig.rows("SELECT id FROM other.o") == [(1,)]
    rig.configure(REPORT.replace(", exclude: [dbo.Log*]", "") + own)
    change(rig, "Orders", 11)
    rig.call("run", "shop")
    assert targets(rig) == ["log_entries", "order_lines"]


def test_table_that_is_gone_keeps_its_verdict(rig: CommandRig) -> None:
    rig.call("run", "shop")
    rig.source.run(
        "EXEC sys.sp_cdc_disable_table @source_schema = N'dbo', @source_name = N'OrderLines',"
        " @capture_instance = N'all'"
    )
    change(rig, "Orders", 11)
    rig.call("run", "shop")
    assert rig.rows("SELECT id, amount FROM shop.orders") == [(1, 11)]
    assert "dbo.OrderLines held" in rig.call("status", "shop")
    assert rig.rows("SELECT id, amount FROM shop.order_lines") == [(1, 10)]


def test_table_whose_target_is_filled_is_left_out_by_name(rig: CommandRig) -> None:
    rig.source.run("CREATE SCHEMA sales")
    rig.source.run("CREATE TABLE sales.Orders (Id int PRIMARY KEY)")
    rig.source.run(
        "EXEC sys.sp_cdc_enable_table @source_schema = N'sales', @source_name = N'Orders', @role_name = NULL"
    )
    rig.configure(REPORT + "      - {source: sales.*, target: shop.*}\n")
    rig.call("run", "shop")
    assert rig.alerts("table_not_taken") == [
        "sales.Orders: the table matches sales.*, and dbo.Orders fills its target shop.orders."
    ]
    assert rig.rows("SELECT id, amount FROM shop.orders") == [(1, 10)]


def test_pattern_that_matches_no_table_is_refused(rig: CommandRig) -> None:
    rig.configure(REPORT.replace("dbo.*", "sales.*"))
    status, output = rig.try_call("run", "shop")
    assert status == 2
    assert "no table whose changes the source records matches sales.*" in output


def test_pattern_of_change_tracking_brings_the_tracked_tables(rig: CommandRig) -> None:
    rig.source.run(
        f"ALTER DATABASE [{rig.source.name}] SET CHANGE_TRACKING = ON (CHANGE_RETENTION = 2 DAYS, AUTO_CLEANUP = ON)",
        "ALTER TABLE dbo.Orders ENABLE CHANGE_TRACKING",
    )
    rig.configure(REPORT.replace("conn_id: shop_mssql", "conn_id: shop_mssql, kind: change_tracking"))
    rig.call("run", "shop")
    assert targets(rig) == ["orders"]


def test_tables_of_a_pattern_are_histories(rig: CommandRig) -> None:
    """Also one that comes later. A table whose names another one has is left out by name, and the others go on."""
    rig.configure(ADD.replace("target: shop.*,", "target: shop.*, style: history,"))
    rig.call("run", "shop")
    change(rig, "Orders", 11)
    track(rig.source, "Payments")
    rig.call("run", "shop")
    change(rig, "Payments", 12)
    rig.call("run", "shop")
    found = [name for name in targets(rig) if not name.endswith("_versions")]
    assert found == ["order_lines", "orders", "payments"]
    newest = "SELECT amount, __next_lsn IS NULL FROM shop.%s_history ORDER BY __lsn"
    assert rig.rows(newest % "orders") == [(10, False), (11, True)]
    assert rig.rows(newest % "payments") == [(10, False), (12, True)]
    assert "dbo.Payments" in rig.call("verify", "shop")
    track(rig.source, "Orders_Versions")
    change(rig, "Orders", 13)
    status, output = rig.try_call("run", "shop")
    assert status == 1
    assert "dbo.Orders_Versions: refused: the target shop.orders_versions exists with another shape" in output
    assert rig.rows(newest % "orders") == [(10, False), (11, False), (13, True)]


def test_pattern_of_a_kind_that_takes_none_is_refused_by_name(rig: CommandRig) -> None:
    for kind in ("compact", "event_stream, stream_conn_id: events"):
        rig.configure(REPORT.replace("conn_id: shop_mssql", f"conn_id: shop_mssql, kind: {kind}"))
        status, output = rig.try_call("config", "check")
        assert status == 2
        assert "takes no patterns" in output
