"""SQL Server's system types: one record per type, from which the tables of the other packages are made.

On the ground: nothing else of the emulator is imported here. A module that has a rule for some types makes a set of
names from the records once (``names_where``), so that a new type is in it, or not, by its own record.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from sqlserver_emulator.system_types.binaries import BINARIES
from sqlserver_emulator.system_types.moments import MOMENTS
from sqlserver_emulator.system_types.numbers import NUMBERS
from sqlserver_emulator.system_types.others import OTHERS
from sqlserver_emulator.system_types.record import SystemType
from sqlserver_emulator.system_types.texts import TEXTS

SYSTEM_TYPES: Final[tuple[SystemType, ...]] = (*NUMBERS, *MOMENTS, *TEXTS, *BINARIES, *OTHERS)
BY_NAME: Final = {type.name: type for type in SYSTEM_TYPES}


def names_where(holds: Callable[[SystemType], bool]) -> frozenset[str]:
    """Return the names of the types for which ``holds`` is true."""
    return frozenset(type.name for type in SYSTEM_TYPES if holds(type))
