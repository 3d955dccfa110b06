"""All system procedures that belong to the language and only read the catalog."""

from __future__ import annotations

from typing import Final

from sqlserver_emulator.contract import ProcedureRegistry
from sqlserver_emulator.tsql.catalog.collations import SP_TABLECOLLATIONS_100
from sqlserver_emulator.tsql.catalog.columns import SP_COLUMNS, SP_COLUMNS_100
from sqlserver_emulator.tsql.catalog.data_types import SP_DATATYPE_INFO, SP_DATATYPE_INFO_100
from sqlserver_emulator.tsql.catalog.describing import SP_DESCRIBE_FIRST_RESULT_SET, SP_DESCRIBE_UNDECLARED_PARAMETERS
from sqlserver_emulator.tsql.catalog.help_texts import SP_HELP, SP_HELPINDEX
from sqlserver_emulator.tsql.catalog.inventory import SP_DATABASES, XP_MSVER
from sqlserver_emulator.tsql.catalog.keys import SP_FKEYS, SP_PKEYS
from sqlserver_emulator.tsql.catalog.privileges import SP_COLUMN_PRIVILEGES, SP_TABLE_PRIVILEGES
from sqlserver_emulator.tsql.catalog.procedures import SP_SPROC_COLUMNS, SP_SPROC_COLUMNS_100, SP_STORED_PROCEDURES
from sqlserver_emulator.tsql.catalog.roles import SP_ADDROLE, SP_ADDROLEMEMBER, SP_DROPROLEMEMBER
from sqlserver_emulator.tsql.catalog.session_context import SP_SET_SESSION_CONTEXT
from sqlserver_emulator.tsql.catalog.sessions import SP_WHO
from sqlserver_emulator.tsql.catalog.special_columns import SP_SPECIAL_COLUMNS_100
from sqlserver_emulator.tsql.catalog.statistics import SP_STATISTICS, SP_STATISTICS_100
from sqlserver_emulator.tsql.catalog.tables import SP_TABLES

LANGUAGE_PROCEDURES: Final[ProcedureRegistry] = {
    procedure.name: procedure
    for procedure in (
        SP_ADDROLE,
        SP_ADDROLEMEMBER,
        SP_COLUMN_PRIVILEGES,
        SP_COLUMNS,
        SP_COLUMNS_100,
        SP_DATABASES,
        SP_DATATYPE_INFO,
        SP_DATATYPE_INFO_100,
        SP_DESCRIBE_FIRST_RESULT_SET,
        SP_DESCRIBE_UNDECLARED_PARAMETERS,
        SP_DROPROLEMEMBER,
        SP_FKEYS,
        SP_HELP,
        SP_HELPINDEX,
        SP_PKEYS,
        SP_SET_SESSION_CONTEXT,
        SP_SPECIAL_COLUMNS_100,
        SP_SPROC_COLUMNS,
        SP_SPROC_COLUMNS_100,
        SP_STATISTICS,
        SP_STATISTICS_100,
        SP_STORED_PROCEDURES,
        SP_TABLECOLLATIONS_100,
        SP_TABLE_PRIVILEGES,
        SP_TABLES,
        SP_WHO,
        XP_MSVER,
    )
}
