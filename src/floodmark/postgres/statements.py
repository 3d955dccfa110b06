"""Statements of ``postgres/sql``, run by their names."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import psycopg
from psycopg.rows import DictRow, dict_row

from floodmark.core.schema import TableName
from floodmark.postgres.sql import read_sql


def query(session: psycopg.Connection, statement: str, **parameters: Any) -> list[DictRow]:
    """Return the rows of a statement of ``postgres/sql``; [] for one that returns none."""
    cursor = session.cursor(row_factory=dict_row).execute(read_sql(statement), parameters)
    return cursor.fetchall() if cursor.description else []


def source_parameters(name: TableName) -> dict[str, str]:
    """Return the parameters of a statement that name a table of the source."""
    return {"source_schema": name.schema, "source_name": name.name}


def source_arrays(names: Iterable[TableName]) -> dict[str, list[str]]:
    """Return the parameters of a statement about many tables of the source, in the order of ``TableName``."""
    ordered = sorted(names)
    return {"source_schemas": [name.schema for name in ordered], "source_names": [name.name for name in ordered]}
