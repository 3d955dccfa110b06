"""Deletes of rows that no target has: they are merged by a run with its checks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cdc_database import CdcDatabase, cdc_database
from command_rig import CommandRig, command_rig
from emulator_process import Emulator
from floodmark.postgres.session import WarehouseConnection

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
CONFIG = """
sources: {shop: {conn_id: shop_mssql}}
warehouse: {conn_id: warehouse}
pipelines:
  shop:
    source: shop
    schedule: null
    tables: [{source: dbo.Lines, target: shop.lines, key: [Code], STYLE}]
"""


@pytest.fixture
def source(emulator: Emulator) -> Iterator[CdcDatabase]:
    with cdc_database(emulator) as made:
        made.run("CREATE TABLE dbo.Lines (Code int NULL, Amount int)")
        made.enable("Lines")
        made.run("INSERT INTO dbo.Lines VALUES (1, 10), (2, 20)")
        made.scan()
        yield made


@pytest.fixture
def rig(
    emulator: Emulator,
    source: CdcDatabase,
    database: WarehouseConnection,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> CommandRig:
    return command_rig(emulator, source, database, tmp_path, monkeypatch)


@pytest.mark.parametrize("style", ["current", "history"])
def test_delete_of_a_row_without_a_key_passes_the_checks(rig: CommandRig, style: str) -> None:
    rig.configure(CONFIG.replace("STYLE", f"style: {style}"))
    rig.call("run", "shop")
    rig.source.run("INSERT INTO dbo.Lines VALUES (NULL, 30), (4, 40)")
    rig.source.scan()
    rig.call("run", "shop")
    rig.source.run("DELETE dbo.Lines WHERE Code IS NULL OR Code = 1")
    rig.source.scan()
    rig.call("run", "shop")
    assert rig.rows('SELECT "Code", "Amount" FROM shop.lines WHERE NOT __deleted ORDER BY 1') == [(2, 20), (4, 40)]
