"""The kind ``compact``, with the verdicts on its devices."""

from __future__ import annotations

import inspect
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from compact_tracking import AnchorError, DamagedFileError
from documents.situations import TABLE, TRACKING, Kind
from floodmark.core.position import Version
from floodmark.core.snapshot import Validity
from floodmark.sources.compact.reader import BY_CLASS, OtherKeyError, ReservedColumnError, explain_fault
from floodmark.sources.compact.source import COMPACT_WORDS
from floodmark.sources.compact.tables import ValueRefusedError


def _file_errors() -> Iterator[Exception]:
    """Yield the errors that a device's file may be met with. The text of each is the description of its class."""
    named = [
        kind
        for kind, _, _ in BY_CLASS
        if issubclass(kind, (AnchorError, DamagedFileError, OtherKeyError, ReservedColumnError))
    ]
    for each in (*named, ValueRefusedError):
        yield each((inspect.getdoc(each) or "").partition("\n")[0].rstrip("."))
    states = ("SQLITE_BUSY", "SQLITE_CANTOPEN", "SQLITE_CORRUPT", "SQLITE_INTERRUPT", "SQLITE_ERROR")
    yield from map(_sqlite_error, states)
    yield ValueError()
    yield PermissionError("permission denied")


def _sqlite_error(name: str) -> sqlite3.Error:
    error = sqlite3.OperationalError(name)
    error.sqlite_errorname = name
    return error


def _of_device(error: Exception) -> Validity:
    fault = explain_fault(error, Path("DEVICE.sqlite"), None)
    return Validity(TABLE, fault.verdict, fault.cause, fault.hint)


KIND = Kind("compact", COMPACT_WORDS, "Orders", Version.of, (TRACKING,), lambda: map(_of_device, _file_errors()))
