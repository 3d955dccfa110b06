"""The script that makes the sample database on a server of one's own: ``shop.sql``, as sqlcmd runs it."""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path
from typing import Any

import floodmark_laptop
from emulator_process import running_emulator
from floodmark_laptop.shop import TABLES

SCRIPT = resources.files(floodmark_laptop).joinpath("shop.sql").read_text("utf-8")


def run_script(connection: Any) -> None:
    for batch in re.split(r"^GO$", SCRIPT, flags=re.MULTILINE):
        if batch.strip():
            connection.cursor().execute(batch)


def all_rows(connection: Any) -> dict[str, list[Any]]:
    found = {}
    cursor = connection.cursor()
    for table in TABLES:
        cursor.execute(f"SELECT * FROM Shop.dbo.{table} ORDER BY 1, 2")
        found[table] = list(cursor.fetchall())
    return found


def test_script_makes_tracked_tables_with_rows_and_changes_nothing_when_it_runs_again(open_dir: Path) -> None:
    with (
        running_emulator(open_dir / "emulator", databases=()) as emulator,
        emulator.connect_pymssql("master", autocommit=True) as connection,
    ):
        run_script(connection)
        rows = all_rows(connection)
        assert {table: len(found) for table, found in rows.items()} == {
            "Customers": 3, "Products": 2, "Orders": 3, "OrderLines": 6, "Payments": 3,
        }  # fmt: skip
        cursor = connection.cursor()
        cursor.execute("SELECT name FROM Shop.sys.tables WHERE is_tracked_by_cdc = 1 ORDER BY name")
        assert [name for (name,) in cursor.fetchall()] == sorted(TABLES)
        run_script(connection)
        assert all_rows(connection) == rows
