"""``floodmark init``, with a real source."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from cdc_database import CdcDatabase, cdc_database
from emulator_process import Emulator
from floodmark.cli.main import app
from floodmark.config.loading import load_config
from floodmark.core.settings import Naming

LONG = "long name " * 10 + "of a table"
Init = Callable[..., Result]


@pytest.fixture
def source(emulator: Emulator) -> Iterator[CdcDatabase]:
    with cdc_database(emulator) as made:
        made.run(
            "CREATE SCHEMA sales",
            "CREATE TABLE dbo.OrderLines (OrderId int, Line int, PRIMARY KEY (OrderId, Line))",
            "INSERT dbo.OrderLines VALUES (1, 1), (1, 2)",
            "CREATE TABLE sales.OrderLines (Id int PRIMARY KEY)",
            "CREATE TABLE dbo.[a: b's #1] (Id int PRIMARY KEY)",
            "CREATE TABLE dbo.Keyless (Id int)",
            "CREATE TABLE dbo.Captured (Id int PRIMARY KEY)",
            "CREATE TABLE dbo.[Order_Lines] (Id int PRIMARY KEY)",
            f"CREATE TABLE dbo.[{LONG}] (Id int PRIMARY KEY)",
        )
        made.enable("Captured")
        yield made


@pytest.fixture
def init(monkeypatch: pytest.MonkeyPatch, emulator: Emulator, source: CdcDatabase, tmp_path: Path) -> Init:
    connection = {
        "conn_type": "mssql",
        "host": "127.0.0.1",
        "port": emulator.port,
        "login": "sa",
        "password": emulator.password,
        "schema": source.name,
        "extra": {"trust_server_certificate": True},
    }
    monkeypatch.setenv("AIRFLOW_CONN_SHOP_MSSQL", json.dumps(connection))
    monkeypatch.setenv("FLOODMARK_CONFIG", str(tmp_path / "include" / "pipelines.yaml"))

    def run(*arguments: str, answers: str = "") -> Result:
        return CliRunner().invoke(app, ["init", *arguments], input=answers)

    return run


def test_words_of_yaml_are_names(init: Init, tmp_path: Path) -> None:
    result = init("--source", "shop_mssql", "--warehouse", "null", "--name", "null")
    assert result.exit_code == 0, result.output
    config = load_config(tmp_path / "include" / "pipelines.yaml")
    assert (list(config.pipelines), config.warehouse.conn_id) == (["null"], "null")


FLAGS = ("--source", "shop_mssql", "--warehouse", "warehouse", "--name", "my-shop")


def test_configuration_has_every_table_that_has_a_key(init: Init, tmp_path: Path) -> None:
    result = init(*FLAGS)
    assert result.exit_code == 0, result.output
    path = tmp_path / "include" / "pipelines.yaml"
    assert [each.name for each in path.parent.iterdir()] == ["pipelines.yaml"]
    pipeline = load_config(path).pipelines["my-shop"]
    assert {table.naming for table in pipeline.tables} == {Naming.SNAKE_CASE}
    assert {str(table.source): str(table.target) for table in pipeline.tables} == {
        "dbo.OrderLines": "my_shop.dbo_order_lines_2",
        "dbo.Order_Lines": "my_shop.dbo_order_lines",
        f"dbo.{LONG}": "my_shop.long_name_long_name_long_name_long_name_long_name_long_67f49933",
        "sales.OrderLines": "my_shop.sales_order_lines",
        "dbo.a: b's #1": "my_shop.a_b_s_1",
        "dbo.Captured": "my_shop.captured",
    }
    assert "# - source: dbo.Keyless" in path.read_text("utf-8")
    listed = [line.split() for line in result.stdout.splitlines() if line.startswith("dbo.")]
    assert ["dbo.OrderLines", "2", "OrderId,", "Line", "no"] in listed
    assert ["dbo.Keyless", "0", "none", "no"] in listed
    assert ["dbo.Captured", "0", "Id", "yes"] in listed


def test_printed_script_enables_what_is_not_captured(init: Init, source: CdcDatabase) -> None:
    output = init(*FLAGS).stdout
    script = [line for line in output.splitlines() if line.startswith("EXEC ")]
    assert len(script) == 5  # the database is enabled, and one table
    source.run(*script)
    tracked = source.query(
        "SELECT name FROM sys.tables WHERE is_tracked_by_cdc = 1 AND is_ms_shipped = 0 ORDER BY name"
    )
    assert [row["name"] for row in tracked] == [
        "a: b's #1",
        "Captured",
        LONG,
        "Order_Lines",
        "OrderLines",
        "OrderLines",
    ]


def test_answers_are_asked_for_on_a_terminal(init: Init, tmp_path: Path) -> None:
    result = init("--table", "DBO.captured", "--table", "dbo.Captured", answers="shop_mssql\n\nnew\n")
    assert result.exit_code == 0, result.output
    config = load_config(tmp_path / "include" / "pipelines.yaml")
    assert [str(table.source) for table in config.pipelines["new"].tables] == ["dbo.Captured"]


def test_file_that_exists_is_kept(init: Init, tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("mine", encoding="utf-8")
    result = init(*FLAGS, "--output", str(path))
    assert (result.exit_code, "exists already" in result.stderr) == (2, True)
    assert path.read_text("utf-8") == "mine"
    assert [each.name for each in tmp_path.iterdir()] == ["mine.yaml"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--table", "dbo.Nothing"), "there is no table dbo.Nothing"),
        (("--table", "dbo.Keyless"), "none of the tables has a primary key"),
        (("--name", "a b"), "include/pipelines.yaml: "),
        (("--source", "unknown"), "unknown"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_is_written(
    init: Init, tmp_path: Path, arguments: tuple[str, ...], words: str
) -> None:
    result = init(*FLAGS, *arguments)
    assert result.exit_code == 2
    assert words in result.stderr
    assert not (tmp_path / "include" / "pipelines.yaml").exists()
