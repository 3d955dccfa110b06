"""Every procedure of schema ``emulator``, by its name with the schema."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from sqlserver_emulator.cdc.agent.supervisor import CaptureSupervisor
from sqlserver_emulator.cdc.postgres import SpareConnections
from sqlserver_emulator.clock import EngineClock, Fetch
from sqlserver_emulator.contract import REQUIRED, ProcedureCall, ProcedureRegistry, SystemProcedure
from sqlserver_emulator.control.backup_procedures import backup_procedures
from sqlserver_emulator.control.calls import SCHEMA, control_procedure
from sqlserver_emulator.control.capture_procedures import CaptureControl
from sqlserver_emulator.control.clock_procedures import clock_procedures
from sqlserver_emulator.control.fault_procedures import FaultControl
from sqlserver_emulator.control.login_procedures import login_procedures
from sqlserver_emulator.control.secondary_procedures import SecondaryHost, secondary_procedures
from sqlserver_emulator.control.stream_procedures import stream_procedures
from sqlserver_emulator.event_stream.streams import EventStreams
from sqlserver_emulator.events import Column, Command, Event, ResultStart, Rows, StatementDone
from sqlserver_emulator.external_logins import ExternalLogins
from sqlserver_emulator.faults import FaultBoard
from sqlserver_emulator.types import NVARCHAR_4000, SYSNAME


class ControlHost(SecondaryHost, Protocol):
    """The part of the engine that the controls use."""

    conninfo: str
    scan_connections: SpareConnections
    clock: EngineClock
    faults: FaultBoard
    external_logins: ExternalLogins
    supervisor: CaptureSupervisor
    event_streams: EventStreams | None


def control_procedures(host: ControlHost, fetch: Fetch) -> ProcedureRegistry:
    """``fetch``: on a connection that lives as long as the server."""
    faults = FaultControl(host, fetch)

    def reset(_call: ProcedureCall) -> Iterator[Event]:
        faults.clear()
        host.clock.reset()
        host.secondary.release()
        yield from ()

    def show_help(_call: ProcedureCall) -> Iterator[Event]:
        yield ResultStart(
            (Column("procedure_name", SYSNAME), Column("parameters", NVARCHAR_4000), Column("does", NVARCHAR_4000))
        )
        yield Rows([(f"{SCHEMA}.{each.name}", ", ".join(describe_parameters(each)), each.does) for each in procedures])
        yield StatementDone(Command.SELECT, row_count=len(procedures))

    procedures = (
        *clock_procedures(host.clock),
        *CaptureControl(host).procedures(),
        *faults.procedures(),
        *backup_procedures(host.conninfo),
        *secondary_procedures(host),
        *login_procedures(host.external_logins),
        *(stream_procedures(host.event_streams, host.faults) if host.event_streams else ()),
        control_procedure("reset", (), reset, "Do the work of `clear_faults`, `reset_clock` and `release_secondary`."),
        control_procedure("help", (), show_help, "List these procedures with their parameters."),
    )
    return {f"{SCHEMA}.{procedure.name}": procedure for procedure in procedures}


def describe_parameters(procedure: SystemProcedure) -> list[str]:
    """Return the parameters as they are declared, with their defaults."""
    shown = []
    for parameter in procedure.parameters:
        default = "" if parameter.default is REQUIRED else f" = {_literal(parameter.default)}"
        shown.append(f"{parameter.name} {parameter.type}{default}")
    return shown


def _literal(default: object) -> str:
    if default is None:
        return "NULL"
    return f"N'{default}'" if isinstance(default, str) else str(default)
