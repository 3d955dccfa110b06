"""Every statement that was seen on the wire from real drivers has its right answer, or its right error.

``wire_statements.yaml`` holds them with who sends them, their parameters, what has to be there before, and what comes
back: the columns of each result set with the rows, or some of them, or only how many where they differ from run to run
(LSNs, object ids, times). Drivers send the parameterised ones by sp_executesql, sp_prepexec and sp_execute; the first
is used here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pymssql
import pytest
import yaml

from emulator_process import Emulator

DATABASES = ("testdb", "other")
_DATA = yaml.safe_load(Path(__file__).with_name("wire_statements.yaml").read_text("utf-8"))
_SCALARS = (bool, int, float, str, type(None))

ResultSet = tuple[list[str], list[list[object]]]


@pytest.fixture(scope="module")
def server(emulator: Emulator) -> Iterator[Emulator]:
    """The server with new databases of the names that the statements use."""
    admin = emulator.connect_pymssql("master", autocommit=True)
    for name in DATABASES:
        admin.cursor().execute(f"DROP DATABASE IF EXISTS {name}")
        admin.cursor().execute(f"CREATE DATABASE {name}")
    admin.close()
    connection = emulator.connect_pymssql("testdb", autocommit=True)
    for statement in _DATA["setup"]:
        connection.cursor().execute(statement)
    connection.close()
    yield emulator
    connection = emulator.connect_pymssql("testdb", autocommit=True)
    connection.cursor().execute("EXEC sys.sp_cdc_disable_db")
    connection.close()


@pytest.fixture
def cursor(server: Emulator) -> Iterator[Any]:
    connection = server.connect_pymssql("testdb", autocommit=True)
    yield connection.cursor()
    connection.close()


def call_of(statement: dict[str, Any]) -> str:
    """The batch that runs it; OUTPUT parameters come as a last result set."""
    if "declare" not in statement:
        return str(statement["text"])
    text, declared = (str(statement[key]).replace("'", "''") for key in ("text", "declare"))
    values = list(statement["values"])
    outputs = [i for i, one in enumerate(str(statement["declare"]).split(", ")) if one.endswith(" OUTPUT")]
    for i in outputs:
        values[i] = f"@output{i} OUTPUT"
    declare = "".join(f"DECLARE @output{i} int; " for i in outputs)
    select = "; SELECT " + ", ".join(f"@output{i} AS output{i}" for i in outputs) if outputs else ""
    return f"{declare}EXEC sp_executesql N'{text}', N'{declared}', {', '.join(values)}{select}"


def results_of(cursor: Any, text: str) -> list[ResultSet]:
    cursor.execute(text)
    found: list[ResultSet] = []
    while True:
        if cursor.description:
            rows = [[_plain(value) for value in row] for row in cursor.fetchall()]
            found.append(([column[0] for column in cursor.description], rows))
        if not cursor.nextset():
            return found


def _plain(value: object) -> object:
    if isinstance(value, _SCALARS):
        return value
    if isinstance(value, bytes):
        return "0x" + value.hex().upper()
    return value.isoformat(sep=" ") if isinstance(value, datetime) else str(value)


def _name(statement: dict[str, Any]) -> str:
    return f"{statement['sent_by'][0]}: {' '.join(str(statement['text']).split())[:60]}"


@pytest.mark.parametrize("statement", _DATA["statements"], ids=_name)
def test_a_statement_that_drivers_send_is_answered(cursor: Any, statement: dict[str, Any]) -> None:
    for before in statement.get("before", ()):
        cursor.execute(before)
    if "error" in statement:
        with pytest.raises(pymssql.Error) as caught:
            results_of(cursor, call_of(statement))
        assert caught.value.args[0] == statement["error"]
        return
    found = results_of(cursor, call_of(statement))
    assert [columns for columns, _ in found] == [result["columns"] for result in statement["sets"]]
    is_ordered = re.search(r"order\s+by|^\s*(exec|sp_)", str(statement["text"]), re.IGNORECASE)
    for (_, rows), expected in zip(found, statement["sets"], strict=True):
        if "row_count" in expected:
            assert len(rows) == expected["row_count"]
        elif "includes" in expected:
            assert [row for row in rows if row in expected["includes"]] == expected["includes"]
        elif is_ordered:
            assert rows == expected["rows"]
        else:
            assert sorted(rows, key=repr) == sorted(expected["rows"], key=repr)
