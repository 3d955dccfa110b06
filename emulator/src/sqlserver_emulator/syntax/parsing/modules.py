"""The texts of procedures, functions and triggers, parsed as they are stored.

A module's body is a batch, and a batch may hold a module: ``batch`` passes its ``take_batch`` to those that need it.
"""

from __future__ import annotations

from functools import lru_cache

from sqlserver_emulator.syntax.parsing.batch import take_batch
from sqlserver_emulator.syntax.parsing.cursor import Cursor
from sqlserver_emulator.syntax.parsing.function import take_function
from sqlserver_emulator.syntax.parsing.procedure import take_procedure
from sqlserver_emulator.syntax.parsing.trigger import read_trigger
from sqlserver_emulator.syntax.statements import Function, Procedure, Trigger


@lru_cache(512)
def parse_procedure(source: str) -> Procedure:
    """Return the parsed text of a stored procedure (CREATE, CREATE OR ALTER, ALTER)."""
    return take_procedure(Cursor(source), take_batch)


def parse_function(source: str) -> Function:
    """Return the parsed text of a function (CREATE, CREATE OR ALTER, ALTER)."""
    return take_function(Cursor(source), take_batch)


def parse_trigger(
    source: str, updated: frozenset[str] | None = None, columns: tuple[tuple[str, int], ...] = ()
) -> Trigger:
    """Return the parsed text of a trigger. See ``trigger.read_trigger`` for ``updated`` and ``columns``."""
    return read_trigger(source, take_batch, updated, columns)
