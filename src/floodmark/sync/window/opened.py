"""The result of opening a window."""

from __future__ import annotations

from dataclasses import dataclass

from floodmark.core.position import Position
from floodmark.core.window.plan import WindowState


@dataclass(frozen=True, slots=True)
class OpenResult:
    """A window to load, or the reason why there is none."""

    window_id: int | None
    """None where there is nothing to load, so that the run ends here."""
    reason: str
    state: WindowState | None = None
    """The state of the window: PLANNED for a new one."""
    to_lsn: Position | None = None
    """The end of the window, or the LSN that the watermarks moved to."""
