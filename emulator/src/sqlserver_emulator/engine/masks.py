"""Masking functions of dynamic data masking: their text, and what it means for a column's type."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from sqlserver_emulator.errors import NotSupportedByEmulatorError, SqlServerError
from sqlserver_emulator.system_types import BY_NAME
from sqlserver_emulator.types import TsqlType

DEFAULT_MASK: Final = "default()"
_FUNCTION: Final = re.compile(r"\s*(\w+)\s*\((.*)\)\s*$", re.DOTALL)
_PARTIAL: Final = re.compile(r'\s*(\d+)\s*,\s*"([^"]*)"\s*,\s*(\d+)\s*$')
_RANDOM: Final = re.compile(r"\s*(-?\d+(?:\.\d+)?)\s*,\s*(-?\d+(?:\.\d+)?)\s*$")
_WITHOUT_MASK: Final = frozenset(("xml", "sql_variant", "rowversion", "timestamp"))
_WITH_ARGUMENTS: Final = {"partial": _PARTIAL, "random": _RANDOM}


@dataclass(frozen=True, slots=True)
class Mask:
    """A masking function. ``arguments``: of partial (prefix, padding, suffix) and of random (from, to)."""

    name: str
    arguments: tuple[str, ...] = ()


def parse_mask(function: str, column: str, type: TsqlType) -> Mask:
    """Return the mask of a column. Raises 16003 where the function cannot mask the type, 49999 for what is unknown."""
    called = _FUNCTION.match(function)
    name = called[1].lower() if called else ""
    if called is None or name not in ("default", "email", *_WITH_ARGUMENTS):
        raise NotSupportedByEmulatorError(f"the masking function {function}")
    if type.name in _WITHOUT_MASK:
        raise NotSupportedByEmulatorError(f"masks on columns of type {type.name}")
    if not _fits(name, type):
        message = f"The data type of column '{column}' does not support data masking function '{name}'."
        raise SqlServerError(16003, message)
    if name not in _WITH_ARGUMENTS:
        return Mask(name)
    arguments = _WITH_ARGUMENTS[name].match(called[2])
    if arguments is None:
        raise NotSupportedByEmulatorError(f"the arguments of the masking function {function}")
    return Mask(name, arguments.groups())


def _fits(name: str, type: TsqlType) -> bool:
    if name in ("email", "partial"):
        return BY_NAME[type.name].has_collation
    return name != "random" or (BY_NAME[type.name].is_number and type.name != "bit")
