"""What the opening of a window comes to."""

from __future__ import annotations

from dataclasses import dataclass

from floodmark.core.lsn import Lsn
from floodmark.core.window.plan import WindowState


@dataclass(frozen=True, slots=True)
class OpenResult:
    """window_id None: there is nothing to load, ``reason`` says why, and the run ends here.

    state: how far the window is already; PLANNED for a new one. to_lsn: of the window, or where watermarks moved to.
    """

    window_id: int | None
    reason: str
    state: WindowState | None = None
    to_lsn: Lsn | None = None
