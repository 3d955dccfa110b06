"""The interface of faults on demand, which a session uses before its statements; package ``control`` has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from sqlserver_emulator.contract import StatementResult


class StatementFaults(Protocol):
    """Faults on demand (package ``control``), asked for each statement while there are any."""

    @property
    def are_active(self) -> bool: ...

    def meet(self, statement: str, database: str, sleep: Callable[[float], None]) -> None:
        """Raises what the statement is to fail with."""

    def cut(self, result: StatementResult, statement: str, database: str) -> StatementResult: ...
