"""The interface of faults on demand, which a session uses before its statements; package ``control`` has them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from sqlserver_emulator.contract import StatementResult

Fetch = Callable[[str, Sequence[object]], Sequence[tuple[Any, ...]]]


class StatementFaults(Protocol):
    """Faults on demand (package ``control``), asked for each statement while there are any."""

    @property
    def are_active(self) -> bool: ...

    def meet(self, statement: str, database: str, fetch: Fetch) -> None:
        """Raises what the statement is to fail with.

        ``fetch``: in the session, where a wait can be cancelled and the session's lock timeout is in force.
        """

    def cut(self, result: StatementResult, statement: str, database: str) -> StatementResult: ...
