"""All system procedures that belong to the language: the catalog's, and those that exist but are refused by name."""

from __future__ import annotations

from typing import Final

from sqlserver_emulator.contract import ProcedureRegistry
from sqlserver_emulator.syntax.parsing.keywords import word_set
from sqlserver_emulator.tsql.catalog.collations import SP_TABLECOLLATIONS_100
from sqlserver_emulator.tsql.catalog.columns import SP_COLUMNS, SP_COLUMNS_100
from sqlserver_emulator.tsql.catalog.data_types import SP_DATATYPE_INFO, SP_DATATYPE_INFO_100
from sqlserver_emulator.tsql.catalog.describing import SP_DESCRIBE_FIRST_RESULT_SET, SP_DESCRIBE_UNDECLARED_PARAMETERS
from sqlserver_emulator.tsql.catalog.help_texts import SP_HELP, SP_HELPINDEX
from sqlserver_emulator.tsql.catalog.keys import SP_FKEYS, SP_PKEYS
from sqlserver_emulator.tsql.catalog.privileges import SP_COLUMN_PRIVILEGES, SP_TABLE_PRIVILEGES
from sqlserver_emulator.tsql.catalog.procedures import SP_SPROC_COLUMNS, SP_SPROC_COLUMNS_100, SP_STORED_PROCEDURES
from sqlserver_emulator.tsql.catalog.roles import SP_ADDROLE, SP_ADDROLEMEMBER, SP_DROPROLEMEMBER
from sqlserver_emulator.tsql.catalog.session_context import SP_SET_SESSION_CONTEXT
from sqlserver_emulator.tsql.catalog.special_columns import SP_SPECIAL_COLUMNS_100
from sqlserver_emulator.tsql.catalog.statistics import SP_STATISTICS, SP_STATISTICS_100
from sqlserver_emulator.tsql.catalog.tables import SP_TABLES

REFUSED: Final = word_set(
    """sp_addlinkedserver sp_addlogin sp_addmessage sp_addsrvrolemember sp_addtype
    sp_adduser sp_attach_db sp_bindrule sp_changedbowner sp_createstats
    sp_databases sp_dboption sp_depends sp_detach_db
    sp_droplogin sp_droprole sp_dropuser sp_getapplock sp_getbindtoken sp_helpconstraint sp_helpdb
    sp_helpfile sp_helplogins sp_helprole sp_helprolemember sp_helptext sp_helptrigger sp_helpuser
    sp_lock sp_msforeachdb sp_msforeachtable sp_password sp_procedure_params_100_managed sp_readerrorlog
    sp_recompile sp_refreshview sp_releaseapplock sp_rename sp_server_info
    sp_settriggerorder sp_spaceused sp_tableoption sp_trace_create
    sp_updatestats sp_who sp_who2 xp_cmdshell xp_fixeddrives xp_instance_regread xp_logevent xp_msver
    xp_readerrorlog"""
)
"""The procedures of a real server that the emulator refuses by name; an unknown name would be error 2812."""


LANGUAGE_PROCEDURES: Final[ProcedureRegistry] = {
    procedure.name: procedure
    for procedure in (
        SP_ADDROLE,
        SP_ADDROLEMEMBER,
        SP_COLUMN_PRIVILEGES,
        SP_COLUMNS,
        SP_COLUMNS_100,
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
    )
}
