"""The facts about the files of a fleet for a diagnosis. Nothing is written to a device."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from pathlib import Path

from floodmark.core.doctor.fleet import FleetFacts
from floodmark.core.schema import TableName
from floodmark.sources.compact.fleet import Fleet
from floodmark.sources.compact.tables import read_device_tables, table_name


def read_fleet_facts(fleet: Fleet, tables: Sequence[TableName]) -> FleetFacts:
    """Return the facts. Each file is opened once. Raises ConfigError for a folder that cannot be read."""
    files = fleet.list_files()
    names = {table: table_name(table) for table in tables}
    unreadable: dict[str, str] = {}
    untracked: dict[TableName, list[str]] = {}
    for device, (file, *_) in files.items():
        try:
            found = read_device_tables(file, names.values(), is_shipped=fleet.is_shipped)
        except sqlite3.Error as error:
            unreadable[device] = str(error)
            continue
        for table, name in names.items():
            if name.lower() not in found:
                untracked.setdefault(table, []).append(device)
    return FleetFacts(
        name=str(fleet),
        devices=len(files),
        is_shipped=fleet.is_shipped,
        unreadable=unreadable,
        not_writable=[] if fleet.is_shipped else [name for name, (file, *_) in files.items() if not _may_write(file)],
        doubled=[device for device, found in files.items() if len(found) > 1],
        untracked=untracked,
    )


def _may_write(file: Path) -> bool:
    return os.access(file, os.W_OK) and os.access(file.parent, os.W_OK)
