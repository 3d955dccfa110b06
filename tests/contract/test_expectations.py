"""Expectations of a table, from pipelines.yaml to the watermark: what fails keeps its rows from being published."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cdc_database import CdcDatabase, cdc_database
from command_rig import CommandRig
from emulator_process import Emulator

# Importing Great Expectations warns.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
CONFIG = """
sources: {shop: {conn_id: shop_mssql}}
warehouse: {conn_id: warehouse}
pipelines:
  shop:
    source: shop
    tables:
      - {source: dbo.Items, target: shop.items}
      - source: dbo.Orders
        target: shop.orders
        expectations:
          - EXPECTATION
"""
BETWEEN = "{type: expect_column_values_to_be_between, kwargs: {column: Amount, max_value: 100}}"
SECRET = 4711


@pytest.fixture
def source(emulator: Emulator) -> Iterator[CdcDatabase]:
    with cdc_database(emulator) as database:
        for table in ("Orders", "Items"):
            database.run(f"CREATE TABLE dbo.{table} (Id int PRIMARY KEY, Amount int)")
            database.run(f"INSERT INTO dbo.{table} VALUES (1, 10), (2, 20)")
            database.enable(table)
        yield database


def change(commands: CommandRig, key: int, amount: int) -> None:
    for table in ("Orders", "Items"):
        commands.source.run(f"UPDATE dbo.{table} SET Amount = {amount} WHERE Id = {key}")
    commands.source.scan()


def watermarks(commands: CommandRig) -> dict[str, bytes]:
    return dict(commands.rows("SELECT source_name, watermark FROM floodmark.tables"))


def test_failed_expectation_refuses_its_table_until_the_row_is_corrected(
    commands: CommandRig, caplog: pytest.LogCaptureFixture
) -> None:
    commands.configure(CONFIG.replace("EXPECTATION", BETWEEN))
    commands.call("run", "shop")
    before = watermarks(commands)
    change(commands, 1, SECRET)
    status, output = commands.try_call("run", "shop")
    assert status == 1, output
    assert "expect_column_values_to_be_between: expected that it holds for Amount of the window" in output
    assert "found 1 of 1 rows against it" in output
    after = watermarks(commands)
    assert after["Orders"] == before["Orders"]
    assert after["Items"] > before["Items"]
    # No value of a row is in what is said, recorded or shown.
    pages = "".join(path.read_text() for path in (commands.file.parent / "docs").rglob("*.html"))
    said = [commands.rows(f"SELECT * FROM floodmark.{table}") for table in ("alerts", "verdicts", "windows")]
    assert "expect_column_values_to_be_between" in pages
    assert not [text for text in (output, caplog.text, pages, str(said)) if str(SECRET) in text]
    change(commands, 1, 11)
    commands.call("run", "shop")
    assert watermarks(commands)["Orders"] > before["Orders"]
    assert commands.rows('SELECT "Amount" FROM shop.orders ORDER BY "Id"') == [(11,), (20,)]


def test_expectation_about_the_table_sees_rows_of_earlier_windows(commands: CommandRig) -> None:
    commands.configure(CONFIG.replace("EXPECTATION", "{suite: orders.json, rows: table}"))
    suite = '{"name": "orders", "expectations": [{"type": "expect_column_sum_to_be_between", "kwargs":'
    commands.file.with_name("orders.json").write_text(suite + ' {"column": "Amount", "max_value": 35}}]}')
    commands.call("run", "shop")
    change(commands, 1, 16)
    assert commands.try_call("run", "shop")[0] == 1
    change(commands, 1, 15)
    commands.call("run", "shop")


def test_warning_is_logged_and_the_table_is_published(commands: CommandRig, caplog: pytest.LogCaptureFixture) -> None:
    commands.configure(CONFIG.replace("EXPECTATION", BETWEEN.replace("{type", "{severity: warning, type")))
    commands.call("run", "shop")
    change(commands, 1, SECRET)
    caplog.clear()
    commands.call("run", "shop")
    assert "found 1 of 1 rows against it" in caplog.text
    assert commands.rows('SELECT "Amount" FROM shop.orders WHERE "Id" = 1') == [(SECRET,)]


@pytest.mark.parametrize(
    "wrong",
    [
        "{type: expect_column_values_to_be_between, kwargs: {column: Nothing, max_value: 1}}",
        "{type: expect_column_values_to_be_between, kwargs: {colum: Amount}}",
    ],
)
def test_expectation_that_cannot_be_evaluated_refuses_its_table_by_name(commands: CommandRig, wrong: str) -> None:
    commands.configure(CONFIG.replace("EXPECTATION", wrong))
    status, output = commands.try_call("run", "shop")
    assert status == 1
    assert "dbo.Orders: refused: expectation expect_column_values_to_be_between cannot be evaluated" in output
    assert watermarks(commands)["Items"] is not None


def test_unknown_expectation_is_refused_before_anything_is_read(commands: CommandRig) -> None:
    commands.configure(CONFIG.replace("EXPECTATION", BETWEEN.replace("_between", "_betwen")))
    for command in (("config", "check"), ("run", "shop"), ("doctor", "shop")):
        status, output = commands.try_call(*command)
        assert status == 2
        assert "did you mean expect_column_values_to_be_between?" in output
