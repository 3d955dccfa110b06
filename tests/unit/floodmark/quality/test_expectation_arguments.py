"""Arguments that Great Expectations does not take are problems of the configuration, before a run meets them."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from floodmark.cli.main import app

# Importing Great Expectations warns.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
CONFIG = """
sources: {shop: {conn_id: shop_mssql}}
warehouse: {conn_id: warehouse}
pipelines:
  shop:
    source: shop
    tables:
      - source: dbo.Orders
        target: shop.orders
        expectations:
          - {type: expect_column_values_to_be_between, kwargs: {column: Amount, min_value: 1}}
          - {type: expect_column_values_to_be_between, kwargs: KWARGS}
"""


@pytest.mark.parametrize(
    ("kwargs", "words"),
    [
        ("{column: Amount, maximum: 100}", "maximum: extra fields not permitted"),
        ("{max_value: 100}", "column: field required"),
        ("{column: Amount}", "min_value and max_value cannot both be None"),
        ("{column: Amount, max_value: 100}", ""),
    ],
)
def test_config_check_names_each_argument_that_is_not_taken(tmp_path: Path, kwargs: str, words: str) -> None:
    path = tmp_path / "pipelines.yaml"
    path.write_text(CONFIG.replace("KWARGS", kwargs), encoding="utf-8")
    done = CliRunner().invoke(app, ["config", "check", str(path)])
    assert done.exit_code == (2 if words else 0), done.output
    assert words in done.stderr
    assert ("tables[0].expectations[1]: expect_column_values_to_be_between: " in done.stderr) == bool(words)
    assert "expectations[0]" not in done.stderr
