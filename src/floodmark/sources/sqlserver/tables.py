"""The tables of a source: what the result sets of ``read_tables.sql`` contain, and the T-SQL of package and DBA."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

from floodmark.core.capture import bracket_table
from floodmark.core.schema import MAX_LENGTH, SourceColumn, TableName

# --------------------------------------------------------------------------------------------------------------------
# The tables of a source: what the result sets of ``read_tables.sql`` say about them. No I/O.


_TWO_BYTE_TYPES = frozenset({"nchar", "nvarchar", "sysname"})
_LENGTH_TYPES = frozenset({"char", "varchar", "binary", "varbinary"}) | _TWO_BYTE_TYPES
_TICKS_PER_SECOND = 300

Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class FoundTable:
    """A table of the source."""

    name: TableName
    """The name as the source spells it."""
    object_id: int
    is_tracked: bool
    max_column_id: int = 0
    """A number that grows with every added column."""
    masked: tuple[str, ...] = ()
    """The columns that the login reads through a mask."""
    filters: tuple[str, ...] = ()
    """The enabled security policies that filter its rows."""


def build_tables(tables: Iterable[Row], masked: Iterable[Row], filters: Iterable[Row]) -> tuple[FoundTable, ...]:
    """Return the tables of the first, fifth and sixth result set of ``read_tables.sql``."""
    masked_of, filters_of = grouped(masked), grouped(filters)
    return tuple(
        replace(
            FoundTable(TableName(row[0], row[1]), row[2], bool(row[3]), *row[4:]),
            masked=tuple(each[1] for each in masked_of.get(row[2], [])),
            filters=tuple(f"{each[1]}.{each[2]}" for each in filters_of.get(row[2], [])),
        )
        for row in tables
    )


def encode_names(names: Iterable[TableName]) -> bytes:
    """Return the first parameter of ``read_tables.sql``."""
    quoted = [bracket_table(name).encode("utf-16-le") for name in sorted(names)]
    return b"".join(len(name).to_bytes(2) + name for name in quoted)


def find_table(tables: Sequence[FoundTable], name: TableName) -> FoundTable | None:
    """Return the table with the exact name, else one whose name differs in case only.

    Most collations are case-insensitive, some are not.
    """
    # The exact name first: to fold the names of all tables for each of them takes as long as to read them.
    exact = next((table for table in tables if table.name == name), None)
    wanted = name.folded
    return exact or next((table for table in tables if table.name.folded == wanted), None)


def read_source_column(row: Row) -> SourceColumn:
    """Return the column of a row: name, ordinal, type name, and of ``sys.columns`` max_length, precision, scale,
    is_nullable, is_computed, and collation_name where it was read."""
    name, ordinal, type_name, max_length, precision, scale, nullable, computed, *collation = row
    length = 0
    if type_name in _LENGTH_TYPES:
        length = max_length // 2 if type_name in _TWO_BYTE_TYPES and max_length != MAX_LENGTH else max_length
    return SourceColumn(
        name=name,
        type_name=type_name,
        ordinal=ordinal,
        max_length=length,
        precision=precision,
        scale=scale,
        nullable=bool(nullable),
        is_computed=bool(computed),
        collation=(collation[0] or "") if collation else "",
    )


def round_to_tick(at: datetime) -> datetime:
    """Return a ``datetime`` of the server as it prints it, with .000, .003 or .007 at the end.

    Drivers return its ticks of 1/300 s rounded in different ways. As part of an identity it must not depend on them.
    """
    ticks = round(at.microsecond * _TICKS_PER_SECOND / 1_000_000)
    return at.replace(microsecond=0) + timedelta(milliseconds=round(ticks * 1000 / _TICKS_PER_SECOND))


def grouped(rows: Iterable[Row]) -> dict[int, list[Row]]:
    """Return the rows by their first column, the object_id."""
    groups: dict[int, list[Row]] = {}
    for row in rows:
        groups.setdefault(row[0], []).append(row)
    return groups


# --------------------------------------------------------------------------------------------------------------------
# Identifiers in T-SQL. They come from the server's own results; values are bound and never written into a text.


CDC_SCHEMA = "cdc"


def change_table(instance: str) -> str:
    """Return the quoted name of an instance's change table."""
    return bracket_table(TableName(CDC_SCHEMA, f"{instance}_CT"))


def net_changes_function(instance: str) -> str:
    """Return the quoted name of an instance's net changes function."""
    return bracket_table(TableName(CDC_SCHEMA, f"fn_cdc_get_net_changes_{instance}"))


# --------------------------------------------------------------------------------------------------------------------
# The T-SQL that is read from files: ``include/sql/source`` of the repository, which is part of the package's data.
#
# The folder ``sql`` next to this module is a link to it, so that there is one copy and a wheel has the files.


@cache
def read_sql(name: str) -> str:
    """Return the text of ``<name>.sql``. Raises FileNotFoundError for a name that has no file."""
    return (Path(__file__).parent / "sql" / f"{name}.sql").read_text(encoding="utf-8")


# --------------------------------------------------------------------------------------------------------------------
# The tables that a module of the database truncates.


_COMMENT = re.compile(r"--[^\r\n]*|/\*.*?\*/", re.DOTALL)
_PART = r"(?:\[(?:[^\]]|\]\])+\]|\"[^\"]+\"|[\w@$#]+)"
_TRUNCATION = re.compile(rf"\bTRUNCATE\s+TABLE\s+({_PART}(?:\s*\.\s*{_PART})*)", re.IGNORECASE)
_EACH_PART = re.compile(_PART)


def find_truncated(definition: str, default_schema: str) -> frozenset[TableName]:
    """Return the tables that a module truncates, as far as its own text shows it."""
    found = set()
    for match in _TRUNCATION.finditer(_COMMENT.sub(" ", definition)):
        parts = [_unquoted(part) for part in _EACH_PART.findall(match[1])]
        found.add(TableName(parts[-2] if len(parts) > 1 else default_schema, parts[-1]))
    return frozenset(found)


def _unquoted(part: str) -> str:
    if part.startswith("["):
        return part[1:-1].replace("]]", "]")
    return part.strip('"')
