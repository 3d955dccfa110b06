"""Tables with ``style: history``, from the change table of an emulator to the versions in target and view."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from switch_rig import ORDERS, SwitchRig

from cdc_database import cdc_database
from emulator_process import Emulator
from floodmark.core.schema import TableName
from floodmark.core.settings import FirstLoad, PipelineSettings, Style, TableSettings
from floodmark.postgres.session import WarehouseConnection

TARGET = TableName("shop", "orders")
VERSIONS = 'SELECT __op, "Id", "Amount", "Note", __deleted, __next_lsn IS NULL FROM shop.orders_history'
IN_ORDER = f'{VERSIONS} ORDER BY "Id", __load, __lsn'


@pytest.fixture
def rig(emulator: Emulator, database: WarehouseConnection) -> Iterator[SwitchRig]:
    """A table of three rows, read two at a time."""
    with cdc_database(emulator) as source:
        source.run(
            "CREATE TABLE dbo.Orders (Id int NOT NULL PRIMARY KEY, Amount int, Note nvarchar(max))",
            "INSERT INTO dbo.Orders VALUES (1, 10, N'a'), (2, 20, N'b'), (3, 30, N'c')",
        )
        source.enable("Orders")
        made = SwitchRig(emulator, source, database)
        configure(made)
        yield made


def configure(rig: SwitchRig, **settings: Any) -> None:
    chosen = {"style": Style.HISTORY, "first_load": FirstLoad(chunk_rows=2)} | settings
    rig.pipelines = [PipelineSettings("shop", (TableSettings(ORDERS, TARGET, **chosen),))]


def test_each_commit_of_a_row_is_a_version(rig: SwitchRig) -> None:
    rig.run()
    loaded = [(2, 1, 10, "a", False, True), (2, 2, 20, "b", False, True), (2, 3, 30, "c", False, True)]
    assert rig.rows(IN_ORDER) == loaded
    rig.change(
        "UPDATE dbo.Orders SET Amount = 11 WHERE Id = 1",
        "UPDATE dbo.Orders SET Amount = 12, Note = NULL WHERE Id = 1",
        "BEGIN TRANSACTION; INSERT INTO dbo.Orders VALUES (4, 40, N'd'); DELETE dbo.Orders WHERE Id = 4; COMMIT",
        "DELETE dbo.Orders WHERE Id = 2",
    )
    rig.run()
    assert rig.rows(IN_ORDER) == [
        (2, 1, 10, "a", False, False),
        (4, 1, 11, "a", False, False),
        (4, 1, 12, None, False, True),
        (2, 2, 20, "b", False, False),
        (1, 2, 20, "b", True, True),
        (2, 3, 30, "c", False, True),
    ]
    assert rig.rows('SELECT "Id", "Amount" FROM shop.orders WHERE NOT __deleted ORDER BY 1') == [(1, 12), (3, 30)]
