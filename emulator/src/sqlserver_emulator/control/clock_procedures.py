"""``emulator.set_clock``, ``advance_clock``, ``reset_clock``: time without waiting for it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from sqlserver_emulator.clock import ClockRangeError, EngineClock
from sqlserver_emulator.contract import Parameter, ProcedureCall, SystemProcedure
from sqlserver_emulator.control.calls import control_procedure, refusal, required
from sqlserver_emulator.events import Event
from sqlserver_emulator.types import TsqlType

_RANGE = "The clock can be set from 1900-01-01 to 8999-12-31."


def clock_procedures(clock: EngineClock) -> tuple[SystemProcedure, ...]:
    """Return the procedures that set and move the clock."""

    def set_clock(call: ProcedureCall) -> Iterator[Event]:
        now = required(call, "@now")
        if not isinstance(now, datetime):
            raise refusal(f"@now must be a date and time, not {now}.")
        try:
            clock.set(now)
        except ClockRangeError:
            raise refusal(_RANGE) from None
        yield from ()

    def advance_clock(call: ProcedureCall) -> Iterator[Event]:
        by = required(call, "@seconds")
        if not isinstance(by, int | float) or by < 0:
            raise refusal(f"@seconds must not be negative, but is {by}; emulator.set_clock sets the clock back.")
        try:
            clock.advance(by)
        except ClockRangeError:
            raise refusal(_RANGE) from None
        yield from ()

    def reset_clock(_call: ProcedureCall) -> Iterator[Event]:
        clock.reset()
        yield from ()

    return (
        control_procedure(
            "set_clock",
            (Parameter("@now", TsqlType("datetime2", scale=6)),),
            set_clock,
            "Set the server's local time to `@now`; it runs on from there.",
        ),
        control_procedure(
            "advance_clock",
            (Parameter("@seconds", TsqlType("float", precision=53)),),
            advance_clock,
            "Move the time forward by so many seconds.",
        ),
        control_procedure("reset_clock", (), reset_clock, "Return to real time."),
    )
