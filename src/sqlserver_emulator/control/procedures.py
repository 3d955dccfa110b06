"""Every procedure of schema ``emulator``, by its name with the schema."""

from __future__ import annotations

from sqlserver_emulator.control.calls import SCHEMA
from sqlserver_emulator.control.clock import EngineClock
from sqlserver_emulator.control.clock_procedures import clock_procedures
from sqlserver_emulator.engine.contract import ProcedureRegistry


def control_procedures(clock: EngineClock) -> ProcedureRegistry:
    return {f"{SCHEMA}.{procedure.name}": procedure for procedure in clock_procedures(clock)}
