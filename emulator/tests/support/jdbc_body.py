"""Shared code of the tests of mssql-jdbc: statements over a java.sql.Connection, from Python."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError

MANY = "WITH n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 300000) SELECT i FROM n"


def run(connection: Any, text: str) -> None:
    statement = connection.createStatement()
    statement.execute(text)
    statement.close()


def rows_of(result: Any) -> list[tuple[Any, ...]]:
    """All rows; what py4j does not know as a value of Python comes as text."""
    width = result.getMetaData().getColumnCount()
    rows = []
    while result.next():
        rows.append(tuple(_value(result, i) for i in range(1, width + 1)))
    result.close()
    return rows


def _value(result: Any, i: int) -> Any:
    value = result.getObject(i)
    known = value is None or isinstance(value, (bool, int, float, str, Decimal, bytes, bytearray))
    return value if known else result.getString(i)


def query(connection: Any, text: str, *values: object) -> list[tuple[Any, ...]]:
    statement = connection.prepareStatement(text)
    for i, value in enumerate(values, 1):
        statement.setObject(i, value)
    rows = rows_of(statement.executeQuery())
    statement.close()
    return rows


def chosen(result: Any, *names: str) -> list[tuple[Any, ...]]:
    """These columns of all rows, as text."""
    rows = []
    while result.next():
        rows.append(tuple(map(result.getString, names)))
    return rows


def error_of(action: Callable[[], object]) -> Any:
    """The java.sql.SQLException."""
    with pytest.raises(Py4JJavaError) as caught:
        action()
    return caught.value.java_exception
