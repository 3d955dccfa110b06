"""Every ``sys.sp_cdc_*`` procedure there is, by name, and ``sp_configure``, on which net changes' masks depend."""

from __future__ import annotations

from collections.abc import Iterator

from sqlserver_emulator.cdc.configuration import SP_CONFIGURE
from sqlserver_emulator.cdc.job_procedures import JOB_PROCEDURES
from sqlserver_emulator.cdc.reports import REPORTS
from sqlserver_emulator.cdc.table_procedures import TABLE_PROCEDURES
from sqlserver_emulator.engine.contract import Parameter, ProcedureCall, ProcedureRegistry, SystemProcedure
from sqlserver_emulator.errors import NotSupportedByEmulatorError
from sqlserver_emulator.events import Event
from sqlserver_emulator.types import BIT, NVARCHAR_MAX, SYSNAME


def _refuse_wrapper(call: ProcedureCall) -> Iterator[Event]:
    raise NotSupportedByEmulatorError("the procedure sp_cdc_generate_wrapper_function")


_GENERATE_WRAPPER = SystemProcedure(
    "sp_cdc_generate_wrapper_function",
    (
        Parameter("@capture_instance", SYSNAME, None),
        Parameter("@closed_high_end_point", BIT, True),
        Parameter("@column_list", NVARCHAR_MAX, None),
        Parameter("@update_flag_list", NVARCHAR_MAX, None),
    ),
    _refuse_wrapper,
)

PROCEDURES: ProcedureRegistry = {
    procedure.name: procedure
    for procedure in (*TABLE_PROCEDURES, *REPORTS, *JOB_PROCEDURES, _GENERATE_WRAPPER, SP_CONFIGURE)
}
