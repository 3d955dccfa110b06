"""The findings of ``doctor`` on a fleet of devices (docs/reference/edge.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

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
from floodmark.core.schema import TableName

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
