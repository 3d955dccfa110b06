"""sp_tables: tables and views of the current database."""

from __future__ import annotations

import re
from collections.abc import Iterator

from sqlserver_emulator.contract import Parameter, ProcedureCall, SystemProcedure
from sqlserver_emulator.events import Column, Event
from sqlserver_emulator.tsql.catalog.queries import NAME, REMARKS, check_qualifier, names, pattern, query, result_set
from sqlserver_emulator.types import BIT, SYSNAME, TsqlType

_COLUMNS = [
    *names("TABLE_QUALIFIER TABLE_OWNER TABLE_NAME"),
    Column("TABLE_TYPE", TsqlType("varchar", 32)),
    Column("REMARKS", REMARKS),
]
_TABLES = """
SELECT DB_NAME(), s.name, o.name,
       CASE o.type WHEN 'U' THEN 'TABLE' WHEN 'V' THEN 'VIEW' ELSE 'SYSTEM TABLE' END AS kind
FROM sys.all_objects o JOIN sys.schemas s ON s.schema_id = o.schema_id
WHERE o.type IN ('U', 'V', 'S') AND o.name LIKE @name AND s.name LIKE @owner
ORDER BY kind, s.name, o.name
"""
_KINDS = ("SYSTEM TABLE", "TABLE", "VIEW")


def _tables(call: ProcedureCall) -> Iterator[Event]:
    arguments = call.arguments
    name, owner, qualifier = (arguments[key] for key in ("@table_name", "@table_owner", "@table_qualifier"))
    kinds = arguments["@table_type"]
    # ODBC's SQLTables: % in one argument and nothing in the others lists the databases, the owners or the types.
    if qualifier == "%" and not name and not owner:
        rows = query(call, "SELECT name, NULL, NULL, NULL, NULL FROM sys.databases ORDER BY name")
    elif owner == "%" and not name and not qualifier:
        rows = query(call, "SELECT NULL, name, NULL, NULL, NULL FROM sys.schemas ORDER BY name")
    elif kinds == "%" and not name and not owner and not qualifier:
        rows = [(None, None, None, kind, None) for kind in _KINDS]
    else:
        check_qualifier(call, qualifier)
        rows = _matching(call, name, owner, kinds)
    yield from result_set(_COLUMNS, rows)


def _matching(call: ProcedureCall, name: object, owner: object, kinds: object) -> list[tuple[object, ...]]:
    use_pattern = bool(call.arguments["@fusepattern"])
    rows = query(
        call, _TABLES, name=pattern(name, use_pattern=use_pattern), owner=pattern(owner, use_pattern=use_pattern)
    )
    # The list of types has its own quotes: `'TABLE','VIEW'`; a single type may come without.
    wanted = set(re.findall(r"'([^']*)'", str(kinds))) or {str(kinds)} if kinds else set(_KINDS)
    return [(*row, None) for row in rows if row[3] in wanted]


SP_TABLES = SystemProcedure(
    "sp_tables",
    (
        Parameter("@table_name", NAME, None),
        Parameter("@table_owner", NAME, None),
        Parameter("@table_qualifier", SYSNAME, None),
        Parameter("@table_type", TsqlType("varchar", 100), None),
        Parameter("@fUsePattern", BIT, 1),
    ),
    _tables,
)
