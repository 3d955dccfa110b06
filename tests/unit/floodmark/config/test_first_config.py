"""The first configuration: a file that loads, whatever the tables of the source are called."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import hypothesis.strategies as st
from hypothesis import given, settings

from floodmark.config import load_config
from floodmark.config.loading import first_config
from floodmark.core.schema import IDENTIFIER_MAX_BYTES, TableName
from floodmark.core.snapshot import SurveyedTable

LONG = "CRONUS International Ltd_$Sales Invoice Line$437dbf0e-84ff-417a-965d-ed2bb9650972"


def write(folder: Path, *tables: tuple[str, str], name: str = "shop") -> dict[tuple[str, str], str]:
    """Return the target of each table in the file that is written for them."""
    surveyed = [SurveyedTable(TableName(*table), 1, ("Id",), has_cdc=False) for table in tables]
    path = folder / "pipelines.yaml"
    path.write_text(first_config(name, "shop_mssql", "warehouse", surveyed), encoding="utf-8")
    pipeline = load_config(path).pipelines[name]
    return {(table.source.schema, table.source.name): str(table.target) for table in pipeline.tables}


def test_names_that_meet_get_their_schema_and_then_a_number(tmp_path: Path) -> None:
    assert write(
        tmp_path, ("dbo", "Order Lines"), ("dbo", "Order_Lines"), ("sales", "OrderLines"), ("dbo", "dbo_order_lines")
    ) == {
        ("dbo", "Order Lines"): "shop.dbo_order_lines",
        ("dbo", "Order_Lines"): "shop.dbo_order_lines_2",
        ("sales", "OrderLines"): "shop.sales_order_lines",
        ("dbo", "dbo_order_lines"): "shop.dbo_dbo_order_lines",
    }


def test_long_names_are_shortened_and_stay_distinct(tmp_path: Path) -> None:
    names = [("dbo", LONG), ("dbo", LONG + "$ext"), ("dbo", "ä" * 128), ("dbo", "Ä" * 127 + "b")]
    targets = write(tmp_path, *names)
    assert list(targets) == names
    assert len(set(targets.values())) == len(names)
    assert targets["dbo", LONG].startswith("shop.cronus_international_ltd_sales_invoice_line_437dbf0e")
    assert write(tmp_path, *reversed(names)) == targets


def test_long_name_of_a_pipeline_is_a_schema_too(tmp_path: Path) -> None:
    assert len(write(tmp_path, ("dbo", "T"), name="p" * 100)["dbo", "T"].split(".")[0]) <= IDENTIFIER_MAX_BYTES


def test_table_that_a_pipeline_cannot_name_is_a_comment_with_the_reason(tmp_path: Path) -> None:
    found = write(tmp_path, ("dbo", "Orders"), ("dbo", "ORDERS"), ("dbo", "half\ud800"))
    assert found == {("dbo", "Orders"): "shop.dbo_orders"}
    text = (tmp_path / "pipelines.yaml").read_text("utf-8")
    assert "# its name differs only in case from that of dbo.Orders: one pipeline reads one of the two" in text
    assert "# - source: dbo.ORDERS" in text
    assert "# its name cannot be written in a file" in text


@settings(max_examples=200)
@given(st.lists(st.tuples(st.just("dbo"), st.text(min_size=1, max_size=128)), max_size=6, unique=True))
def test_any_names_make_a_file_that_loads(names: list[tuple[str, str]]) -> None:
    tables = [SurveyedTable(TableName(*name), None, ("Id",), has_cdc=False) for name in [("dbo", "Sure"), *names]]
    text = first_config("shop", "shop_mssql", "warehouse", tables)
    with TemporaryDirectory() as folder:
        path = Path(folder, "pipelines.yaml")
        path.write_text(text, encoding="utf-8")
        found = load_config(path).pipelines["shop"].tables
    assert {table.source for table in found} <= {table.name for table in tables}
    assert text.count("- source: ") == len(tables)
