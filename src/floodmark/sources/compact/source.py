"""``CompactSource``: the control queries of a run on a fleet of devices, and the findings of ``doctor`` on it.

A fleet has no log. Its positions are moments: milliseconds since 1970 by the clock of the machine that asks, and never
below one that was given before. What a device has committed is in its mark (ADR 64).
"""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from floodmark.core.doctor import (
    Answers,
    DiagnosisInput,
    Finding,
    Grade,
    about,
    examine_key,
    examine_types,
    examine_verdict,
)
from floodmark.core.drift import CDC_DRIFT_WORDS, DriftWords
from floodmark.core.position import NoPosition, Position, Version
from floodmark.core.schema import TableName
from floodmark.core.settings import DriftClass
from floodmark.core.snapshot import (
    Feed,
    FeedIdentity,
    MemberMark,
    Sentences,
    SourceSnapshot,
    SourceWords,
    TableSnapshot,
)
from floodmark.sources.compact.reader import Fleet, is_fleet_quiet
from floodmark.sources.compact.tables import DEVICE_COLUMN, DeviceTable, join_tables, read_device_tables, table_name

_LOG = logging.getLogger(__name__)


# --------------------------------------------------------------------------------------------------------------------
# The sentences of verdicts about a fleet of devices. Those about one device are in ``faults``.


class CompactWords(SourceWords):
    """The sentences about edge databases."""

    def describe_capture(self, capture_running: bool | None) -> str:
        return "each device records its changes itself"

    def not_enabled(self, database: str) -> Sentences:
        return Sentences(
            f"there is no file of a device in {database}.",
            "Check that the folder is mounted, and the path of the source. A device that is away for a while is no"
            " incident, but all of them are.",
        )

    def no_permission(self) -> Sentences:
        return Sentences("the files cannot be read.", "Let Floodmark's user read and write them.")

    def no_feed(self, wanted: str | None, others: tuple[str, ...], read: FeedIdentity | None) -> Sentences:
        return Sentences(
            "no device tracks the table.",
            "Check its name (schema main), and enable its tracking on the devices (ChangeTracking.enable_tracking).",
        )

    def replaced(self, found: FeedIdentity, known: FeedIdentity) -> str:
        return "the table was read from another kind of source before."

    def expired(self, watermark: Position, low_end: str) -> Sentences:
        return Sentences(f"changes after {watermark} have been purged.", "run more often.")


COMPACT_WORDS = CompactWords()

COMPACT_DRIFT_WORDS = DriftWords(
    {
        **CDC_DRIFT_WORDS.effects,
        DriftClass.COLUMN_ADDED: "It is loaded from now on, from the devices that have it; on the others it is NULL. "
        "The values of rows that a device had before are not changes.",
        DriftClass.COLUMN_DROPPED: "No device has it any more. The target keeps the column and the values it has.",
        DriftClass.TYPE_NARROWED: "The target's column stays as wide as it is.",
        DriftClass.TABLE_DROPPED: "No device has the table any more. The target stays as it is.",
        DriftClass.CDC_DISABLED: "No device tracks the table any more. The target stays as it is.",
    },
    {
        **CDC_DRIFT_WORDS.advice,
        DriftClass.COLUMN_ADDED: "Where these values are needed, read the devices as a whole: floodmark source "
        "reload-device.",
        DriftClass.KEY_CHANGED: "Give the target the same key by hand, or change it back on the devices; then end the "
        "hold.",
        DriftClass.CDC_DISABLED: "Enable the tracking on the devices (ChangeTracking.enable_tracking).",
    },
    effect_of_obstacle="Its values can never reach the target.",
    keeps_ddl=False,
    has_instances=False,
)


# --------------------------------------------------------------------------------------------------------------------


_BEGINNING = datetime(1970, 1, 1)


