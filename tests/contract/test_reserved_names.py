"""Columns whose names begin as those of a change table's own columns do, on a real source and warehouse."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from switch_rig import SwitchRig

from cdc_database import cdc_database
from emulator_process import Emulator
from floodmark.postgres.connection import WarehouseConnection


@pytest.fixture
def rig(emulator: Emulator, database: WarehouseConnection) -> Iterator[SwitchRig]:
    with cdc_database(emulator) as source:
        source.run(
            "CREATE TABLE dbo.Orders (Id int NOT NULL PRIMARY KEY, [__$tenant] int, A nvarchar(max), B nvarchar(max))",
            "INSERT INTO dbo.Orders VALUES (1, 7, N'a', N'b')",
        )
        source.enable("Orders")
        yield SwitchRig(emulator, source, database)


def test_column_that_only_begins_like_the_servers_own_arrives_and_the_mask_is_read_in_its_place(rig: SwitchRig) -> None:
    rig.run()
    rig.change("UPDATE dbo.Orders SET A = NULL", "UPDATE dbo.Orders SET [__$tenant] = 8")
    rig.run()
    assert rig.rows('SELECT "Id", "__$tenant", "A", "B" FROM shop.orders') == [(1, 8, None, "b")]
    assert rig.differing() == []
