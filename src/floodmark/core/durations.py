"""A length of time, as it is told to a person."""

from __future__ import annotations

# From how many seconds on it is told in minutes, in minutes alone, in hours, and in days.
_MINUTES, _WHOLE_MINUTES, _HOURS, _DAYS = 120, 600, 3 * 3600, 72 * 3600


def format_duration(seconds: float) -> str:
    """As fine as matters: a little more than a limit of minutes has to look like more."""
    whole = round(seconds)
    if whole < _MINUTES:
        return f"{whole} s"
    if whole < _WHOLE_MINUTES:
        return f"{whole // 60} min" + (f" {whole % 60} s" if whole % 60 else "")
    if whole < _HOURS:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if whole < _DAYS else f"{seconds / 86_400:.1f} days"
