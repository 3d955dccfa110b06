"""Proposals about schema drift: the second capture instance, its T-SQL, and the steps of a switch."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum

from floodmark.core.alert import Alert
from floodmark.core.capture import EVERY_ROW, FOR_DBA, SourceUser, bracket, filled_rows, literal, touched_rows
from floodmark.core.errors import command_line
from floodmark.core.plan import WindowState
from floodmark.core.position import Position
from floodmark.core.schema import TableName
from floodmark.core.settings import GONE, Backfill, DriftClass, DriftPolicy
from floodmark.core.shapes import DdlEntry, Difference, Explained
from floodmark.core.snapshot import FeedIdentity

# --------------------------------------------------------------------------------------------------------------------
# The second capture instance that a table needs to capture more columns, and the T-SQL that creates it.
#
# The options of the first instance (gating role, index, filegroup, net changes) are kept, so that nothing else changes
# with it. Floodmark runs the text when the operator has approved it (see ``sync.switch``).


MOST_INSTANCES = 2
"""The most instances that a table can have (error 22962)."""
_NAME_LENGTH = 100
_LINE_LENGTH = 72


@dataclass(frozen=True, slots=True)
class LivingInstance:
    """A capture instance as the server lists it."""

    identity: FeedIdentity
    table: TableName
    """The current name of the table."""
    supports_net_changes: bool = False
    role: str | None = None
    """None for none."""
    index: str | None = None
    """None for none."""
    filegroup: str | None = None
    """None for none."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """A second capture instance for a table."""

    old: LivingInstance
    """The instance that is read."""
    name: str
    """The name of the second instance."""
    added: tuple[str, ...]
    """The columns that it captures in addition."""
    columns: tuple[str, ...]
    """All columns that it captures, in order."""
    drops: LivingInstance | None = None
    """The instance that must be dropped first to make room; None for none."""
    is_there: bool = False
    """Whether the instance exists already."""
    explained: tuple[Explained, ...] = ()
    """How each column of ``added`` was added."""
    user: SourceUser | None = None
    """The login that has to read the second instance, where it is not the one that may create it. A DBA runs the
    proposal then."""

    @property
    def enabling(self) -> str:
        """Return the T-SQL that creates the second instance, and lets the login read it."""
        if self.user is None:
            return self._enabling
        return self.user.script(self._enabling, self.user.grant_changes(self.name))

    @property
    def _enabling(self) -> str:
        table, old = self.old.table, self.old
        lines = _broken(self.columns)
        declared = [f"DECLARE @columns nvarchar(max) = {literal(lines[0])};"]
        declared += [f"SET @columns += {literal(line)};" for line in lines[1:]]
        return "\n".join(
            [
                *(declared if len(lines) > 1 else []),
                "EXEC sys.sp_cdc_enable_table",
                f"    @source_schema = {literal(table.schema)}, @source_name = {literal(table.name)},",
                f"    @capture_instance = {literal(self.name)},",
                f"    @supports_net_changes = {int(old.supports_net_changes)},",
                f"    @role_name = {literal(old.role) if old.role is not None else 'NULL'},",
                *([f"    @index_name = {literal(old.index)},"] if old.index else []),
                *([f"    @filegroup_name = {literal(old.filegroup)},"] if old.filegroup else []),
                f"    @captured_column_list = {'@columns' if len(lines) > 1 else literal(lines[0])};",
            ]
        )

    @property
    def text(self) -> str:
        """Return all statements, for a person to read."""
        lines = [self._enabling]
        if self.is_there:
            lines = [f"-- {self.name} exists and captures them."]
        if self.user is not None:
            lines.append(self.user.grant_changes(self.name))
        if self.drops is not None:
            lines = [
                "-- A table has at most two capture instances: the other one goes first. Check that no one reads it.",
                _dropping(self.drops),
                *lines,
            ]
        if self.user is not None:
            # A DBA runs all of it at once.
            lines += [
                f"-- Not yet: when every pipeline of Floodmark reads {self.name}, an alert asks for this.",
                *(f"-- {line}" for line in _dropping(self.old).splitlines()),
            ]
            return self.user.script(*lines)
        lines += [
            f"-- When every pipeline of Floodmark reads {self.name}, {self.old.identity.name} is dropped:",
            _dropping(self.old),
        ]
        return "\n".join(lines)


def takes_along(proposal: str, column: str) -> bool:
    """Return whether the second instance of a proposal captures the column.

    proposal: its T-SQL, for an instance that does not exist yet.
    """
    return literal(bracket(column))[2:-1] in proposal


def spelled_by_server(name: TableName, living: Sequence[LivingInstance]) -> TableName:
    """Return the name of a configured table as the server spells it.

    The exact name has precedence over one that differs in case, as in a snapshot; without a capture instance of such a
    table, the name is returned as it is.
    """
    tables = [each.table for each in living]
    alike = [table for table in tables if table.folded == name.folded]
    return name if name in tables or not alike else alike[0]


def _broken(columns: Sequence[str]) -> list[str]:
    """Return the list of columns in pieces that fit on a line, so that all of it is visible.

    A variable joins them: one literal over several lines would have line breaks, which are not known to be allowed in
    this list.
    """
    lines = [""]
    for number, column in enumerate(columns, 1):
        text = bracket(column) + (", " if number < len(columns) else "")
        if lines[-1] and len(lines[-1]) + len(text) > _LINE_LENGTH:
            lines.append("")
        lines[-1] += text
    return lines


def _dropping(instance: LivingInstance) -> str:
    """Return the statement that drops an instance, with an argument per line."""
    table = instance.table
    return "\n".join(
        [
            "EXEC sys.sp_cdc_disable_table",
            f"    @source_schema = {literal(table.schema)}, @source_name = {literal(table.name)},",
            f"    @capture_instance = {literal(instance.identity.name)};",
        ]
    )


def build_proposal(
    instance: LivingInstance,
    captured: Sequence[str],
    added: Sequence[str],
    living: Sequence[LivingInstance],
    able: LivingInstance | None = None,
    *,
    user: SourceUser | None = None,
) -> Proposal:
    """Return the proposal for a table.

    captured: the columns to keep, in order. added: the columns to include. living: the instances of the database. able:
    one of them that captures all of these. user: the login that reads the source.
    """
    reader = None if user is None or user.is_owner else user
    names = {other.identity.name.casefold() for other in living}
    siblings = [other for other in living if other.table == instance.table and other != instance]
    more = tuple(name for name in added if name not in captured)
    columns = (*captured, *more)
    if able is not None:
        return Proposal(instance, able.identity.name, more, columns, is_there=True, user=reader)
    drops = siblings[0] if len(siblings) + 1 >= MOST_INSTANCES else None
    return Proposal(instance, _new_name(instance.table, names), more, columns, drops, user=reader)


def _new_name(table: TableName, taken: set[str]) -> str:
    """Return the server's default name with the first number that is free."""
    number = 2
    while True:
        ending = f"_{number}"
        name = f"{table.schema}_{table.name}"[: _NAME_LENGTH - len(ending)] + ending
        if name.casefold() not in taken:
            return name
        number += 1


