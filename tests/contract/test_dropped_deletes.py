"""Deletes of rows that no target has: they are merged by a run with its checks."""

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


@pytest.mark.parametrize("style", ["current", "history"])
def test_delete_of_a_row_without_a_key_passes_the_checks(commands: CommandRig, style: str) -> None:
    commands.configure(CONFIG.replace("STYLE", f"style: {style}"))
    commands.call("run", "shop")
    commands.source.run("INSERT INTO dbo.Lines VALUES (NULL, 30), (4, 40)")
    commands.source.scan()
    commands.call("run", "shop")
    commands.source.run("DELETE dbo.Lines WHERE Code IS NULL OR Code = 1")
    commands.source.scan()
    commands.call("run", "shop")
    assert commands.rows('SELECT "Code", "Amount" FROM shop.lines WHERE NOT __deleted ORDER BY 1') == [(2, 20), (4, 40)]
