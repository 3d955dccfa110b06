"""Policies of drift in the configuration."""

from __future__ import annotations

from pathlib import Path

import pytest

from floodmark.config.loading import load_config
from floodmark.core.errors import ConfigError
from floodmark.core.settings import DriftClass, DriftPolicy, OnGap

CONFIG = """
sources: {{shop: {{conn_id: shop_mssql, drift: {{schedule: "@hourly"}}}}}}
warehouse: {{conn_id: warehouse}}
pipelines:
  shop:
    source: shop
    drift: {pipeline}
    tables:
      - {{source: dbo.Orders, target: shop.orders, drift: {table}}}
"""


def write(folder: Path, pipeline: str = "{}", table: str = "{}") -> Path:
    path = folder / "pipelines.yaml"
    path.write_text(CONFIG.format(pipeline=pipeline, table=table), encoding="utf-8")
    return path


def test_a_table_says_what_differs_from_its_pipeline(tmp_path: Path) -> None:
    path = write(tmp_path, "{column_added: ignore, column_dropped: hold}", "{column_added: hold}")
    (table,) = load_config(path).settings("shop").tables
    assert table.drift.of(DriftClass.COLUMN_ADDED) is DriftPolicy.HOLD
    assert table.drift.of(DriftClass.COLUMN_DROPPED) is DriftPolicy.HOLD
    assert table.drift.of(DriftClass.TYPE_WIDENED) is DriftPolicy.EVOLVE


@pytest.mark.parametrize(
    ("drift", "words"),
    [
        ("{type_changed: ignore}", "type_changed: ignore is not an allowed policy (expected hold)"),
        ("{type_widened: propose}", "type_widened: propose is not an allowed policy (expected evolve, hold)"),
        ("{column_aded: ignore}", "column_aded: unknown key (did you mean column_added?)"),
    ],
)
def test_a_policy_that_makes_no_sense_is_refused_with_its_place(tmp_path: Path, drift: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(write(tmp_path, drift))
    assert f"pipelines.shop.drift.{words}" in str(caught.value)


def test_a_replaced_instance_is_repaired_and_not_held_where_gaps_are(tmp_path: Path) -> None:
    path = write(tmp_path)
    path.write_text(path.read_text().replace("target: shop.orders,", "target: shop.orders, on_gap: repair,"))
    (table,) = load_config(path).settings("shop").tables
    assert table.on_gap is OnGap.REPAIR
    assert table.drift.of(DriftClass.INSTANCE_REPLACED) is DriftPolicy.ALERT
    path.write_text(path.read_text().replace("drift: {}}", "drift: {instance_replaced: hold}}"))
    (table,) = load_config(path).settings("shop").tables
    assert table.drift.of(DriftClass.INSTANCE_REPLACED) is DriftPolicy.HOLD
