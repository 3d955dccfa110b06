"""Delivery of an event stream, driven from outside."""

from __future__ import annotations

from collections.abc import Iterator

from sqlserver_emulator.cdc.enabling.enable_database import database_id_of
from sqlserver_emulator.contract import Parameter, ProcedureCall, SystemProcedure
from sqlserver_emulator.control.calls import control_procedure, existing_database, refusal, text
from sqlserver_emulator.event_stream.streams import EventStreams
from sqlserver_emulator.events import Event
from sqlserver_emulator.types import SYSNAME


def stream_procedures(streams: EventStreams) -> tuple[SystemProcedure, ...]:
    """Return the procedures; they exist only where there is a destination."""

    def run_event_stream(call: ProcedureCall) -> Iterator[Event]:
        """Everything committed until now is delivered when it returns."""
        name = existing_database(call, text(call, "@database") or call.engine.database)
        try:
            streams.deliver(database_id_of(call.engine.fetch_all, name))
        except LookupError:
            raise refusal(f"Change event streaming is not enabled in database '{name}'.") from None
        yield from ()

    return (control_procedure("run_event_stream", (Parameter("@database", SYSNAME, None),), run_event_stream),)
