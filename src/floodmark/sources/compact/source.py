"""``CompactSource``: the control queries of a run on a fleet of devices.

A fleet has no log. Its positions are moments: milliseconds since 1970 by the clock of the machine that asks, and never
below one that was given before. What a device has committed is in its mark (ADR 64).
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime

from floodmark.core.lsn import LsnAbsence
from floodmark.core.position import Position
from floodmark.core.schema import TableName
from floodmark.core.source.feed import InstanceIdentity, MemberMark
from floodmark.core.source.snapshot import CaptureInstance, SourceSnapshot, TableSnapshot
from floodmark.core.version import Version
from floodmark.sources.compact.fleet import Fleet
from floodmark.sources.compact.tables import (
    DEVICE_COLUMN,
    DeviceTable,
    join_tables,
    read_device_tables,
    table_name,
)
from floodmark.sources.compact.unchanged import is_fleet_quiet
from floodmark.sources.compact.words import COMPACT_WORDS

_LOG = logging.getLogger(__name__)
_BEGINNING = datetime(1970, 1, 1)


class CompactSource:
    """``sync.ports.source.Source`` for a fleet. Each call opens each file once, to read."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    def read_snapshot(
        self,
        tables: Sequence[TableName],
        instances: Mapping[TableName, str] | None = None,
        positions: Collection[Position] = (),
        marks: Mapping[TableName, Sequence[MemberMark]] | None = None,
        whole: Collection[TableName] = (),
    ) -> SourceSnapshot:
        """Return a snapshot. A table has one feed: ``instances`` is not used."""
        now = datetime.now(UTC)
        newest = Version.of_moment(now, positions)
        taken_at = now.replace(tzinfo=None)
        devices = self._fleet.list_files()
        files = [each[0] for each in devices.values()]
        found: dict[str, list[DeviceTable]] = {}
        names = [table_name(table) for table in tables]
        for file in files if tables else []:
            try:
                described = read_device_tables(file, names, is_shipped=self._fleet.is_shipped)
            except sqlite3.Error as error:
                # The load gives the device its verdict.
                _LOG.warning("%s: its tables cannot be read (%s).", file, error)
                continue
            for folded, table in described.items():
                found.setdefault(folded, []).append(table)
        return SourceSnapshot(
            database=str(self._fleet),
            cdc_enabled=bool(files),
            max_lsn=newest,
            max_lsn_at=taken_at,
            taken_at=taken_at,
            seconds_behind=None,
            capture_running=None,
            tables=tuple(
                _describe(
                    name,
                    found.get(name.name.lower(), []),
                    is_quiet=marks is not None
                    and name in marks
                    and is_fleet_quiet(self._fleet, devices, table_name(name), marks[name]),
                )
                for name in tables
            ),
            has_agent=False,
            is_synchronous=True,
            words=COMPACT_WORDS,
        )


def _describe(name: TableName, found: Sequence[DeviceTable], *, is_quiet: bool) -> TableSnapshot:
    if not found:
        return TableSnapshot(name, True, None, LsnAbsence.NULL, server_name=name)
    table = join_tables(name, found)
    return TableSnapshot(
        table=name,
        exists=True,
        instance=CaptureInstance(
            identity=InstanceIdentity(name.name, 0, _BEGINNING),
            table=table,
            start_lsn=Version.of(0),
            supports_net_changes=True,
            has_command_id=False,
            delivers_net=True,
            has_members=True,
            member_column=DEVICE_COLUMN,
        ),
        min_lsn=Version.of(0),
        last_change_lsn=Version.of(0) if is_quiet else None,
        max_column_id=len(table.columns),
        server_name=name,
    )
