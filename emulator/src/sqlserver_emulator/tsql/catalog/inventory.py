"""sp_databases and xp_msver: what inventories ask of a server first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from sqlserver_emulator.contract import Parameter, ProcedureCall, SystemProcedure
from sqlserver_emulator.errors import NotSupportedByEmulatorError
from sqlserver_emulator.events import Column, Event
from sqlserver_emulator.tsql.catalog.queries import REMARKS, Row, ints, names, query, result_set
from sqlserver_emulator.types import SMALLINT, SYSNAME, TsqlType

_DATABASE_COLUMNS: Final = [*names("DATABASE_NAME"), *ints("DATABASE_SIZE"), Column("REMARKS", REMARKS)]
_DATABASES: Final = """
SELECT d.name, CAST(SUM(CAST(f.size AS bigint)) * 8 AS int) AS kilobytes
FROM sys.databases d JOIN sys.master_files f ON f.database_id = d.database_id
WHERE HAS_DBACCESS(d.name) = 1 GROUP BY d.name ORDER BY d.name
"""
_VERSION_COLUMNS: Final = [
    Column("Index", SMALLINT),
    Column("Name", SYSNAME),
    *ints("Internal_Value"),
    Column("Character_Value", TsqlType("nvarchar", 512)),
]
_VERSION: Final = "SELECT CAST(SERVERPROPERTY('ProductVersion') AS nvarchar(128))"
_MACHINE: Final = "SELECT cpu_count, physical_memory_kb FROM sys.dm_os_sys_info"


def _databases(call: ProcedureCall) -> Iterator[Event]:
    yield from result_set(_DATABASE_COLUMNS, [(*row, None) for row in query(call, _DATABASES)])


def _versions(call: ProcedureCall) -> Iterator[Event]:
    wanted = str(call.arguments["@optname"] or "")
    found = [row for row in _known(call) if str(row[1]).lower() == wanted.lower()]
    # The others are about files of Windows, which are not there.
    if not found:
        raise NotSupportedByEmulatorError(f"xp_msver {wanted or 'without an option'}")
    yield from result_set(_VERSION_COLUMNS, found)


def _known(call: ProcedureCall) -> list[Row]:
    ((version,),) = query(call, _VERSION)
    ((processors, kilobytes),) = query(call, _MACHINE)
    major, minor, *_ = str(version).split(".")
    megabytes = int(str(kilobytes)) >> 10
    return [
        (1, "ProductName", None, "Microsoft SQL Server"),
        (2, "ProductVersion", int(major) << 16 | int(minor), version),
        (3, "Language", 1033, "English (United States)"),
        (6, "CompanyName", None, "Microsoft Corporation"),
        (16, "ProcessorCount", processors, str(processors)),
        (19, "PhysicalMemory", megabytes, f"{megabytes} ({megabytes << 20})"),
    ]


SP_DATABASES: Final = SystemProcedure("sp_databases", (), _databases)
XP_MSVER: Final = SystemProcedure("xp_msver", (Parameter("@optname", SYSNAME, None),), _versions)
