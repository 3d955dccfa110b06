"""Every ``sys.sp_cdc_*`` procedure there is, by name."""

from __future__ import annotations

from sqlserver_emulator.cdc.job_procedures import JOB_PROCEDURES
from sqlserver_emulator.cdc.reports import REPORTS
from sqlserver_emulator.cdc.table_procedures import TABLE_PROCEDURES
from sqlserver_emulator.engine.contract import ProcedureRegistry

PROCEDURES: ProcedureRegistry = {
    procedure.name: procedure for procedure in (*TABLE_PROCEDURES, *REPORTS, *JOB_PROCEDURES)
}
