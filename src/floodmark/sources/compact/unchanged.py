"""Whether a device has anything new, from its counters and receipts alone. Nothing is written to it."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path

from compact_tracking import TrackingError, is_read, is_unchanged
from floodmark.core.source.feed import MemberMark
from floodmark.sources.compact.fleet import Fleet
from floodmark.sources.compact.marks import DeviceMark


def has_nothing_new(fleet: Fleet, file: Path, table: str, mark: DeviceMark) -> bool:
    """Return whether a read from a mark would bring nothing. A file that cannot be examined is to be read."""
    try:
        if fleet.is_shipped:
            return is_read(file, mark.consumer, mark.proof)
        return is_unchanged(file, mark.consumer, mark.proof, {table: mark.anchor})
    except (sqlite3.Error, TrackingError):
        return False  # the read waits longer for a lock, and says what it is


def is_fleet_quiet(
    fleet: Fleet, devices: Mapping[str, Sequence[Path]], table: str, marks: Sequence[MemberMark]
) -> bool:
    """Return whether no device has anything new in a table. Devices that are away have not; a new one has.

    devices: the files of each device, by ``Fleet.list_files``.
    """
    known = {each.member: each.mark for each in marks}

    def is_quiet(device: str, files: Sequence[Path]) -> bool:
        mark = known.get(device)
        return len(files) == 1 and mark is not None and has_nothing_new(fleet, files[0], table, DeviceMark.parse(mark))

    return all(is_quiet(device, files) for device, files in devices.items())
