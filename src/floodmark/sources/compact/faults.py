"""The meaning of errors of a device's file for its table: a verdict, its cause and what to do."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from pathlib import Path

from compact_tracking import (
    AnchorExpiredError,
    AnchorReplacedError,
    AnchorRewoundError,
    DamagedFileError,
    InvalidOperationError,
    TrackingArgumentError,
    TrackingError,
    TrackingLostError,
    read_device,
)
from floodmark.core.source.snapshot import Verdict
from floodmark.sources.compact.marks import DeviceMark
from floodmark.sources.compact.types import ValueRefusedError


class OtherKeyError(Exception):
    """A device whose table has another key than the table of the fleet."""


class ReservedColumnError(Exception):
    """A device whose table has a column with the name of the warehouse's own column."""


GAPS = frozenset({Verdict.EXPIRED, Verdict.INSTANCE_REPLACED, Verdict.AHEAD_OF_SOURCE})
"""The verdicts after which all rows of the device are to be read."""
_READ_AGAIN = "Read the device as a whole again (floodmark source reload-device, or on_gap: repair)."
_COPY_AGAIN = "Copy the file from the device again, or restore it there."
_ENABLE = "Enable the tracking of the table on the device (ChangeTracking.enable_tracking)."
_FORGED = (ValueError, TypeError, LookupError, AttributeError)
"""What values lead to that neither SQLite nor the tracking wrote into the tracking's own tables."""
ERRORS = (TrackingError, sqlite3.Error, OSError, ValueRefusedError, OtherKeyError, ReservedColumnError, *_FORGED)
_CANNOT_OPEN = ("SQLITE_CANTOPEN", "SQLITE_PERM", "SQLITE_READONLY", "SQLITE_AUTH")


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a device's table cannot be read."""

    verdict: Verdict
    cause: str
    hint: str


def explain_fault(error: Exception, file: Path, mark: DeviceMark | None) -> Fault:
    """Return what one of ``ERRORS`` means that was met in a device's file. It contains no value of a row."""
    if isinstance(error, AnchorRewoundError) and mark is not None:
        return _rewound(error, file, mark)
    for kind, verdict, hint in BY_CLASS:
        if isinstance(error, kind):
            return Fault(verdict, f"{error}.", hint)
    if isinstance(error, sqlite3.Error):
        return _of_sqlite(error, file)
    if isinstance(error, ValueRefusedError):
        return Fault(Verdict.REFUSED, f"{error}.", "Correct the row on the device; the next run reads it again.")
    if isinstance(error, _FORGED):
        # The text of the error may hold a value.
        what = type(error).__name__
        return Fault(Verdict.DAMAGED, f"{file} has values that the tracking did not write ({what}).", _COPY_AGAIN)
    return Fault(Verdict.NO_PERMISSION, f"{file} cannot be read ({error}).", "Let Floodmark's user read and write it.")


BY_CLASS: tuple[tuple[type[Exception], Verdict, str], ...] = (
    (OtherKeyError, Verdict.NOT_PLANNABLE, "Give the table the same key on all devices."),
    (ReservedColumnError, Verdict.NOT_PLANNABLE, "Rename the column on the device."),
    (TrackingLostError, Verdict.INSTANCE_MISSING, _ENABLE),
    (AnchorReplacedError, Verdict.INSTANCE_REPLACED, _READ_AGAIN),
    (AnchorExpiredError, Verdict.EXPIRED, _READ_AGAIN),
    (AnchorRewoundError, Verdict.AHEAD_OF_SOURCE, _READ_AGAIN),
    (DamagedFileError, Verdict.DAMAGED, _COPY_AGAIN),
    (TrackingArgumentError, Verdict.INSTANCE_MISSING, _ENABLE),
    (InvalidOperationError, Verdict.INSTANCE_MISSING, _ENABLE),
    (TrackingError, Verdict.REFUSED, "The documentation of compact_tracking lists what is not supported."),
)
"""In the order in which they are tried."""


def _rewound(error: Exception, file: Path, mark: DeviceMark) -> Fault:
    """Return whether the file is an older copy of the device's, or that of another or of a new device."""
    try:
        device = read_device(file)
    except (TrackingError, sqlite3.Error):
        device = None
    if device == mark.anchor.device:
        return Fault(Verdict.AHEAD_OF_SOURCE, f"{error}.", _READ_AGAIN)
    cause = "the file is another one than was read before: the device was replaced, or begun again."
    return Fault(Verdict.INSTANCE_REPLACED, cause, _READ_AGAIN)


def _of_sqlite(error: sqlite3.Error, file: Path) -> Fault:
    name = str(getattr(error, "sqlite_errorname", ""))
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return Fault(Verdict.REFUSED, "the device kept its file locked.", "The next run tries again.")
    if name.startswith(_CANNOT_OPEN):
        return Fault(
            Verdict.NO_PERMISSION,
            f"{file} cannot be opened ({error}).",
            "Let Floodmark's user read and write the file and its folder, or ship copies (shipped: true).",
        )
    if name.startswith(("SQLITE_INTERRUPT", "SQLITE_TOOBIG")):
        return Fault(
            Verdict.DAMAGED,
            f"{file} was given up: its own SQL (a view, a trigger or a generated column) ran too long, or made values"
            " much longer than the file.",
            "Examine the file on the device. The next run tries again.",
        )
    if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_IOERR")) or type(error) is sqlite3.DatabaseError:
        return Fault(Verdict.DAMAGED, f"{file} is damaged ({error}).", _COPY_AGAIN)
    return Fault(Verdict.REFUSED, f"{file} cannot be read ({error}).", "The log of the load has the details.")
