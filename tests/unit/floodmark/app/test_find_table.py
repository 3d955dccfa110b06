"""The table that an operator names."""

from __future__ import annotations

from pathlib import Path

import pytest

from floodmark.app.pipeline import App
from floodmark.config.loading import load_config
from floodmark.core.schema import TableName

CONFIG = """
sources: {shop: {conn_id: shop_mssql}}
warehouse: {conn_id: warehouse}
pipelines: {shop: {source: shop, tables: [{source: dbo.*, target: shop.*}]}}
"""


@pytest.mark.parametrize(
    ("name", "target"), [("dbo.Orders", "Orders"), ("dbo.orders", "orders"), ("DBO.ORDERS", "Orders")]
)
def test_exact_name_comes_before_one_that_differs_in_case(tmp_path: Path, name: str, target: str) -> None:
    path = tmp_path / "pipelines.yaml"
    path.write_text(CONFIG, encoding="utf-8")
    pipeline = App(load_config(path)).pipeline("shop")
    # What the ledger has of the pattern in a database with a case-sensitive collation.
    taken = [TableName("dbo", "Orders"), TableName("dbo", "orders")]
    vars(pipeline)["settings"] = pipeline.app.config.settings("shop", taken)
    assert pipeline.find_table(name).target.name == target
