"""The last lines of ``make run-lake``: a reader without Java finds the rows of the source in the lake."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import UUID

from rich.console import Console

from floodmark_laptop import shop
from floodmark_laptop.processes import LaptopError
from floodmark_laptop.stack import Stack

CONNECTION_ID = "lake"
_SCHEMA = "shop"


def print_read_back(stack: Stack, lake: Path, console: Console) -> bool:
    """Compare the rows of each table with those that PyIceberg reads. Return whether all are equal."""
    found = _read_lake(stack, lake)
    all_equal = True
    for table in shop.TABLES:
        names, rows = found[table]
        expected = _read_source(stack, table, names)
        is_equal = sorted(rows, key=repr) == sorted(expected, key=repr)
        all_equal = all_equal and is_equal
        console.print(
            f"dbo.{table}: read by PyIceberg, without Java: {'equal' if is_equal else '[red]DIFFERENT[/red]'}, "
            f"{len(rows):,} rows"
        )
    console.print(f"lake: {lake / 'tables'}", markup=False)
    return all_equal


def _read_lake(stack: Stack, lake: Path) -> dict[str, tuple[list[str], list[tuple[Any, ...]]]]:
    """Return the columns and the living rows of each table that readers of the lake see."""
    try:
        from pyiceberg.catalog.sql import SqlCatalog  # noqa: PLC0415  (a tool of developers)
    except ImportError:
        raise LaptopError("the package pyiceberg is not installed: make setup installs it") from None
    at = stack.warehouse_address
    login = f"{at['user']}:{quote(at['password'], safe='')}"
    catalog = SqlCatalog(
        CONNECTION_ID,
        uri=f"postgresql+psycopg://{login}@{at['host']}:{at['port']}/{at['database']}"
        "?options=-csearch_path%3Dfloodmark_lake",
        warehouse=str(lake / "tables"),
        init_catalog_tables="false",
    )
    found = {}
    try:
        targets = {name.replace("_", ""): name for _, name in catalog.list_tables(_SCHEMA)}
        for table in shop.TABLES:
            rows = catalog.load_table((_SCHEMA, targets[table.lower()])).scan(row_filter="__deleted = false").to_arrow()
            names = [name for name in rows.column_names if not name.startswith("__")]
            found[table] = names, list(zip(*(rows.column(name).to_pylist() for name in names), strict=True))
    finally:
        catalog.engine.dispose()
    return found


def _read_source(stack: Stack, table: str, names: list[str]) -> list[tuple[Any, ...]]:
    # The seventh digit of a second is cut off on the way, and a driver of Python rounds it.
    columns = ", ".join(f"CONVERT(varchar(26), [{n}], 121)" if n.endswith("At") else f"[{n}]" for n in names)
    with stack.connect_source() as connection:
        cursor = connection.cursor()
        cursor.execute(f"SELECT {columns} FROM dbo.[{table}]")  # noqa: S608  (names of the sample database)
        return [tuple(_in_lake(name, value) for name, value in zip(names, row, strict=True)) for row in cursor]


def _in_lake(name: str, value: Any) -> Any:
    if isinstance(value, UUID):
        return str(value).upper()  # as SQL Server writes it
    return datetime.fromisoformat(value) if name.endswith("At") else value
