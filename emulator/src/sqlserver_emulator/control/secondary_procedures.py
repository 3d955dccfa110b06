"""``emulator.hold_secondary`` and ``release_secondary``: a readable secondary that lags, and catches up."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from sqlserver_emulator.contract import ProcedureCall, SystemProcedure
from sqlserver_emulator.control.calls import control_procedure, refusal
from sqlserver_emulator.events import Event


class HeldSecondary(Protocol):
    """The part of the secondary that is used."""

    def hold(self) -> None: ...

    def release(self) -> None: ...


class SecondaryHost(Protocol):
    """The part of the engine that is used."""

    @property
    def secondary(self) -> HeldSecondary: ...

    @property
    def read_only_route(self) -> tuple[str, int] | None: ...


def secondary_procedures(host: SecondaryHost) -> tuple[SystemProcedure, ...]:
    """Return the procedures that stop and continue the secondary's redo."""

    def make(name: str, act: Callable[[], None], does: str) -> SystemProcedure:
        def run(_call: ProcedureCall) -> Iterator[Event]:
            if host.read_only_route is None:
                raise refusal("There is no secondary: start the emulator with --secondary-port.")
            act()
            yield from ()

        return control_procedure(name, (), run, does)

    hold, release = host.secondary.hold, host.secondary.release
    return (
        make("hold_secondary", hold, "Stop the redo: sessions that begin from now on see what is committed now."),
        make("release_secondary", release, "Let the secondary catch up, for sessions that begin from now on."),
    )
