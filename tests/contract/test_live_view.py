"""``live_view``: the view of the rows that the source has not deleted, and that it follows its target."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from switch_rig import SwitchRig

from cdc_database import CdcDatabase, cdc_database
from emulator_process import Emulator
from floodmark.core.settings import Deletes
from floodmark.postgres.session import WarehouseConnection

pytestmark = pytest.mark.usefixtures("ledger")


class ViewRig(SwitchRig):
    """A pipeline of one table."""

    def choose(self, **chosen: Any) -> None:
        settings = self.pipelines[0]
        self.pipelines = [replace(settings, tables=tuple(replace(each, **chosen) for each in settings.tables))]

    def columns(self) -> list[str]:
        found = self.rows(
            "SELECT attname || ' ' || format_type(atttypid, atttypmod) FROM pg_attribute"
            " WHERE attrelid = 'shop.orders_live'::regclass AND attnum > 0 ORDER BY attnum"
        )
        return [column for (column,) in found]


@pytest.fixture
def source(emulator: Emulator) -> Iterator[CdcDatabase]:
    with cdc_database(emulator) as made:
        made.run(
            "CREATE TABLE dbo.Orders (Id int NOT NULL PRIMARY KEY, Amount int)",
            "INSERT INTO dbo.Orders VALUES (1, 10), (2, 20), (3, 30)",
        )
        made.enable("Orders")
        yield made


@pytest.fixture
def rig(emulator: Emulator, source: CdcDatabase, database: WarehouseConnection) -> ViewRig:
    return ViewRig(emulator, source, database)


@pytest.mark.parametrize("deletes", Deletes)
def test_view_has_the_rows_and_columns_of_the_source_after_changes(rig: ViewRig, deletes: Deletes) -> None:
    rig.choose(live_view=True, deletes=deletes)
    rig.run()
    rig.change("DELETE dbo.Orders WHERE Id = 2", "UPDATE dbo.Orders SET Amount = 11 WHERE Id = 1")
    rig.run()
    assert rig.rows("SELECT * FROM shop.orders_live ORDER BY 1") == [(1, 11), (3, 30)]
    assert rig.columns() == ["Id integer", "Amount integer"]
    assert len(rig.rows("SELECT FROM shop.orders")) == (3 if deletes is Deletes.SOFT else 2)
