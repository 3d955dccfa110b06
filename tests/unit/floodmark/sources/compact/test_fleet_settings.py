"""The settings of tables of devices in the file."""

from __future__ import annotations

from pathlib import Path

import pytest

from floodmark.config import load_config
from floodmark.core.errors import ConfigError
from floodmark.core.settings import ColumnSettings, TableSettings
from floodmark.sync.filters import parse_filter

CONFIG = """
sources: {{edge: {{conn_id: edge_files, kind: compact}}}}
warehouse: {{conn_id: warehouse}}
pipelines:
  edge:
    source: edge
    tables: [{{source: main.orders, target: shop.orders, {settings}}}]
"""


def load(folder: Path, settings: str) -> TableSettings:
    path = folder / "pipelines.yaml"
    path.write_text(CONFIG.format(settings=settings), encoding="utf-8")
    return load_config(path).settings("edge").tables[0]


def test_filter_of_devices_is_no_filter_of_a_log(tmp_path: Path) -> None:
    assert load(tmp_path, "where: Id > 1").where == parse_filter("Id > 1")
    with pytest.raises(ConfigError, match="nothing shows whether a row had passed the filter"):
        load(tmp_path, "style: log, where: Id > 1")


def test_devices_have_settings_of_columns(tmp_path: Path) -> None:
    assert load(tmp_path, "columns: {Note: drop}").columns == (ColumnSettings("Note", is_dropped=True),)
