"""The state of a cursor that was declared."""

from __future__ import annotations

from dataclasses import dataclass

from sqlserver_emulator.contract import Variable
from sqlserver_emulator.tsql.state.captured_rows import CapturedRows


@dataclass(slots=True)
class OpenedCursor:
    """``position``: of the row fetched last, from 1; 0 is before the first. ``captured`` None: it is not open."""

    query: str
    variables: dict[str, Variable]
    scrolls: bool
    captured: CapturedRows | None = None
    position: int = 0
