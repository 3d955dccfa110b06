"""sp_table_privileges and sp_column_privileges: who was granted what on tables and views."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from sqlserver_emulator.contract import Parameter, ProcedureCall, SystemProcedure
from sqlserver_emulator.events import Column, Event
from sqlserver_emulator.tsql.catalog.queries import NAME, Row, check_qualifier, names, pattern, query, result_set
from sqlserver_emulator.types import BIT, SYSNAME, TsqlType

_PRIVILEGE: Final = [
    *names("GRANTOR GRANTEE"),
    Column("PRIVILEGE", TsqlType("varchar", 32)),
    Column("IS_GRANTABLE", TsqlType("varchar", 3)),
]
_TABLE_COLUMNS: Final = [*names("TABLE_QUALIFIER TABLE_OWNER TABLE_NAME"), *_PRIVILEGE]
_COLUMN_COLUMNS: Final = [*names("TABLE_QUALIFIER TABLE_OWNER TABLE_NAME COLUMN_NAME"), *_PRIVILEGE]
_OWNER: Final = "dbo"
_OF_TABLES: Final = ("DELETE", "INSERT", "REFERENCES", "SELECT", "UPDATE")
_OF_COLUMNS: Final = ("INSERT", "REFERENCES", "SELECT", "UPDATE")
_TABLES: Final = """
SELECT s.name, o.name, o.object_id FROM sys.all_objects o JOIN sys.schemas s ON s.schema_id = o.schema_id
WHERE o.type IN ('U', 'V') AND s.name NOT IN ('sys', 'INFORMATION_SCHEMA') AND o.name LIKE @name AND s.name LIKE @owner
"""
_COLUMNS: Final = """
SELECT c.name, c.column_id, c.object_id FROM sys.all_objects o JOIN sys.schemas s ON s.schema_id = o.schema_id
JOIN sys.all_columns c ON c.object_id = o.object_id
WHERE o.type IN ('U', 'V') AND o.name LIKE @name AND s.name LIKE @owner AND c.name LIKE @column
"""
_GRANTED: Final = """
SELECT a.object_id::int, coalesce(c.column_id, 0), p.name, x.privilege_type, x.is_grantable
FROM (SELECT oid AS object_id, 0 AS attnum, relacl AS acl FROM pg_class WHERE oid = ANY ($1::oid[])
      UNION ALL SELECT attrelid, attnum, attacl FROM pg_attribute WHERE attrelid = ANY ($1::oid[])) a
CROSS JOIN LATERAL aclexplode(a.acl) x
LEFT JOIN pg_roles r ON r.oid = x.grantee
LEFT JOIN emulator.columns c ON c.object_id = a.object_id AND c.attnum = a.attnum
JOIN emulator.principals p ON p.postgres_role = r.rolname OR (x.grantee = 0 AND p.name = 'public')
JOIN emulator.databases d ON d.database_id = p.database_id AND d.name = $2
WHERE p.name <> 'dbo'
"""
_Grant = tuple[int, int, str, str, str]
"""Table, column or 0, grantee, privilege, whether it can be granted on."""


def _table_privileges(call: ProcedureCall) -> Iterator[Event]:
    """List the privileges on tables. The owner has every one without having been granted it."""
    use_pattern = bool(call.arguments["@fusepattern"])
    tables = _tables(call, use_pattern=use_pattern)
    database = call.engine.database
    rows: list[Row] = [
        (database, *table, _OWNER, _OWNER, privilege, "YES") for table in tables.values() for privilege in _OF_TABLES
    ]
    for object_id, column, grantee, privilege, grantable in _granted(call, tables):
        # PostgreSQL has privileges without a counterpart, such as TRUNCATE: they are no rights of SQL Server.
        if not column and privilege in _OF_TABLES:
            rows.append((database, *tables[object_id], _OWNER, grantee, privilege, grantable))
    rows.sort(key=lambda row: tuple(map(str, (row[1], row[2], row[5], row[4]))))
    yield from result_set(_TABLE_COLUMNS, rows)


def _column_privileges(call: ProcedureCall) -> Iterator[Event]:
    """List the privileges on columns. A grant on a table counts for each of its columns."""
    arguments = call.arguments
    tables = _tables(call, use_pattern=False)
    name = pattern(arguments["@table_name"], use_pattern=False)
    owner = pattern(arguments["@table_owner"], use_pattern=False)
    columns = query(call, _COLUMNS, name=name, owner=owner, column=pattern(arguments["@column_name"]))
    granted = _granted(call, tables)
    rows: list[Row] = []
    for column, column_id, object_id in columns:
        home = (call.engine.database, *tables[int(str(object_id))], column)
        rows += [(*home, _OWNER, _OWNER, privilege, "YES") for privilege in _OF_COLUMNS]
        rows += [
            (*home, _OWNER, grantee, privilege, grantable)
            for table, of_column, grantee, privilege, grantable in granted
            if table == object_id and of_column in (0, column_id) and privilege in _OF_COLUMNS
        ]
    rows.sort(key=lambda row: tuple(map(str, (row[1], row[2], row[3], row[6], row[5]))))
    yield from result_set(_COLUMN_COLUMNS, rows)


def _tables(call: ProcedureCall, *, use_pattern: bool) -> dict[int, Row]:
    """Return owner and name by object_id."""
    arguments = call.arguments
    check_qualifier(call, arguments["@table_qualifier"])
    name = pattern(arguments["@table_name"], use_pattern=use_pattern)
    owner = pattern(arguments["@table_owner"], use_pattern=use_pattern)
    found = query(call, _TABLES, name=name, owner=owner)
    return {int(str(object_id)): (schema, table) for schema, table, object_id in found}


def _granted(call: ProcedureCall, tables: Mapping[int, Row]) -> list[_Grant]:
    # The text of a PostgreSQL array.
    ids = "{" + ",".join(map(str, tables)) + "}"
    found = call.engine.fetch_all(_GRANTED, [ids, call.engine.database])
    return [
        (int(str(object_id)), int(str(column)), str(grantee), str(privilege), "YES" if grantable else "NO")
        for object_id, column, grantee, privilege, grantable in found
    ]


SP_TABLE_PRIVILEGES: Final = SystemProcedure(
    "sp_table_privileges",
    (
        Parameter("@table_name", NAME),
        Parameter("@table_owner", NAME, None),
        Parameter("@table_qualifier", SYSNAME, None),
        Parameter("@fUsePattern", BIT, 1),
    ),
    _table_privileges,
)
SP_COLUMN_PRIVILEGES: Final = SystemProcedure(
    "sp_column_privileges",
    (
        Parameter("@table_name", SYSNAME),
        Parameter("@table_owner", SYSNAME, None),
        Parameter("@table_qualifier", SYSNAME, None),
        Parameter("@column_name", NAME, None),
    ),
    _column_privileges,
)
