"""Lanes: the ways on which windows of one pipeline run beside each other, at most one unfinished window on each.

The main lane plans from the watermarks and advances them. A load lane loads one table anew while the main lane goes on
without it. A replay lane merges an interval again that was examined before.
"""

from __future__ import annotations

from floodmark.core.interval import Interval
from floodmark.core.lsn import Lsn
from floodmark.core.schema import TableName

MAIN_LANE = ""
_LOAD = "load "
_REPLAY = "replay "


def load_lane(table: TableName) -> str:
    """The lane on which a source table is loaded anew."""
    return f"{_LOAD}{table}"


def is_load_lane(lane: str) -> bool:
    return lane.startswith(_LOAD)


def replay_lane(interval: Interval) -> str:
    """The lane on which an interval is merged once more."""
    return f"{_REPLAY}{interval.after_lsn}-{interval.to_lsn}"


def is_replay_lane(lane: str) -> bool:
    return lane.startswith(_REPLAY)


def finishing_command(pipeline: str, lane: str) -> str:
    """What goes on with the unfinished window of a lane."""
    if is_load_lane(lane):
        return f"floodmark reload {pipeline} {lane.removeprefix(_LOAD)}"
    if is_replay_lane(lane):
        after, to = map(Lsn.parse, lane.removeprefix(_REPLAY).split("-"))
        # The command's bounds are both included; another interval would be another lane.
        return f"floodmark replay {pipeline} --from-lsn {after.next()} --to-lsn {to}"
    return f"floodmark run {pipeline}"
