"""A switch of capture instances: from the one that lacks a column to a second one that has it, without loss.

Both instances capture every change from their own start on, under the same LSNs (docs/reference/sqlserver_cdc.md, "Two
instances"). So a pipeline may switch as soon as its watermark has reached the start of the second: later changes are in
both.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from enum import Enum

from floodmark.core.alert import Alert
from floodmark.core.policies import Backfill
from floodmark.core.position import Position
from floodmark.core.schema import TableName
from floodmark.core.source.feed import InstanceIdentity
from floodmark.core.source.scripts import EVERY_ROW, TOUCHED, filled_rows, touched_rows
from floodmark.core.window.plan import WindowState

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


class SwitchStep(Enum):
    """The next step for a pipeline."""

    MAKE = "make"
    SWITCH = "switch_pipeline"
    LOAD = "load"
    DROP = "drop"


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
    old: InstanceIdentity
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
    new: InstanceIdentity | None = None
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


def step_of(switch: InstanceSwitch, pipeline: str) -> SwitchStep:
    """Return the next step, as far as the ledger knows."""
    if switch.new is None:
        return SwitchStep.MAKE
    switched = switch.of(pipeline)
    if switched is None:
        return SwitchStep.SWITCH
    return SwitchStep.DROP if switched.is_filled else SwitchStep.LOAD


def describe_step(switch: InstanceSwitch, pipeline: str) -> str:
    """Return the next step, who does it, and what the pipeline reads until then."""
    old, new = switch.old.name, switch.new.name if switch.new else switch.name
    added = ", ".join(switch.added)
    switched = switch.of(pipeline)
    match step_of(switch, pipeline):
        case SwitchStep.MAKE:
            return (
                f"the next run of cdc_drift_{switch.source} creates {new}; {old} is read until then, without {added}."
            )
        case SwitchStep.SWITCH:
            return f"{new} exists; {old} is read, without {added}, until the watermark has reached its start."
        case SwitchStep.LOAD:
            window = f"window {switched.window_id} loads" if switched and switched.window_id else "a window will load"
            return f"{new} is read; {window} what {added} held before."
    return f"{new} is read, with {added}; {old} is dropped when every pipeline reads {new}."


def asks_changes(where: str) -> bool:
    """Return whether a condition of ``rows_to_fill`` depends on the change tables."""
    return where.startswith(TOUCHED)


def may_switch(watermark: Position, start: Position) -> bool:
    """Return whether a pipeline may read the second instance.

    start: ``sys.fn_cdc_get_min_lsn`` of that instance, once the capture job has processed it.
    """
    return watermark.next() >= start


def switch_key(switch_id: int) -> str:
    """Return the event key of the alert."""
    return f"{INSTANCE_SWITCH}:{switch_id}"


def build_switch_alert(switch: InstanceSwitch, problem: str, advice: str) -> Alert:
    """Return the alert for a switch that cannot continue by itself."""
    return Alert(
        kind=INSTANCE_SWITCH,
        subject=switch.source,
        table=switch.table,
        what=f"The switch of {switch.table} from capture instance {switch.old.name} to {switch.name} is blocked: "
        f"{problem}",
        where=f"source {switch.source}, table {switch.table}, switch {switch.switch_id}",
        means=f"What {', '.join(switch.added)} holds does not reach the target yet; all other columns do, and no "
        "change is lost.",
        do=f"{advice} The drift DAG, or floodmark drift switch {switch.source}, then continues it.",
        event_key=switch_key(switch.switch_id),
    )
