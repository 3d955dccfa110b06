"""sp_statistics and sp_statistics_100: the indexes of a table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from sqlserver_emulator.contract import Parameter, ProcedureCall, SystemProcedure
from sqlserver_emulator.events import Column, Event
from sqlserver_emulator.tsql.catalog.queries import (
    Row,
    check_qualifier,
    ints,
    names,
    pattern,
    query,
    result_set,
    smallints,
)
from sqlserver_emulator.types import SYSNAME, TsqlType

_COLUMNS: Final = [
    *names("TABLE_QUALIFIER TABLE_OWNER TABLE_NAME"),
    *smallints("NON_UNIQUE"),
    *names("INDEX_QUALIFIER INDEX_NAME"),
    *smallints("TYPE SEQ_IN_INDEX"),
    *names("COLUMN_NAME"),
    Column("COLLATION", TsqlType("char", 1)),
    *ints("CARDINALITY PAGES"),
    Column("FILTER_CONDITION", TsqlType("varchar", 128)),
]
_TABLE: Final = """
SELECT s.name, o.name FROM sys.objects o JOIN sys.schemas s ON s.schema_id = o.schema_id
WHERE o.type = 'U' AND o.name LIKE @name AND s.name LIKE @owner ORDER BY s.name, o.name
"""
_INDEXES: Final = """
SELECT s.name, o.name, i.is_unique, i.name, i.type, ic.key_ordinal, c.name, ic.is_descending_key
FROM sys.indexes i
JOIN sys.objects o ON o.object_id = i.object_id
JOIN sys.schemas s ON s.schema_id = o.schema_id
JOIN sys.index_columns ic ON ic.object_id = i.object_id AND ic.index_id = i.index_id
JOIN sys.columns c ON c.object_id = i.object_id AND c.column_id = ic.column_id
WHERE o.type = 'U' AND i.type > 0 AND ic.key_ordinal > 0 AND o.name LIKE @name AND s.name LIKE @owner
  AND i.name LIKE @index
"""
_TABLE_STATISTIC, _CLUSTERED, _OTHER = 0, 1, 3


def _statistics(call: ProcedureCall) -> Iterator[Event]:
    arguments = call.arguments
    check_qualifier(call, arguments["@table_qualifier"])
    name = pattern(arguments["@table_name"], use_pattern=False)
    owner = pattern(arguments["@table_owner"], use_pattern=False)
    database = call.engine.database
    # ODBC's SQLStatistics: a row about the table itself comes before those of its indexes.
    rows: list[Row] = [
        (database, *row, None, None, None, _TABLE_STATISTIC, *(None,) * 6)
        for row in query(call, _TABLE, name=name, owner=owner)
    ]
    unique_only = str(arguments["@is_unique"]).upper() == "Y"
    found = [
        _index_row(database, row)
        for row in query(call, _INDEXES, name=name, owner=owner, index=pattern(arguments["@index_name"]))
        if row[2] or not unique_only
    ]
    # ODBC's order: unique indexes before others, then by kind and name, then the columns of each.
    found.sort(key=lambda row: (row[3], row[6], str(row[5]), row[7]))
    yield from result_set(_COLUMNS, rows + found)


def _index_row(database: str, row: Row) -> Row:
    owner, table, unique, index, kind, position, column, descending = row
    return (
        *(database, owner, table, 0 if unique else 1, table, index, _CLUSTERED if kind == 1 else _OTHER, position),
        *(column, "D" if descending else "A", None, None, None),
    )


_PARAMETERS: Final = (
    Parameter("@table_name", SYSNAME),
    Parameter("@table_owner", SYSNAME, None),
    Parameter("@table_qualifier", SYSNAME, None),
    Parameter("@index_name", SYSNAME, "%"),
    Parameter("@is_unique", TsqlType("char", 1), "N"),
    Parameter("@accuracy", TsqlType("char", 1), "Q"),
)
SP_STATISTICS: Final = SystemProcedure("sp_statistics", _PARAMETERS, _statistics)
SP_STATISTICS_100: Final = SystemProcedure("sp_statistics_100", _PARAMETERS, _statistics)
