"""The tables of a database, before a configuration names them."""

from __future__ import annotations

from dataclasses import dataclass

from floodmark.core.schema import TableName


@dataclass(frozen=True, slots=True)
class SurveyedTable:
    """A table that the login may see."""

    name: TableName
    rows: int | None
    """By the server's own count, which may lag behind. None where the login may not see it."""
    key: tuple[str, ...]
    """The columns of the primary key; empty without one."""
    has_cdc: bool


@dataclass(frozen=True, slots=True)
class Survey:
    """A database. has_cdc: whether change data capture is enabled on it."""

    database: str
    has_cdc: bool
    tables: tuple[SurveyedTable, ...]
