"""Keys of the greatest length that SQL Server allows, 1,700 bytes, where their JSON is indexed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from switch_rig import ORDERS, SwitchRig

from cdc_database import cdc_database
from emulator_process import Emulator
from floodmark.core.policies import Deletes, OnFailure, Rule
from floodmark.core.schema import TableName
from floodmark.core.settings import PipelineSettings, TableSettings
from floodmark.postgres.connection import WarehouseConnection

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
