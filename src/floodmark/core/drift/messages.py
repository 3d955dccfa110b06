"""The texts about a drift event: what it is, its effect and what to do about it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from floodmark.core.drift.ddl import DdlEntry, Explained
from floodmark.core.drift.shapes import Difference
from floodmark.core.policies import GONE, DriftClass, DriftPolicy

_HAPPENED = {
    DriftClass.COLUMN_ADDED: "column {column} {after} was added; the capture instance does not capture it",
    DriftClass.COLUMN_DROPPED: "column {column} {before} was dropped",
    DriftClass.TYPE_WIDENED: "column {column} was widened from {before} to {after}",
    DriftClass.TYPE_NARROWED: "column {column} was narrowed from {before} to {after}",
    DriftClass.TYPE_CHANGED: "column {column} was changed from {before} to {after}, another kind of value",
    DriftClass.NULLABILITY_CHANGED: "column {column} was changed from {before} to {after}",
    DriftClass.KEY_CHANGED: "its key was changed from {before} to {after}",
    DriftClass.TABLE_RENAMED: "it was renamed to {after}",
    DriftClass.TABLE_DROPPED: "it was dropped, or the login may no longer see it",
    DriftClass.CDC_DISABLED: "change data capture was disabled for it: capture instance {before} no longer exists",
    DriftClass.INSTANCE_REPLACED: "capture instance {before} was replaced by {after}",
    DriftClass.UNKNOWN: "a DDL statement ran that left no difference Floodmark can name",
}
_NEXT = {
    DriftClass.COLUMN_ADDED: "Its values do not reach the target: an update of this column alone makes no change row. "
    "All other columns are loaded as before.",
    DriftClass.COLUMN_DROPPED: "The target keeps the column and the values it has; they are no longer written. What "
    "was written to it between the last window and the drop is not in the target.",
    DriftClass.TYPE_WIDENED: "The next run widens the target's column before it merges.",
    DriftClass.TYPE_NARROWED: "The target's column stays as wide as it is. A value that does not fit can stop the "
    "capture job (see sys.dm_cdc_errors).",
    DriftClass.TYPE_CHANGED: "The target's column cannot hold the new values.",
    DriftClass.NULLABILITY_CHANGED: "The target takes NULL in every column but the key; nothing changes there.",
    DriftClass.KEY_CHANGED: "Rows would be merged by another key than the target's.",
    DriftClass.TABLE_RENAMED: "The capture instance still works, but the configured table does not exist.",
    DriftClass.TABLE_DROPPED: "Its capture instance and change table were dropped with it. The target stays as it is.",
    DriftClass.CDC_DISABLED: "Later changes are in no change table. The target stays as it is.",
    DriftClass.INSTANCE_REPLACED: "Changes between the two instances are in neither of them.",
    DriftClass.UNKNOWN: "As far as Floodmark can see, nothing changes for the target.",
}
_DO = {
    DriftClass.COLUMN_ADDED: "Decide whether the column is needed.",
    DriftClass.COLUMN_DROPPED: "Drop the target's column by hand if its old values are not needed.",
    DriftClass.TYPE_WIDENED: "Make sure that readers of the target accept the wider type.",
    DriftClass.TYPE_NARROWED: "Ask the data owner whether values were truncated.",
    DriftClass.TYPE_CHANGED: "Give the target's column the new type by hand (ALTER TABLE ... ALTER COLUMN ... TYPE ... "
    "USING ...), or move the target out of the way for a new first load; then end the hold.",
    DriftClass.NULLABILITY_CHANGED: "Make sure that readers of the target accept NULL.",
    DriftClass.KEY_CHANGED: "Give the target the same key by hand, or declare the old one (key: [..] in "
    "pipelines.yaml); then end the hold.",
    DriftClass.TABLE_RENAMED: "Rename the table back, or add the new name to pipelines.yaml: for Floodmark it is "
    "another table, with a target of its own.",
    DriftClass.TABLE_DROPPED: "If this was intended, remove the table from pipelines.yaml. Floodmark does not drop the "
    "target.",
    DriftClass.CDC_DISABLED: "Enable it again with the name of the dropped instance (sys.sp_cdc_enable_table, "
    "@capture_instance) and reload the table: changes made in between are only in the table itself.",
    DriftClass.INSTANCE_REPLACED: "Reload the table before you end the hold.",
    DriftClass.UNKNOWN: "Read the statement.",
}


def describe(difference: Difference) -> str:
    """Return a clause about a difference, without its table."""
    words = _HAPPENED[difference.kind].format(
        column=difference.column, before=difference.before, after=difference.after
    )
    if difference.obstacle:
        return f"column {difference.column} {difference.after} was added and cannot be loaded, because " + (
            difference.obstacle
        )
    if difference.is_captured or difference.kind is DriftClass.COLUMN_ADDED:
        return words
    return f"{words}; it was never captured"


def describe_added(found: Sequence[Explained]) -> str:
    """Return sentences about several added columns together, and the statements that added them."""
    if len(found) == 1:
        return f"{describe(found[0].difference)}. {describe_ddl(found[0])}"
    names = ", ".join(f"{each.difference.column} {each.difference.after}" for each in found)
    entries = sorted({entry for each in found for entry in each.entries}, key=lambda entry: entry.lsn)
    words = [f"columns {names} were added; the capture instance does not capture them."]
    words += [_statements(entries)] if entries else []
    words += [f"Column {each.difference.column}: {describe_ddl(each)}" for each in found if not each.entries]
    return " ".join(words)


def describe_ddl(explained: Explained) -> str:
    """Return the statements with their LSN and time, or the reason why there are none."""
    if explained.entries:
        return _statements(explained.entries)
    if explained.difference.kind in GONE | {DriftClass.INSTANCE_REPLACED, DriftClass.KEY_CHANGED}:
        return "The source keeps no DDL history of such a change."
    return "The DDL history does not include this change yet: the capture job has not reached it."


def _statements(entries: Iterable[DdlEntry]) -> str:
    return " ".join(
        f"DDL at LSN {entry.lsn}, {entry.at:%Y-%m-%d %H:%M} by the source's clock: {' '.join(entry.text.split())}"
        for entry in entries
    )


def describe_effect(difference: Difference, policies: Mapping[str, DriftPolicy]) -> str:
    """Return which pipelines are affected, and what happens next."""
    held = sorted(pipeline for pipeline, policy in policies.items() if policy is DriftPolicy.HOLD)
    others = sorted(set(policies) - set(held))
    words = [
        _NEXT[difference.kind]
        if difference.is_captured or difference.kind is DriftClass.COLUMN_ADDED
        else "The target has no such column; nothing changes there."
    ]
    if difference.obstacle:
        words = ["Its values can never reach the target. All other columns are loaded as before."]
    if held:
        words.append(
            f"The table is held in {_pipelines(held)}: its watermark stays where it is, and nothing is lost as long as "
            "the source keeps its changes (retention). The other tables go on."
        )
    if others and difference.kind in GONE | {DriftClass.INSTANCE_REPLACED}:
        words.append(f"Runs of {_pipelines(others)} fail until this is fixed.")
    elif others:
        words.append(f"The table is still loaded in {_pipelines(others)}.")
    return " ".join(words)


def describe_hold(difference: Difference, event_id: int, held_at: datetime) -> tuple[str, str]:
    """Return cause and hint of the verdict ``held``.

    held_at: with a time zone.
    """
    return (
        f"since {held_at:%Y-%m-%d %H:%M %Z}: {describe(difference)}.",
        f"Check floodmark drift list; to end the hold: floodmark drift approve {event_id}.",
    )


def advise(difference: Difference, event_id: int, source: str, *, is_held: bool, proposal: str) -> str:
    """Return what to do, with the command that ends the hold or the alert."""
    words = _DO[difference.kind] if difference.is_captured or difference.kind is DriftClass.COLUMN_ADDED else "Nothing."
    if difference.obstacle:
        words = "If its values are needed, write them to a column that can be loaded."
    command = f"floodmark drift approve {event_id}"
    if proposal:
        words += (
            f" To include it: {command}, or in the Airflow UI under Browse, Required Actions (DAG "
            f"cdc_switch_{source}): Floodmark then runs the T-SQL below, switches to the second capture instance and "
            f"drops the first. To leave it out: floodmark drift reject {event_id}."
        )
    elif difference.kind in GONE:
        words += f" The hold ends automatically when the table exists again; to end it by hand: {command}."
    else:
        words += f" To {'end the hold' if is_held else 'close this alert'}: {command}."
    return f"{words}\n{proposal}" if proposal else words


def _pipelines(names: list[str]) -> str:
    return f"pipeline {names[0]}" if len(names) == 1 else f"pipelines {', '.join(names)}"
