"""A switch of capture instances: from the one that lacks a column to a second one that has it, without a change lost.

Both instances capture every change from their own start on, under the same LSNs (docs/reference/sqlserver_cdc.md, "Two
instances"). So a pipeline may go over as soon as its watermark has reached the start of the second: what comes after it
is in both.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from enum import Enum

from floodmark.core.alert import Alert
from floodmark.core.lsn import Lsn
from floodmark.core.policies import Backfill
from floodmark.core.schema import TableName
from floodmark.core.source.scripts import EVERY_ROW, TOUCHED, filled_rows, touched_rows
from floodmark.core.source.snapshot import InstanceIdentity
from floodmark.core.window.plan import WindowState

KIND = "instance_switch"


class SwitchState(Enum):
    """APPROVED: the second instance is to be made. MADE: it is there. DONE: the first one is gone."""

    APPROVED = "approved"
    MADE = "made"
    DONE = "done"
    GIVEN_UP = "given_up"
    """The first instance went away before every pipeline had gone over."""


class SwitchStep(Enum):
    """What comes next for a pipeline."""

    MAKE = "make"
    SWITCH = "switch_pipeline"
    LOAD = "load"
    DROP = "drop"


@dataclass(frozen=True, slots=True)
class SwitchedPipeline:
    """A pipeline that reads the second instance, after ``watermark``. window_id: of the load of its new columns, None
    until that is opened; window_state None: there is no such window any more."""

    pipeline: str
    watermark: Lsn
    window_id: int | None = None
    window_state: WindowState | None = None

    @property
    def is_filled(self) -> bool:
        return self.window_state is WindowState.ADVANCED


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedSwitch:
    """A proposal that somebody approves. table: as the source spells it. old, name: the two instances. added: the new
    columns; columns: all that the second one must capture. enabling: the T-SQL that makes it. drops: the name of the
    instance whose place it takes, "" for none. since: of the oldest DDL behind it, None where the history does not
    tell."""

    source: str
    table: TableName
    old: InstanceIdentity
    name: str
    added: tuple[str, ...]
    columns: tuple[str, ...]
    enabling: str
    drops: str
    since: Lsn | None


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceSwitch(PlannedSwitch):
    """As the ledger has it. new: the second instance, None until it is made; it may have another name than planned."""

    switch_id: int
    state: SwitchState
    approved_by: str
    approved_at: datetime
    new: InstanceIdentity | None = None
    pipelines: tuple[SwitchedPipeline, ...] = ()

    def of(self, pipeline: str) -> SwitchedPipeline | None:
        return next((each for each in self.pipelines if each.pipeline == pipeline), None)


def rows_to_fill(
    switch: InstanceSwitch, added: tuple[str, ...], key: tuple[str, ...], backfill: Backfill, *,
    there: Collection[str] = (), has_all_changes: bool = True,
) -> str:  # fmt: skip
    """The condition, in T-SQL, of the rows to load after the switch.

    added: of the new columns those that are left. there: the columns that the target has: where one of the new ones is
    among them, it was dropped once and has values of that time, which every row must lose. Else a row that holds
    nothing in them is right as it is: so does the target. has_all_changes: whether the change tables tell all that was
    touched.
    """
    if not set(added).isdisjoint(there):
        return EVERY_ROW
    if backfill is Backfill.ALL or not has_all_changes:
        return filled_rows(added)
    # An update of a new column alone is only in the second one, and no window reads what lies below its beginning.
    changed = [(switch.old.name, switch.since), (switch.new.name if switch.new else switch.name, None)]
    return " OR ".join(touched_rows(switch.table, key, name, since) for name, since in changed)


def step_of(switch: InstanceSwitch, pipeline: str) -> SwitchStep:
    """As far as the ledger knows."""
    if switch.new is None:
        return SwitchStep.MAKE
    switched = switch.of(pipeline)
    if switched is None:
        return SwitchStep.SWITCH
    return SwitchStep.DROP if switched.is_filled else SwitchStep.LOAD


def describe_step(switch: InstanceSwitch, pipeline: str) -> str:
    """What comes next, who does it, and what is there for the pipeline until then."""
    old, new = switch.old.name, switch.new.name if switch.new else switch.name
    added = ", ".join(switch.added)
    switched = switch.of(pipeline)
    match step_of(switch, pipeline):
        case SwitchStep.MAKE:
            return f"the next run of cdc_drift_{switch.source} makes {new}; {old} is read until then, without {added}."
        case SwitchStep.SWITCH:
            return f"{new} is made; {old} is read, without {added}, until the watermark has reached its start."
        case SwitchStep.LOAD:
            window = f"window {switched.window_id} loads" if switched and switched.window_id else "a window will load"
            return f"{new} is read; {window} what {added} held before."
    return f"{new} is read, with {added}; {old} is dropped when every pipeline reads {new}."


def asks_changes(where: str) -> bool:
    """Whether a condition of ``rows_to_fill`` is about the rows that the change tables tell of."""
    return where.startswith(TOUCHED)


def may_switch(watermark: Lsn, start: Lsn) -> bool:
    """start: ``sys.fn_cdc_get_min_lsn`` of the second instance, which the capture job has come to know."""
    return watermark.next() >= start


def switch_key(switch_id: int) -> str:
    """The event key of the alert."""
    return f"{KIND}:{switch_id}"


def build_switch_alert(switch: InstanceSwitch, problem: str, advice: str) -> Alert:
    """A switch that cannot go on by itself."""
    return Alert(
        kind=KIND,
        subject=switch.source,
        table=switch.table,
        what=f"The switch of {switch.table} from capture instance {switch.old.name} to {switch.name} does not go on: "
        f"{problem}",
        where=f"source {switch.source}, table {switch.table}, switch {switch.switch_id}",
        means=f"What {', '.join(switch.added)} holds does not reach the target yet; all other columns do, and no "
        "change is lost.",
        do=f"{advice} The drift DAG, or floodmark drift switch {switch.source}, then goes on where it was.",
        event_key=switch_key(switch.switch_id),
    )