class CompactSource:
    """``sync.ports.Source`` for a fleet. Each call opens each file once, to read."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    def read_snapshot(
        self,
        tables: Sequence[TableName],
        feeds: Mapping[TableName, str] | None = None,
        positions: Collection[Position] = (),
        marks: Mapping[TableName, Sequence[MemberMark]] | None = None,
        whole: Collection[TableName] = (),
    ) -> SourceSnapshot:
        """Return a snapshot. A table has one feed: ``feeds`` is not used."""
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
            newest=newest,
            newest_at=taken_at,
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
        return TableSnapshot(name, True, None, NoPosition.NULL, server_name=name)
    table = join_tables(name, found)
    return TableSnapshot(
        table=name,
        exists=True,
        feed=Feed(
            identity=FeedIdentity(name.name, 0, _BEGINNING),
            table=table,
            start=Version.of(0),
            supports_net_changes=True,
            has_command_id=False,
            delivers_net=True,
            has_members=True,
            member_column=DEVICE_COLUMN,
        ),
        oldest=Version.of(0),
        last_change=Version.of(0) if is_quiet else None,
        max_column_id=len(table.columns),
        server_name=name,
    )


# --------------------------------------------------------------------------------------------------------------------
# The facts about the files of a fleet for a diagnosis. Nothing is written to a device.


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


# --------------------------------------------------------------------------------------------------------------------
# The findings of ``doctor`` on a fleet of devices (docs/reference/edge.md).


_LISTED = 5


@dataclass(frozen=True, slots=True)
class FleetFacts:
    """The facts about the files of a fleet."""

    name: str
    """The paths of the fleet."""
    devices: int
    is_shipped: bool
    unreadable: Mapping[str, str] = field(default_factory=dict)
    """By device, why its file cannot be read."""
    not_writable: Sequence[str] = ()
    """Devices whose file or folder may not be written."""
    doubled: Sequence[str] = ()
    """Devices with several files."""
    untracked: Mapping[TableName, Sequence[str]] = field(default_factory=dict)
    """By table, the readable devices that do not track it."""


def diagnose_fleet(examined: DiagnosisInput, facts: FleetFacts) -> tuple[Finding, ...]:
    """Return the findings: the files first, then the tables in the order of the configuration."""
    found = about(facts.name, _examine_files(facts))
    for settings, validity, seen in examined.tables:
        missing = facts.untracked.get(settings.source, ())
        tracking = facts.devices - len(facts.unreadable) - len(missing)
        feed = f"tracked by {tracking} of {facts.devices} devices" if seen.feed else ""
        found += about(settings.source, examine_verdict(validity, feed, validity.hint))
        if seen.feed is None:
            continue
        if missing:
            text = f"{_some(missing)} do not track it: they are left out."
            fix = "ChangeTracking.enable_tracking on the device."
            found.append(Finding(Grade.PROBLEM, "tracking", str(settings.source), text, fix))
        found += about(settings.source, (*examine_key(settings, seen.feed), *examine_types(settings, seen.feed)))
    return tuple(found)


def _examine_files(facts: FleetFacts) -> Answers:
    kind = "shipped copies, which are only read" if facts.is_shipped else "the devices' own files"
    if facts.devices:
        yield Grade.GOOD, "files", f"{facts.devices} devices; {kind}.", ""
    else:
        yield Grade.PROBLEM, "files", "there is no file of a device.", "Mount the folder, or correct the path."
    if facts.unreadable:
        why = next(iter(facts.unreadable.values()))
        text = f"the files of {_some(list(facts.unreadable))} cannot be read; of the first: {why}."
        yield Grade.PROBLEM, "files", text, "Copy them from the devices again, or let Floodmark's user read them."
    if facts.doubled:
        text = f"{_some(facts.doubled)} have several files: they are left out."
        yield Grade.PROBLEM, "files", text, "Give each device a file name of its own."
    if facts.not_writable:
        text = f"the files of {_some(facts.not_writable)}, or their folders, may not be written: no receipt can be."
        fix = "Let Floodmark's user write them, or ship copies (shipped: true in the connection's extra)."
        yield Grade.PROBLEM, "permissions", text, fix


def _some(devices: Sequence[str]) -> str:
    """Return the first names, and how many more there are."""
    more = len(devices) - _LISTED
    return ", ".join(devices[:_LISTED]) + (f" and {more} more" if more > 0 else "")
