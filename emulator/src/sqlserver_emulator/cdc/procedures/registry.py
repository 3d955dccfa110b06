"""Every ``sys.sp_cdc_*`` procedure there is, by name, those of SQL Server Agent, and ``sp_configure``, on which net
changes' masks depend."""

from __future__ import annotations

from sqlserver_emulator.cdc.postgres import SpareConnections
from sqlserver_emulator.cdc.procedures.agent_jobs import AGENT_JOBS
from sqlserver_emulator.cdc.procedures.agent_reports import AGENT_REPORTS
from sqlserver_emulator.cdc.procedures.configuration import SP_CONFIGURE
from sqlserver_emulator.cdc.procedures.job_procedures import JOB_PROCEDURES
from sqlserver_emulator.cdc.procedures.manual_procedures import manual_procedures
from sqlserver_emulator.cdc.procedures.reports import REPORTS
from sqlserver_emulator.cdc.procedures.table_procedures import TABLE_PROCEDURES
from sqlserver_emulator.cdc.procedures.wrappers import GENERATE_WRAPPER
from sqlserver_emulator.contract import ProcedureRegistry


def procedures_of_capture(connections: SpareConnections) -> ProcedureRegistry:
    """``connections``: for scans by hand."""
    procedures = (
        *TABLE_PROCEDURES,
        *REPORTS,
        *JOB_PROCEDURES,
        *manual_procedures(connections),
        *AGENT_JOBS,
        *AGENT_REPORTS,
        GENERATE_WRAPPER,
        SP_CONFIGURE,
    )
    return {procedure.name: procedure for procedure in procedures}
