"""Every procedure of schema ``emulator``, by its name with the schema."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from sqlserver_emulator.cdc.supervisor import CaptureSupervisor
from sqlserver_emulator.control.calls import SCHEMA, control_procedure
from sqlserver_emulator.control.capture_procedures import CaptureControl
from sqlserver_emulator.control.clock import EngineClock, Fetch
from sqlserver_emulator.control.clock_procedures import clock_procedures
from sqlserver_emulator.control.fault_procedures import FaultControl
from sqlserver_emulator.control.faults import FaultBoard
from sqlserver_emulator.engine.contract import ProcedureCall, ProcedureRegistry
from sqlserver_emulator.events import Event


class ControlHost(Protocol):
    """What the controls ask of the engine."""

    conninfo: str
    clock: EngineClock
    faults: FaultBoard
    supervisor: CaptureSupervisor


def control_procedures(host: ControlHost, fetch: Fetch) -> ProcedureRegistry:
    """``fetch``: on a connection that lives as long as the server."""
    faults = FaultControl(host, fetch)

    def reset(_call: ProcedureCall) -> Iterator[Event]:
        faults.clear()
        host.clock.reset()
        yield from ()

    procedures = (
        *clock_procedures(host.clock),
        *CaptureControl(host).procedures(),
        *faults.procedures(),
        control_procedure("reset", (), reset),
    )
    return {f"{SCHEMA}.{procedure.name}": procedure for procedure in procedures}
