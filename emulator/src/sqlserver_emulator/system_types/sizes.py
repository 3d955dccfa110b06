"""Bytes of the types whose size depends on the declared digits."""

from __future__ import annotations


def decimal_bytes(precision: int) -> int:
    """Return the bytes of a decimal: sign and magnitude together."""
    if precision <= 9:
        return 5
    if precision <= 19:
        return 9
    return 13 if precision <= 28 else 17


def time_bytes(scale: int) -> int:
    """Return the bytes of a time of day with ``scale`` digits of a second's fraction."""
    if scale <= 2:
        return 3
    return 4 if scale <= 4 else 5
