"""The texts about a drift event: what it is, its effect and what to do about it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from floodmark.core.drift.ddl import DdlEntry, Explained
from floodmark.core.drift.shapes import Difference
from floodmark.core.drift.words import CDC_DRIFT_WORDS, DriftWords
from floodmark.core.policies import GONE, DriftClass, DriftPolicy

SCHEMA_DRIFT = "schema_drift"
"""The kind of the alert about a drift event."""
_HAPPENED = {
    DriftClass.COLUMN_ADDED: "column {column} {after} was added",
    DriftClass.COLUMN_DROPPED: "column {column} {before} was dropped",
    DriftClass.TYPE_WIDENED: "column {column} was widened from {before} to {after}",
    DriftClass.TYPE_NARROWED: "column {column} was narrowed from {before} to {after}",
    DriftClass.TYPE_CHANGED: "column {column} was changed from {before} to {after}, another kind of value",
    DriftClass.NULLABILITY_CHANGED: "column {column} was changed from {before} to {after}",
    DriftClass.KEY_CHANGED: "its key was changed from {before} to {after}",
    DriftClass.TABLE_RENAMED: "it was renamed to {after}",
    DriftClass.TABLE_DROPPED: "it was dropped, or the login may no longer see it",
    DriftClass.CDC_DISABLED: "its changes are no longer recorded: {before} no longer exists",
    DriftClass.INSTANCE_REPLACED: "{before} was replaced by {after}",
    DriftClass.UNKNOWN: "a DDL statement ran that left no difference Floodmark can name",
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
    if difference.is_captured:
        return words
    if difference.kind is DriftClass.COLUMN_ADDED:
        return f"{words}; the capture instance does not capture it"
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


def describe_ddl(explained: Explained, words: DriftWords = CDC_DRIFT_WORDS) -> str:
    """Return the statements with their LSN and time, or the reason why there are none."""
    if explained.entries:
        return _statements(explained.entries)
    if not words.keeps_ddl:
        return "The source keeps no history of DDL: the table was compared with what the last check found."
    if explained.difference.kind in GONE | {DriftClass.INSTANCE_REPLACED, DriftClass.KEY_CHANGED}:
        return "The source keeps no DDL history of such a change."
    return "The DDL history does not include this change yet: the capture job has not reached it."


def _statements(entries: Iterable[DdlEntry]) -> str:
    return " ".join(
        f"DDL at LSN {entry.lsn}, {entry.at:%Y-%m-%d %H:%M} by the source's clock: {' '.join(entry.text.split())}"
        for entry in entries
    )


def describe_effect(
    difference: Difference, policies: Mapping[str, DriftPolicy], by_kind: DriftWords = CDC_DRIFT_WORDS
) -> str:
    """Return which pipelines are affected, and what happens next."""
    held = sorted(pipeline for pipeline, policy in policies.items() if policy is DriftPolicy.HOLD)
    others = sorted(set(policies) - set(held))
    words = [
        by_kind.effects[difference.kind]
        if difference.is_captured or difference.kind is DriftClass.COLUMN_ADDED
        else "The target has no such column; nothing changes there."
    ]
    if difference.obstacle:
        words = [by_kind.effect_of_obstacle]
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


def advise(
    difference: Difference,
    event_id: int,
    source: str,
    by_kind: DriftWords = CDC_DRIFT_WORDS,
    *,
    is_held: bool,
    proposal: str,
) -> str:
    """Return what to do, with the command that ends the hold or the alert."""
    words = (
        by_kind.advice[difference.kind]
        if difference.is_captured or difference.kind is DriftClass.COLUMN_ADDED
        else "Nothing."
    )
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
