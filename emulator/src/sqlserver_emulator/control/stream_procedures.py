"""Delivery of an event stream, and its faults, driven from outside."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlserver_emulator.cdc.enabling.enable_database import database_id_of
from sqlserver_emulator.cdc.lsn import LSN_BYTES
from sqlserver_emulator.contract import Parameter, ProcedureCall, SystemProcedure
from sqlserver_emulator.control.calls import control_procedure, existing_database, refusal, text, whole
from sqlserver_emulator.event_stream.encoding import Generation
from sqlserver_emulator.event_stream.streams import EventStreams
from sqlserver_emulator.event_stream.switches import write_generation
from sqlserver_emulator.events import Event
from sqlserver_emulator.faults import Fault, FaultBoard, FaultKind, Match
from sqlserver_emulator.types import INT, LSN, SYSNAME

_FAULTS = {
    "unreachable": FaultKind.HUB_UNREACHABLE,
    "lost session": FaultKind.STREAM_SESSION_LOST,
    "reordered": FaultKind.STREAM_REORDERED,
    "cut message": FaultKind.STREAM_MESSAGE_CUT,
}
_DATABASE = Parameter("@database", SYSNAME, None)


def stream_procedures(streams: EventStreams, faults: FaultBoard) -> tuple[SystemProcedure, ...]:
    """Return the procedures; they exist only where the release has event streaming."""

    def run_event_stream(call: ProcedureCall) -> Iterator[Event]:
        """Everything committed until now is delivered when it returns. Raises what the delivery fails with."""
        name, database_id = _database(call)
        with _required_stream(name):
            streams.deliver(database_id)
        yield from ()

    def fail_event_stream(call: ProcedureCall) -> Iterator[Event]:
        """'unreachable': a delivery fails. 'lost session': it fails after it was made, and is made again.

        'reordered': its messages are in another order. 'cut message': its first message is half.
        """
        kind = _FAULTS.get(text(call, "@fault").lower())
        if kind is None:
            raise refusal(f"@fault must be one of {', '.join(_FAULTS)}.")
        name, database_id = _database(call)
        times = whole(call, "@times", 0, 2**31 - 1)
        faults.add(Fault(kind, Match(name), times=times, database_id=database_id))
        yield from ()

    def set_event_stream_generation(call: ProcedureCall) -> Iterator[Event]:
        """Messages are written in this generation from the next delivery on."""
        name, database_id = _database(call)
        generation = Generation(whole(call, "@generation", 1, len(Generation)))
        with _required_stream(name), call.engine.atomic():
            try:
                write_generation(call.engine.fetch_all, database_id, generation)
            except ValueError as error:
                raise refusal(f"@generation must not be {generation.value}: {error}.") from None
        yield from ()

    def start_event_stream_epoch(call: ProcedureCall) -> Iterator[Event]:
        """The stream goes on as one that was set up again after a restore or a failover."""
        if call.in_transaction:
            raise refusal("emulator.start_event_stream_epoch cannot run inside a transaction.")
        name, database_id = _database(call)
        lsn = call.arguments["@lsn"]
        if lsn is not None and not (isinstance(lsn, bytes | bytearray) and len(lsn) == LSN_BYTES):
            raise refusal("@lsn must be binary(10).")
        with _required_stream(name):
            try:
                streams.start_epoch(database_id, None if lsn is None else bytes(lsn))
            except ValueError as error:
                raise refusal(f"@lsn is not an LSN of database '{name}': {error}.") from None
        yield from ()

    failing = (Parameter("@fault", SYSNAME), Parameter("@times", INT, 1), _DATABASE)
    return (
        control_procedure(
            "run_event_stream", (_DATABASE,), run_event_stream, "Deliver what the log has for the event streams now."
        ),
        control_procedure(
            "fail_event_stream",
            failing,
            fail_event_stream,
            "Disturb deliveries: with the fault 'unreachable' nothing is delivered, with 'lost session' it is"
            " delivered again, with 'reordered' it comes in another order, with 'cut message' its first is half.",
        ),
        control_procedure(
            "set_event_stream_generation",
            (Parameter("@generation", INT), _DATABASE),
            set_event_stream_generation,
            "Write messages in generation 1, 2 or 3 of the format from the next delivery on.",
        ),
        control_procedure(
            "start_event_stream_epoch",
            (Parameter("@lsn", LSN, None), _DATABASE),
            start_event_stream_epoch,
            "Let the stream go on as one that was set up again after a restore or a failover, from `@lsn` on.",
        ),
    )


def _database(call: ProcedureCall) -> tuple[str, int]:
    """Return the name and the id of the database that a call names, by default the current one."""
    name = existing_database(call, text(call, "@database") or call.engine.database)
    return name, database_id_of(call.engine.fetch_all, name)


@contextmanager
def _required_stream(name: str) -> Iterator[None]:
    """Turn the LookupError of a database without a stream into 49998."""
    try:
        yield
    except LookupError:
        raise refusal(f"Change event streaming is not enabled in database '{name}'.") from None
