"""Arguments that Great Expectations does not take, before a run meets them, and expectations that nothing answers."""

from __future__ import annotations

from pathlib import Path

import pytest
from py4j.protocol import Py4JNetworkError
from typer.testing import CliRunner

from floodmark.cli.main import app
from floodmark.core.errors import ConfigError, TargetRefusedError
from floodmark.core.schema import TableName
from floodmark.core.settings import Expectation
from floodmark.quality.checks import Batch, UnansweredCheck
from floodmark.quality.expectations import _find_unmet, check_of

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


class Gone:
    """Rows whose Java was killed."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def validate(self, *_: object, **_options: object) -> None:
        raise self.error


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (ConnectionRefusedError(111, "Connection refused"), TargetRefusedError, "the warehouse did not answer"),
        (Py4JNetworkError("Answer from Java side is empty"), TargetRefusedError, "the warehouse did not answer"),
        (KeyError("Lost"), ConfigError, "cannot be evaluated. Correct its type"),
    ],
)
def test_expectation_that_nothing_answers_is_not_to_be_corrected(error: Exception, kind: type, words: str) -> None:
    expectation = Expectation("expect_column_values_to_not_be_null", '{"column": "Id"}')
    batch = Batch("shop.orders", TableName("dbo", "Orders"), "shop.orders", "", (check_of(expectation),), None)
    [found] = _find_unmet(Gone(error), batch, [expectation])
    assert isinstance(found, UnansweredCheck)
    assert type(found.error) is kind
    assert words in str(found.error)