# --------------------------------------------------------------------------------------------------------------------
# The sentences about drift that depend on the kind of a source: its effect, and what to do about it.


_EFFECTS = {
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
_ADVICE = {
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


@dataclass(frozen=True, slots=True)
class DriftWords:
    """The sentences of one kind of source. The defaults are those of change data capture."""

    effects: Mapping[DriftClass, str]
    """What happens next."""
    advice: Mapping[DriftClass, str]
    """What to do."""
    effect_of_obstacle: str = "Its values can never reach the target. All other columns are loaded as before."
    """What happens next for an added column that cannot be loaded."""
    keeps_ddl: bool = True
    """Whether the source has a history of DDL."""
    has_instances: bool = True
    """Whether a table may have several feeds. Otherwise one that is found takes the place of each former one."""

    def where(self, identity: FeedIdentity) -> str:
        """Return the feed of a table as the end of a list of places."""
        return f", capture instance {identity.name}" if self.has_instances else ""


CDC_DRIFT_WORDS = DriftWords(_EFFECTS, _ADVICE)


# --------------------------------------------------------------------------------------------------------------------
# The texts about a drift event: what it is, its effect and what to do about it.


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
    entries = sorted({entry for each in found for entry in each.entries}, key=lambda entry: entry.position)
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
        f"DDL at LSN {entry.position}, {entry.at:%Y-%m-%d %H:%M} by the source's clock: {' '.join(entry.text.split())}"
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
    if proposal.startswith(FOR_DBA):
        words += (
            f" To include it: {command}, or in the Airflow UI under Browse, Required Actions (DAG cdc_switch_{source}),"
            " and have a db_owner run the T-SQL below, which the login may not: Floodmark then switches to the second "
            f"capture instance. To leave it out: floodmark drift reject {event_id}."
        )
    elif proposal:
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


# --------------------------------------------------------------------------------------------------------------------
# The number of rows that an added column may lack in the target, for the decision about it.


COUNTED_CHANGES = 100_000
"""The most changes that are counted; the exact number of more does not matter."""


@dataclass(frozen=True, slots=True)
class RowsAtRisk:
    """The rows whose values of an added column may be missing."""

    table_rows: int | None
    """All rows of the table; None where the login may not see them."""
    change_rows: int | None = None
    """Inserts and updates captured since the DDL, which lack the column; counted to one more than ``COUNTED_CHANGES``.
    None while the DDL's LSN is unknown."""

    def __str__(self) -> str:
        """Return a sentence, "" where nothing is known."""
        known = []
        if self.change_rows is not None:
            more = "more than " if self.change_rows > COUNTED_CHANGES else ""
            known.append(f"{more}{min(self.change_rows, COUNTED_CHANGES):,} changes captured since the DDL without it")
        if self.table_rows is not None:
            known.append(f"any of the table's {self.table_rows:,} rows that has a value in it")
        return f"Rows at risk: {'; '.join(known)}." if known else ""


# --------------------------------------------------------------------------------------------------------------------
# A switch of capture instances: from the one that lacks a column to a second one that has it, without loss.
#
# Both instances capture every change from their own start on, under the same LSNs (docs/reference/sqlserver_cdc.md,
# "Two instances"). So a pipeline may switch as soon as its watermark has reached the start of the second: later changes
# are in both.


INSTANCE_SWITCH = "instance_switch"


class SwitchState(Enum):
    """The state of a switch."""

    APPROVED = "approved"
    """The second instance has to be created."""
    MADE = "made"
    """The second instance exists."""
    DONE = "done"
    """The first instance has been dropped."""
    GIVEN_UP = "given_up"
    """The first instance was dropped before every pipeline had switched."""


@dataclass(frozen=True, slots=True)
class SwitchedPipeline:
    """A pipeline that reads the second instance, after ``watermark``."""

    pipeline: str
    watermark: Position
    window_id: int | None = None
    """The window that loads its new columns; None until that is opened."""
    window_state: WindowState | None = None
    """None: the window no longer exists."""

    @property
    def is_filled(self) -> bool:
        """Return whether the new columns have been loaded."""
        return self.window_state is WindowState.ADVANCED


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedSwitch:
    """A proposal for the operator to approve."""

    source: str
    table: TableName
    """As the source spells it."""
    old: FeedIdentity
    """The first instance."""
    name: str
    """The name of the second instance."""
    added: tuple[str, ...]
    """The new columns."""
    columns: tuple[str, ...]
    """All columns that the second instance must capture."""
    enabling: str
    """The T-SQL that creates it."""
    drops: str
    """The name of the instance that is dropped to make room, "" for none."""
    since: Position | None
    """The LSN of the oldest DDL behind it; None where the history does not have it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceSwitch(PlannedSwitch):
    """A switch in the ledger."""

    switch_id: int
    state: SwitchState
    approved_by: str
    approved_at: datetime
    new: FeedIdentity | None = None
    """The second instance; None until it is created. It may have another name than planned."""
    pipelines: tuple[SwitchedPipeline, ...] = ()

    def of(self, pipeline: str) -> SwitchedPipeline | None:
        """Return the state of a pipeline that has switched, None for one that has not."""
        return next((each for each in self.pipelines if each.pipeline == pipeline), None)


def rows_to_fill(
    switch: InstanceSwitch,
    added: tuple[str, ...],
    key: tuple[str, ...],
    backfill: Backfill,
    *,
    there: Collection[str] = (),
    has_all_changes: bool = True,
) -> str:
    """Return the condition, in T-SQL, for the rows to load after the switch.

    added: the new columns that are left. there: the columns that the target has: where a new one is among them, it was
    dropped once and has values of that time, which every row must lose. Otherwise a row without a value in them needs
    no load: the target has none either. has_all_changes: whether the change tables have all changes since then.
    """
    if not set(added).isdisjoint(there):
        return EVERY_ROW
    if backfill is Backfill.ALL or not has_all_changes:
        return filled_rows(added)
    # An update of a new column alone is only in the second one, and no window reads changes below its start.
    changed = [(switch.old.name, switch.since), (switch.new.name if switch.new else switch.name, None)]
    return " OR ".join(touched_rows(switch.table, key, name, since) for name, since in changed)


def next_step(switch: InstanceSwitch, pipeline: str) -> tuple[str, str]:
    """Return the next step as far as the ledger knows, by name and in words: who does it, and what is read until then.

    The names: make the second instance, switch_pipeline, load the new columns, drop the first instance.
    """
    old, new = switch.old.name, switch.new.name if switch.new else switch.name
    added = ", ".join(switch.added)
    switched = switch.of(pipeline)
    if switch.new is None:
        step = f"the next run of cdc_drift_{switch.source} creates {new}; {old} is read until then, without {added}."
        return "make", step
    if switched is None:
        return "switch_pipeline", (
            f"{new} exists; {old} is read, without {added}, until the watermark has reached its start."
        )
    if switched.is_filled:
        return "drop", f"{new} is read, with {added}; {old} is dropped when every pipeline reads {new}."
    window = f"window {switched.window_id} loads" if switched.window_id else "a window will load"
    return "load", f"{new} is read; {window} what {added} held before."


def switch_key(switch_id: int) -> str:
    """Return the event key of the alert."""
    return f"{INSTANCE_SWITCH}:{switch_id}"


def _means(switch: InstanceSwitch) -> str:
    added = ", ".join(switch.added)
    if switch.pipelines and all(each.is_filled for each in switch.pipelines):
        return (
            f"Nothing is missing in the target: {added} is loaded from the second capture instance. The first one takes"
            " space at the source, and makes capture write each change twice."
        )
    return f"What {added} holds does not reach the target yet; all other columns do, and no change is lost."


def build_switch_alert(switch: InstanceSwitch, problem: str, advice: str) -> Alert:
    """Return the alert for a switch that cannot continue by itself."""
    return Alert(
        kind=INSTANCE_SWITCH,
        subject=switch.source,
        table=switch.table,
        what=f"The switch of {switch.table} from capture instance {switch.old.name} to {switch.name} is blocked: "
        f"{problem}",
        where=f"source {switch.source}, table {switch.table}, switch {switch.switch_id}",
        means=_means(switch),
        do=f"{advice} The drift DAG, or {command_line('drift', 'switch', switch.source)}, then continues it.",
        event_key=switch_key(switch.switch_id),
    )
