"""Lanes: windows of one pipeline run in parallel on several lanes, with at most one unfinished window on each.

The main lane plans from the watermarks and advances them. A load lane reloads one table while the main lane goes on
without it. A replay lane merges an interval again that was read before. A release lane merges rows from quarantine, in
one transaction, so that no window on it is ever unfinished. So is the window on an import lane, which records that
another tool has loaded a table.
"""

from __future__ import annotations

from floodmark.core.interval import Interval
from floodmark.core.positions import parse_position
from floodmark.core.schema import TableName

MAIN_LANE = ""
_LOAD = "load "
_REPLAY = "replay "
_RELEASE = "release "
_IMPORT = "import "


def load_lane(table: TableName) -> str:
    """Return the lane on which a source table is reloaded."""
    return f"{_LOAD}{table}"


def is_load_lane(lane: str) -> bool:
    """Return whether windows of the lane reload a table."""
    return lane.startswith(_LOAD)


def replay_lane(interval: Interval) -> str:
    """Return the lane on which an interval is merged again."""
    return f"{_REPLAY}{interval.after_lsn}-{interval.to_lsn}"


def is_replay_lane(lane: str) -> bool:
    """Return whether windows of the lane merge an interval again."""
    return lane.startswith(_REPLAY)


def release_lane(table: TableName) -> str:
    """Return the lane on which rows of a source table are released from quarantine."""
    return f"{_RELEASE}{table}"


def import_lane(table: TableName) -> str:
    """Return the lane on which a target that another tool has loaded is adopted."""
    return f"{_IMPORT}{table}"


def finishing_command(pipeline: str, lane: str) -> str:
    """Return the command that continues the unfinished window of a lane."""
    if is_load_lane(lane):
        return f"floodmark reload {pipeline} {lane.removeprefix(_LOAD)}"
    if is_replay_lane(lane):
        after, to = map(parse_position, lane.removeprefix(_REPLAY).split("-"))
        # Both bounds of the command are included; another interval would be another lane.
        return f"floodmark replay {pipeline} --from-lsn {after.next()} --to-lsn {to}"
    return f"floodmark run {pipeline}"
