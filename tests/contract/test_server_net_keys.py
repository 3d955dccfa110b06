"""Keys for which the server's net changes are refused, on a real source."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from switch_rig import ORDERS, SwitchRig

from cdc_database import CdcDatabase, cdc_database
from emulator_process import Emulator
from floodmark.core.errors import ConfigError
from floodmark.core.schema import TableName
from floodmark.core.settings import NetSource, PipelineSettings, TableSettings
from floodmark.postgres.session import WarehouseConnection


@pytest.fixture
def source(emulator: Emulator) -> Iterator[CdcDatabase]:
    with cdc_database(emulator) as made:
        yield made


def _rig(emulator: Emulator, source: CdcDatabase, database: WarehouseConnection, key: str) -> SwitchRig:
    source.run(f"CREATE TABLE dbo.Orders (Code {key} NOT NULL PRIMARY KEY, Amount int)")
    source.enable("Orders", supports_net_changes="1")
    made = SwitchRig(emulator, source, database)
    orders = TableSettings(ORDERS, TableName("shop", "orders"), net=NetSource.SERVER)
    made.pipelines = [PipelineSettings("shop", (orders,))]
    return made


def test_text_key_is_refused_by_name(emulator: Emulator, source: CdcDatabase, database: WarehouseConnection) -> None:
    rig = _rig(emulator, source, database, "varchar(20)")
    with pytest.raises(ConfigError, match=r"dbo\.Orders: .*net: server.* \(Code varchar\(20\) \w+\)") as found:
        rig.run()
    assert "Use net: spark" in found.value.hint


@pytest.mark.parametrize("key", ["int", "binary(8)"])
def test_key_that_is_compared_by_bytes_is_followed(
    emulator: Emulator, source: CdcDatabase, database: WarehouseConnection, key: str
) -> None:
    rig = _rig(emulator, source, database, key)
    rig.run()
    rig.change("INSERT INTO dbo.Orders VALUES (1, 1), (2, 2)", "DELETE dbo.Orders WHERE Amount = 1")
    rig.run()
    assert rig.differing() == []
