"""The first configuration of an installation, as text with comments."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence

import yaml

from floodmark.core.schema import TableName
from floodmark.core.source.survey import SurveyedTable

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")
_WORD_BEGINS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_TEXT = """\
# The configuration of Floodmark. Check it with: floodmark config check
sources:
  {name}:
    conn_id: {source}    # an Airflow connection of type mssql; its schema is the database

warehouse:
  conn_id: {warehouse}    # an Airflow connection of type postgres

pipelines:
  {name}:
    source: {name}
    schedule: "*/5 * * * *"    # cron, UTC
    deletes: soft    # hard: deleted rows are deleted in the target too
    tables:
{tables}"""


def first_config(name: str, source: str, warehouse: str, tables: Sequence[SurveyedTable]) -> str:
    """Return the text of a configuration with one pipeline.

    name: of the source, the pipeline and the schema of the targets. source, warehouse: ids of connections. A table
    without a primary key is written as a comment, because its key has to be declared.
    """
    targets = _targets([table.name for table in tables])
    lines = [_lines(table, f"{_spelled(name)}.{target}") for table, target in zip(tables, targets, strict=True)]
    return _TEXT.format(name=_scalar(name), source=_scalar(source), warehouse=_scalar(warehouse), tables="".join(lines))


def _lines(table: SurveyedTable, target: str) -> str:
    rows = "" if table.rows is None else f"    # {table.rows:,} rows"
    if table.key:
        return f"      - source: {_scalar(str(table.name))}{rows}\n        target: {_scalar(target)}\n"
    return (
        f"      # no primary key: name columns that are unique and never NULL\n"
        f"      # - source: {_scalar(str(table.name))}{rows}\n"
        f"      #   target: {_scalar(target)}\n"
        f"      #   key: []\n"
    )


def _targets(tables: Sequence[TableName]) -> list[str]:
    """Return the name of each target: that of its table, with its schema where two have the same."""
    counts = Counter(_spelled(table.name) for table in tables)
    return [
        _spelled(table.name)
        if counts[_spelled(table.name)] == 1
        else f"{_spelled(table.schema)}_{_spelled(table.name)}"
        for table in tables
    ]


def _spelled(name: str) -> str:
    """Return a name in lower case, OrderLines as order_lines."""
    return re.sub(r"\W+", "_", _WORD_BEGINS.sub("_", name)).lower().strip("_") or "table"


def _scalar(text: str) -> str:
    # Plain "null" is no text in YAML. A string of JSON is one of YAML.
    return text if _PLAIN.fullmatch(text) and yaml.safe_load(text) == text else json.dumps(text, ensure_ascii=False)
