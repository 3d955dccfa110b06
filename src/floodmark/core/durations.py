"""Lengths of time as text."""

from __future__ import annotations

# The number of seconds from which on minutes, whole minutes, hours and days are written.
_MINUTES, _WHOLE_MINUTES, _HOURS, _DAYS = 120, 600, 3 * 3600, 72 * 3600


def format_duration(seconds: float) -> str:
    """Return a duration as text, as precise as necessary.

    A duration a little above a limit in minutes must not read like the limit.
    """
    whole = round(seconds)
    if whole < _MINUTES:
        return f"{whole} s"
    if whole < _WHOLE_MINUTES:
        return f"{whole // 60} min" + (f" {whole % 60} s" if whole % 60 else "")
    if whole < _HOURS:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if whole < _DAYS else f"{seconds / 86_400:.1f} days"
