"""LSNs of tests, by small numbers. The virtual log file is 1: SQL Server has none with the number 0."""

from __future__ import annotations

from floodmark.core.position import Lsn, Position

_FILE = 1 << 48


def lsn(number: int) -> Lsn:
    return Lsn((_FILE + number).to_bytes(10))


def number_of(position: Position) -> int:
    return int.from_bytes(position.value) - _FILE
