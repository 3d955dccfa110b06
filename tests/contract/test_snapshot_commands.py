"""A snapshot of a table as a user meets it: from ``pipelines.yaml`` by the command to SELECT."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cdc_database import CdcDatabase, cdc_database
from command_rig import CommandRig
from emulator_process import Emulator

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
CONFIG = """
sources: {shop: {conn_id: shop_mssql}}
warehouse: {conn_id: warehouse}
pipelines:
  shop:
    source: shop
    schedule: null
    tables:
      - {source: dbo.Orders, target: shop.orders}
      - source: dbo.Zones
        target: shop.zones
        style: snapshot
        columns: {Name: {mask: redact}}
        rules: [{name: positive, sql: "rate > 0"}]
        expectations: [{type: expect_column_values_to_not_be_null, kwargs: {column: Rate}, rows: table}]
"""
ROWS = 'SELECT "Name", "Rate" FROM shop.zones ORDER BY 2'


@pytest.fixture
def source(emulator: Emulator) -> Iterator[CdcDatabase]:
    with cdc_database(emulator) as made:
        made.run(
            "CREATE TABLE dbo.Orders (Id int NOT NULL PRIMARY KEY)",
            "CREATE TABLE dbo.Zones (Name nvarchar(9), Rate int)",
        )
        made.enable("Orders")
        made.enable("Zones")
        made.run("INSERT INTO dbo.Orders VALUES (1)", "INSERT INTO dbo.Zones VALUES (N'a', 10), (N'a', 10), (N'b', 20)")
        made.scan()
        yield made


@pytest.fixture
def rig(commands: CommandRig) -> CommandRig:
    commands.configure(CONFIG)
    return commands


def change(rig: CommandRig, *statements: str) -> None:
    rig.source.run(*statements)
    rig.source.scan()


def test_snapshot_is_filled_checked_released_and_reloaded(rig: CommandRig) -> None:
    rig.call("config", "check")
    rig.call("run", "shop")
    assert rig.rows(ROWS) == [("***", 10), ("***", 10), ("***", 20)]
    change(rig, "UPDATE dbo.Zones SET Rate = -1 WHERE Name = N'b'", "INSERT INTO dbo.Orders VALUES (2)")
    rig.call("run", "shop")
    assert rig.rows(ROWS) == [("***", 10), ("***", 10)]
    assert "dbo.Zones positive 1" in rig.call("quarantine", "list", "shop")
    rig.configure(CONFIG.replace("rate > 0", "rate > -9"))
    rig.call("quarantine", "release", "shop", "dbo.Zones")
    assert rig.rows(ROWS) == [("***", -1), ("***", 10), ("***", 10)]
    # A window of another table leaves the rows as they are.
    change(rig, "DELETE dbo.Orders WHERE Id = 2")
    rig.call("run", "shop")
    assert rig.rows("SELECT DISTINCT __window_id FROM shop.zones ORDER BY 1") == [(2,), (3,)]
    rig.call("reload", "shop", "dbo.Zones")
    assert rig.rows(ROWS) == [("***", -1), ("***", 10), ("***", 10)]
    assert "dbo.Zones: none, and a snapshot needs none." in rig.try_call("doctor", "shop", "--all")[1]
    compared = rig.call("verify", "shop")
    assert "dbo.Orders equal" in compared
    assert "shop.zones" not in compared
    assert "dbo.Zones" in rig.call("status", "shop")


def test_key_of_a_target_without_one_is_not_forgotten(rig: CommandRig) -> None:
    rig.call("run", "shop")
    status, output = rig.try_call("forget", "shop", "dbo.Zones", "--key", "Rate=10")
    assert status == 2
    assert "its target is a snapshot without a key of the source, and no key can be forgotten" in output
    assert rig.rows(ROWS) == [("***", 10), ("***", 10), ("***", 20)]


def test_settings_without_a_meaning_are_refused_by_the_check(rig: CommandRig) -> None:
    rig.configure(CONFIG.replace("style: snapshot", "style: snapshot\n        key: [Rate]"))
    status, output = rig.try_call("config", "check")
    assert status == 2
    assert "pipelines.shop.tables[1]: style: snapshot, but key: [Rate] is for rows that are merged" in output


def test_plan_names_the_style_that_was_changed(rig: CommandRig) -> None:
    rig.call("run", "shop")
    change(rig, "DELETE dbo.Zones", "EXEC sys.sp_cdc_start_job")
    rig.configure(CONFIG.replace("style: snapshot", "style: log"))
    status, output = rig.try_call("plan", "shop")
    assert status == 3
    assert "style: snapshot -> log. One target has one style for good" in output
    assert "was made with style: snapshot, and pipelines.yaml has style: log" in output
