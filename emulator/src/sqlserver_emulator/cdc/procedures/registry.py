"""Every ``sys.sp_cdc_*`` procedure there is, by name, and ``sp_configure``, on which net changes' masks depend."""

from __future__ import annotations

from sqlserver_emulator.cdc.procedures.configuration import SP_CONFIGURE
from sqlserver_emulator.cdc.procedures.job_procedures import JOB_PROCEDURES
from sqlserver_emulator.cdc.procedures.manual_procedures import MANUAL_PROCEDURES
from sqlserver_emulator.cdc.procedures.reports import REPORTS
from sqlserver_emulator.cdc.procedures.table_procedures import TABLE_PROCEDURES
from sqlserver_emulator.cdc.procedures.wrappers import GENERATE_WRAPPER
from sqlserver_emulator.contract import ProcedureRegistry

PROCEDURES: ProcedureRegistry = {
    procedure.name: procedure
    for procedure in (*TABLE_PROCEDURES, *REPORTS, *JOB_PROCEDURES, *MANUAL_PROCEDURES, GENERATE_WRAPPER, SP_CONFIGURE)
}
