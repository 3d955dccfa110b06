"""Keys of the greatest length that SQL Server allows, 1,700 bytes, and rows and keys that PostgreSQL cannot hold."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from switch_rig import ORDERS, SwitchRig

from cdc_database import cdc_database
from emulator_process import Emulator
from floodmark.core.schema import TableName
from floodmark.core.settings import Deletes, OnFailure, PipelineSettings, Rule, TableSettings
from floodmark.postgres.session import WarehouseConnection

# What PostgreSQL can compress is short in an index.
KEY = "0x" + "".join(f"{number * 7919 % 65536:04X}" for number in range(850))
POSITIVE = Rule("positive", '"Amount" > 0', OnFailure.QUARANTINE)


@pytest.fixture
def rig(emulator: Emulator, database: WarehouseConnection) -> Iterator[SwitchRig]:
    with cdc_database(emulator) as source:
        source.run("CREATE TABLE dbo.Orders (Code varbinary(1700) NOT NULL PRIMARY KEY NONCLUSTERED, Amount int)")
        source.enable("Orders")
        made = SwitchRig(emulator, source, database)
        orders = TableSettings(ORDERS, TableName("shop", "orders"), deletes=Deletes.HARD, rules=(POSITIVE,))
        made.pipelines = [PipelineSettings("shop", (orders,))]
        yield made


def test_long_keys_are_quarantined_and_deleted(rig: SwitchRig) -> None:
    rig.run()
    rig.change(f"INSERT INTO dbo.Orders VALUES ({KEY}, 1), (0x01, 2)")
    rig.change("DELETE dbo.Orders WHERE Amount = 1")
    rig.run()
    rig.change(f"INSERT INTO dbo.Orders VALUES ({KEY}, -1)")
    rig.run()
    rig.change(f"DELETE dbo.Orders WHERE Code = {KEY}")
    rig.run()
    assert rig.rows("SELECT count(*) FROM floodmark.quarantine") == [(1,)]
    assert (bytes.fromhex(KEY[2:]),) in rig.rows("SELECT decode(substr(key ->> 0, 3), 'hex') FROM floodmark.tombstones")


WIDE = ", ".join(f"C{number} decimal(9,2)" for number in range(900))


@pytest.mark.parametrize(
    ("created", "row", "key", "what"),
    [
        # 4.5 kB at the source.
        (f"Id int NOT NULL PRIMARY KEY, {WIDE}", f"1, {', '.join(['1234567.89'] * 900)}", (), "row is too big"),
        ("Code varbinary(4000)", KEY + KEY[2:], ("Code",), "index row size 3416 exceeds"),
    ],
)
def test_row_that_postgresql_cannot_hold_refuses_its_table_alone(
    rig: SwitchRig, created: str, row: str, key: tuple[str, ...], what: str
) -> None:
    rig.database.run(f"CREATE TABLE dbo.Other ({created})", f"INSERT dbo.Other VALUES ({row})")
    rig.database.run("INSERT INTO dbo.Orders VALUES (0x01, 2)")
    rig.database.enable("Other")
    other = TableSettings(TableName("dbo", "Other"), TableName("shop", "other"), key=key)
    rig.pipelines = [PipelineSettings("shop", (*rig.pipelines[0].tables, other))]
    for amount in (2, 3):
        rig.run()
        assert rig.rows('SELECT "Amount" FROM shop.orders') == [(amount,)]
        verdicts = "SELECT verdict, cause, hint FROM floodmark.verdicts WHERE source_name = 'Other'"
        ((verdict, cause, hint),) = rig.rows(verdicts)
        assert verdict == "refused"
        assert cause.startswith("a row or a table is larger than PostgreSQL allows: ")
        assert what in cause
        assert "@captured_column_list" in hint
        assert "1234567" not in cause
        rig.change("UPDATE dbo.Orders SET Amount = Amount + 1")
