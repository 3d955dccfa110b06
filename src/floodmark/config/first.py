"""The first configuration of an installation, as text with comments."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Sequence

import yaml

from floodmark.core.schema import IDENTIFIER_MAX_BYTES, TableName
from floodmark.core.snapshot import SurveyedTable

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")
_WORD_BEGINS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_SURROGATE = re.compile("[\ud800-\udfff]")
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
    without a primary key is written as a comment, because its key has to be declared, and so is one that a
    configuration cannot name.
    """
    schema = _shortened(_spelled(name), name)
    targets = _targets([table.name for table in tables])
    first: dict[str, TableName] = {}
    lines = []
    for table, target in zip(tables, targets, strict=True):
        namesake = first.setdefault(str(table.name).casefold(), table.name)
        lines.append(_lines(table, f"{schema}.{target}", _obstacle(table, namesake)))
    return _TEXT.format(name=_scalar(name), source=_scalar(source), warehouse=_scalar(warehouse), tables="".join(lines))


def _obstacle(table: SurveyedTable, namesake: TableName) -> str:
    """Return why a table cannot be written as it is; empty if it can."""
    if namesake != table.name:
        return f"its name differs only in case from that of {_scalar(str(namesake))}: one pipeline reads one of the two"
    if _SURROGATE.search(str(table.name)) or not _reads_back(table.name):
        return "its name cannot be written in a file"
    return "" if table.key else "no primary key: name columns that are unique and never NULL"


def _reads_back(name: TableName) -> bool:
    try:
        return TableName.parse(str(name)) == name
    except ValueError:
        return False


def _lines(table: SurveyedTable, target: str, obstacle: str) -> str:
    rows = "" if table.rows is None else f"    # {table.rows:,} rows"
    source = f"- source: {_scalar(str(table.name))}{rows}"
    if not obstacle:
        return f"      {source}\n        target: {_scalar(target)}\n"
    key = "" if table.key else "      #   key: []\n"
    return f"      # {obstacle}\n      # {source}\n      #   target: {_scalar(target)}\n{key}"


def _targets(tables: Sequence[TableName]) -> list[str]:
    """Return the name of each target: that of its table, with its schema and then a number if it is taken."""
    counts = Counter(_spelled(table.name) for table in tables)
    taken: set[str] = set()
    for_all = []
    for table in tables:
        own = _spelled(table.name)
        full = _shortened(f"{_spelled(table.schema)}_{own}", str(table))
        own = _shortened(own, str(table)) if counts[own] == 1 else full
        numbered = (f"{_cut(full, 6)}_{number}" for number in range(2, len(tables) + 2))
        target = next(name for name in (own, full, *numbered) if name not in taken)
        taken.add(target)
        for_all.append(target)
    return for_all


def _shortened(name: str, whole: str) -> str:
    """Return a name that PostgreSQL can hold. A longer one ends in a digest of the whole name, and stays distinct."""
    if len(name.encode()) <= IDENTIFIER_MAX_BYTES:
        return name
    digest = hashlib.sha256(whole.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{_cut(name, 1 + len(digest))}_{digest}"


def _cut(name: str, room: int) -> str:
    """Return the beginning of a name that leaves ``room`` bytes free."""
    return name.encode()[: IDENTIFIER_MAX_BYTES - room].decode(errors="ignore").rstrip("_")


def _spelled(name: str) -> str:
    """Return a name in lower case, OrderLines as order_lines."""
    return re.sub(r"\W+", "_", _WORD_BEGINS.sub("_", name)).lower().strip("_") or "table"


def _scalar(text: str) -> str:
    # Plain "null" is no text in YAML. A string of JSON is one of YAML, if what does not print is escaped.
    if _PLAIN.fullmatch(text) and yaml.safe_load(text) == text:
        return text
    return "".join(map(_printable, json.dumps(text, ensure_ascii=False)))


def _printable(character: str) -> str:
    if character.isprintable():
        return character
    code = ord(character)
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"
